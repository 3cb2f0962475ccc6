"""What Paddock has not: every such method raises an error of the SDK, and says why."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import daytona
import pytest
from daytona import CreateSnapshotParams, Resources
from daytona_api_client.exceptions import OpenApiException
from daytona_api_client_async.exceptions import OpenApiException as AsyncOpenApiException

_BENEATH = (OpenApiException, AsyncOpenApiException)


def test_snapshots_are_the_providers_templates(client: Any) -> None:
    known = client.snapshot.list().items
    assert client.snapshot.get(known[0].name).state == "active"
    assert client.snapshot.activate(known[0]).name == known[0].name
    with pytest.raises(daytona.DaytonaError, match="not available"):
        client.snapshot.create(CreateSnapshotParams(name="x", image="debian:12"))
    with pytest.raises(daytona.DaytonaError, match="not available"):
        client.snapshot.delete(known[0])


def test_volumes_secrets_and_warm_pools(client: Any) -> None:
    assert client.volume.list() == []
    with pytest.raises(daytona.DaytonaNotFoundError):
        client.volume.get("x")
    refuse(client.volume.create, "x")
    volume = type("Volume", (), {"id": "x"})()
    refuse(client.volume.delete, volume)
    assert client.secret.list().items == []
    refuse(client.secret.create, daytona.CreateSecretParams(name="x", value="y"))
    for method in (client.secret.get, client.secret.delete):
        refuse(method, "x")
    refuse(client.secret.update, "x", daytona.UpdateSecretParams(value="y"))
    assert client.warm_pool.list() == []
    refuse(client.warm_pool.create, "host", 1)
    refuse(client.warm_pool.update, "x", 1)
    refuse(client.warm_pool.delete, "x")


def test_what_a_sandbox_cannot(sandbox: Any) -> None:
    refuse(sandbox.resize, Resources(cpu=2))
    refuse(sandbox.fork)
    refuse(sandbox.create_snapshot, "x")
    refuse(sandbox.create_ssh_access)
    refuse(sandbox.revoke_ssh_access, "x")
    refuse(sandbox.validate_ssh_access, "x")
    refuse(sandbox.update_secrets, {"A": "b"})
    refuse(sandbox.recover)
    sandbox.wait_for_resize_complete()


def test_computer_use(sandbox: Any) -> None:
    use = sandbox.computer_use
    for part in (use, use.mouse, use.keyboard, use.screenshot, use.display, use.recording, use.accessibility):
        target = part._target
        for name in [each for each in dir(type(target)) if not each.startswith("_")]:
            method = getattr(target, name)
            if inspect.isroutine(method):
                refuse(getattr(part, name), *_arguments(method))


def refuse(method: Callable[..., Any], *args: Any) -> None:
    """A few methods of the SDK let the errors of the clients beneath it pass as they are."""
    with pytest.raises((daytona.DaytonaError, *_BENEATH)):
        method(*args)


def _arguments(method: Any) -> list[Any]:
    """Something for everything that must be given."""
    values = {"int": 1, "str": "x", "list": ["x"]}
    found = []
    for each in inspect.signature(method).parameters.values():
        if each.default is inspect.Parameter.empty and each.kind is each.POSITIONAL_OR_KEYWORD:
            kind = str(each.annotation)
            if each.name == "region":
                found.append(daytona.ScreenshotRegion(x=0, y=0, width=1, height=1))
            else:
                found.append(next((value for name, value in values.items() if kind.startswith(name)), "x"))
    return found
