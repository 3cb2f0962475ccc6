"""``/docs``: the API to read and to try, with everything it needs served from here."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import FileResponse, HTMLResponse

router = APIRouter(include_in_schema=False)

VENDORED = Path(__file__).parent / "vendor" / "swagger-ui"
_FAVICON = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 10 10'><text y='9'>🐎</text></svg>"


@router.api_route("/docs", methods=["GET", "HEAD"])
async def docs_page() -> HTMLResponse:
    return get_swagger_ui_html(
        openapi_url="/openapi.json",
        title="Paddock API",
        swagger_js_url="/docs/swagger-ui-bundle.js",
        swagger_css_url="/docs/swagger-ui.css",
        swagger_favicon_url=_FAVICON,
        swagger_ui_parameters={"persistAuthorization": True, "filter": True, "validatorUrl": None},
    )


@router.get("/docs/{name}")
async def docs_asset(name: Literal["swagger-ui-bundle.js", "swagger-ui.css"]) -> FileResponse:
    return FileResponse(VENDORED / name, headers={"Cache-Control": "max-age=86400"})
