"""The whole OpenAPI document against a running server: what it says is what there is, and nothing breaks."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import schemathesis
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, assume
from hypothesis import settings as hypothesis_settings
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import positive_data_acceptance

from paddock.api.app import create_app
from paddock.api.openapi import operation_id
from paddock.api.routes import ROUTERS
from paddock.models import GIT_URL
from paddock.settings import Settings
from tests.api.conftest import LiveServer, running, settings_of
from tests.support import local_home
from tests.support.waiting import PATIENCE_S

_SETTINGS = hypothesis_settings(
    max_examples=10 if os.environ.get("PADDOCK_TEST_ALL") else 4,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server(prepared_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("schemathesis") / "home"
    shutil.copytree(prepared_home, home)
    with running(settings_of(home)) as server:
        yield server
    asyncio.run(local_home.clear(home))


@pytest.fixture(scope="module")
def sandbox(server: LiveServer) -> str:
    made = httpx.post(f"{server.url}/sandboxes/create", json={"user_id": "alice"}, headers=server.headers)
    return str(made.json()["sandbox_id"])


@pytest.fixture(scope="session")
def document() -> dict[str, Any]:
    """Made without a house: nothing is opened for it."""
    context: Any = SimpleNamespace(settings=Settings(_env_file=None), in_flight=None)
    return create_app(context=context).openapi()


def operations() -> list[str]:
    """Their ids, without the document: every worker of pytest needs them, and few need the document."""
    routes = (route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute))
    return [operation_id(route) for route in routes if route.include_in_schema]


@pytest.fixture(params=operations())
def operation(request: pytest.FixtureRequest, document: dict[str, Any]) -> BaseSchema:
    """The document with this operation alone. To compile all of them takes 9 seconds and 560 MB."""
    schema = schemathesis.openapi.from_dict(document)
    schema.config.generation.update(with_security_parameters=False)
    return schema.include(operation_id=request.param)


def test_every_operation_keeps_to_the_document(operation: BaseSchema, server: LiveServer, sandbox: str) -> None:
    load_all_checks()
    [found] = get_all_tests(schema=operation, test_func=_keeps_to_it, settings=_SETTINGS, given_kwargs={})
    _, test = found.ok()
    test(server=server, sandbox=sandbox)


EXAMPLE = "alice_1f2e3d4c"
ENDS_OR_ENDLESS = {"delete_sandbox", "delete_sandbox_by_path", "watch_files", "stream_events"}
"""Not on the sandbox that the other operations need."""
KNOWS_MORE = {
    "create_sandbox",
    "set_timeout",
    "connect_sandbox",
    "list_sandboxes",
    "write_file",
    "read_file",
    "run_command",
    "start_process",
    "set_egress",
    "call_tool",
    "put_mcp_server",
    "put_mcp_servers",
    "download_file",
    "check_file",
    "upload_file",
    "delete_file",
    "list_files",
    "stat_file",
    "move_file",
    "make_directory",
    "watch_files",
}
"""Operations that rightly refuse what only the server can know: its longest timeout, its cursors, a sandbox's users,
what a rule of egress may say, which arguments a tool takes."""


def _keeps_to_it(case: schemathesis.Case, server: LiveServer, sandbox: str) -> None:
    name = case.operation.definition.raw["operationId"]
    if name not in ENDS_OR_ENDLESS:
        _on_a_real_sandbox(case, sandbox)
    if name == "revoke_key":
        # Not the one that this test comes with.
        assume(case.path_parameters.get("key_id") not in (1, "1", True))
    if isinstance(case.body, dict):
        _keep_to_what_a_test_can_wait_for(case.body)
    answer = case.call(base_url=server.url, headers=server.headers, timeout=PATIENCE_S)
    excluded = [positive_data_acceptance] if name in KNOWS_MORE else []
    if answer.status_code == 501:  # what the local provider cannot do, and says so
        excluded.append(not_a_server_error)
    case.validate_response(answer, excluded_checks=excluded)


def _keep_to_what_a_test_can_wait_for(body: dict[str, Any]) -> None:
    """No clones from the network, and no directories of the host."""
    body.pop("mounts", None)
    if isinstance(url := body.get("git_url"), str) and re.fullmatch(GIT_URL, url):
        del body["git_url"]


def _on_a_real_sandbox(case: schemathesis.Case, sandbox: str) -> None:
    if case.path_parameters and case.path_parameters.get("sandbox_id") == EXAMPLE:
        case.path_parameters["sandbox_id"] = sandbox
    if isinstance(case.body, dict) and case.body.get("sandbox_id") == EXAMPLE:
        case.body["sandbox_id"] = sandbox
