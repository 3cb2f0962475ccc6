"""The two clients are the same words, and every word leads somewhere."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest

from paddock.client import SandboxClient, SyncSandboxClient
from paddock.client.call import ApiOperation, StreamOperation
from paddock.client.operations import Operations


def public(kind: type) -> dict[str, Any]:
    return {
        name: inspect.getattr_static(kind, name)
        for name in dir(kind)
        if not name.startswith("_") and callable(getattr(kind, name))
    }


def test_the_twins_have_the_same_methods() -> None:
    assert set(public(SandboxClient)) == set(public(SyncSandboxClient))


@pytest.mark.parametrize("name", sorted(public(SandboxClient)))
def test_the_twins_take_the_same_arguments(name: str) -> None:
    theirs, ours = (inspect.signature(getattr(kind, name)).parameters for kind in (SandboxClient, SyncSandboxClient))
    assert list(theirs.values()) == list(ours.values())


def test_the_twins_are_made_with_the_same_arguments() -> None:
    theirs, ours = (inspect.signature(kind.__init__).parameters for kind in (SandboxClient, SyncSandboxClient))
    assert [(p.name, p.kind) for p in theirs.values()] == [(p.name, p.kind) for p in ours.values()]


async def test_methods_are_awaited_on_one_and_plain_on_the_other() -> None:
    async with SandboxClient("http://paddock.test") as client:
        assert inspect.iscoroutinefunction(client.create_sandbox)
        assert isinstance(client.stream_events("alice_1f2e3d4c"), AsyncIterator)
    with SyncSandboxClient("http://paddock.test") as sync_client:
        assert not inspect.iscoroutinefunction(sync_client.create_sandbox)
        assert sync_client.create_sandbox.__doc__


def test_every_operation_is_named_as_its_function() -> None:
    for name, operation in vars(Operations).items():
        if isinstance(operation, ApiOperation | StreamOperation):
            assert operation.build.__name__ == name
