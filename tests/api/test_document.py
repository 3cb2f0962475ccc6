"""The OpenAPI document and docs/api.md say what there is, all of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


@pytest.fixture
def document(app: FastAPI) -> dict[str, Any]:
    return app.openapi()


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_route_is_on_the_page_and_nothing_else(document: dict[str, Any]) -> None:
    written = set(re.findall(r"^\| `([A-Z]+ /[^`?]*)`", PAGE.read_text(), re.MULTILINE))
    assert written == {f"{method} {path}" for method, path, _ in operations(document)}


def test_every_websocket_is_on_the_page(app: FastAPI) -> None:
    from paddock.api.routes.sockets import router

    written = set(re.findall(r"`WS (/[^`?]*)`", PAGE.read_text()))
    assert written == {route.path for route in router.routes}  # type: ignore[attr-defined]


def test_every_operation_has_a_name_of_its_own_and_a_tag(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    known = {tag["name"] for tag in document["tags"]}
    assert all(set(operation["tags"]) <= known for _, _, operation in operations(document))


def test_every_operation_declares_its_failures_in_the_one_shape(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        expected = (
            {"400", "405"}
            if path in ("/health", "/ready")
            else {"400", "401", "403", "405", "413", "422", "429", "500", "503"}
        )
        if path.startswith("/sandboxes"):
            expected |= {"404", "409"}
        assert expected <= set(operation["responses"]), (method, path)
        for status, response in operation["responses"].items():
            if int(status) >= 400 and path not in ("/health", "/ready"):
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorAnswer"}, (method, path, status)


def test_every_operation_but_health_and_ready_needs_a_key(document: dict[str, Any]) -> None:
    assert set(document["components"]["securitySchemes"]) == {"bearer", "key"}
    for _, path, operation in operations(document):
        assert operation["security"] == ([] if path in ("/health", "/ready") else [{"bearer": []}, {"key": []}])


def test_the_document_names_nothing_of_fastapi(document: dict[str, Any]) -> None:
    assert not {"HTTPValidationError", "ValidationError"} & set(document["components"]["schemas"])
