"""``/docs``: the interactive API reference, with all its files served from here.

Users enter API keys on this page, so only its own two scripts run, a key is kept in memory only, and no other page can
frame it or keep a reference to its window.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Literal

from fastapi import APIRouter
from starlette.responses import FileResponse, HTMLResponse

router = APIRouter(include_in_schema=False)

VENDORED = Path(__file__).parent / "vendor" / "swagger-ui"
_FAVICON = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 10 10'><text y='9'>🐎</text></svg>"
# Delete keys that earlier versions stored in the browser.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Paddock API</title>
<link rel="icon" href="{favicon}">
<link rel="stylesheet" nonce="{nonce}" href="/docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script nonce="{nonce}" src="/docs/swagger-ui-bundle.js"></script>
<script nonce="{nonce}">
localStorage.removeItem("authorized");
SwaggerUIBundle({{
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  layout: "BaseLayout",
  deepLinking: true,
  filter: true,
  persistAuthorization: false,
  showCommonExtensions: true,
  showExtensions: true,
  validatorUrl: null,
}});
</script>
</body>
</html>
"""


@router.api_route("/docs", methods=["GET", "HEAD"])
async def docs_page() -> HTMLResponse:
    nonce = secrets.token_urlsafe(18)
    headers = {"Content-Security-Policy": _policy(nonce), "Cache-Control": "no-store"}
    return HTMLResponse(_PAGE.format(nonce=nonce, favicon=_FAVICON), headers=headers)


@router.get("/docs/{name}")
async def docs_asset(name: Literal["swagger-ui-bundle.js", "swagger-ui.css"]) -> FileResponse:
    return FileResponse(VENDORED / name, headers={"Cache-Control": "max-age=86400"})


def _policy(nonce: str) -> str:
    """``'self'`` would allow the API's whole origin, including sandboxes' content, so scripts are allowed by nonce."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
