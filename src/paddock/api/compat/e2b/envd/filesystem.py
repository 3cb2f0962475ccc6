"""``filesystem.Filesystem``: listing and managing files. Content is transferred through ``/files``."""

from __future__ import annotations

import posixpath
from functools import partial
from typing import Any

from paddock import errors
from paddock.api.compat.e2b.envd.connect import Code, ConnectError
from paddock.api.compat.e2b.envd.entries import describe, describe_one
from paddock.api.compat.e2b.envd.fields import Fields
from paddock.api.compat.e2b.envd.inside import EnvdContext, resolved
from paddock.api.compat.e2b.envd.users import ROOT, Account
from paddock.api.file_content import json_pieces
from paddock.machine.base import FileInfo, FileType
from paddock.sorting import sorted_in_slices


class FilesystemService:
    async def stat(self, inside: EnvdContext, message: Fields) -> dict[str, object]:
        account = await inside.account()
        path = resolved(account, message.text("path"))
        try:
            return {"entry": await _entry(inside, account, path)}
        except errors.PathNotFound:
            raise _missing(path) from None

    async def make_dir(self, inside: EnvdContext, message: Fields) -> dict[str, object]:
        account = await inside.account()
        path = resolved(account, message.text("path"))
        try:
            made = await inside.machine.make_directory(path, user=ROOT, owner=account.name)
        except errors.PathConflict:
            raise ConnectError(
                Code.INVALID_ARGUMENT, f"path already exists but it is not a directory: {path}"
            ) from None
        if not made:
            raise ConnectError(Code.ALREADY_EXISTS, f"directory already exists: {path}")
        return {"entry": await _entry(inside, account, path)}

    async def move(self, inside: EnvdContext, message: Fields) -> dict[str, object]:
        account, machine = await inside.account(), inside.machine
        source, destination = (resolved(account, message.text(name)) for name in ("source", "destination"))
        try:
            await machine.stat(source, user=ROOT)
            await machine.make_directory(posixpath.dirname(destination), user=ROOT, owner=account.name)
            await machine.move(source, destination, user=ROOT)
        except errors.PathNotFound:
            raise ConnectError(Code.NOT_FOUND, f"source file not found: {source}") from None
        await inside.use.record(event=("file.moved", {"source": source, "destination": destination}))
        return {"entry": await _entry(inside, account, destination)}

    async def list_dir(self, inside: EnvdContext, message: Fields) -> bytes:
        account = await inside.account()
        path = resolved(account, message.text("path"))
        depth = message.number("depth") or 1
        if depth < 0:
            raise ConnectError(Code.INVALID_ARGUMENT, "depth should be at least one")
        try:
            top = await inside.machine.stat(path, follow=True, user=ROOT)
            if top.type is not FileType.DIRECTORY:
                raise ConnectError(Code.INVALID_ARGUMENT, f"path is not a directory: {path}")
            viewer = await inside.viewer(account)
            async with inside.context.listings.turn(inside.sandbox.owner_id):
                found = await inside.machine.list_directory(path, depth, user=viewer)
                walked = await sorted_in_slices(found, key=_walked)
                return b'{"entries":[%b]}' % await json_pieces(
                    walked, partial(describe, inside.machine), inside.holding
                )
        except errors.PathNotFound:
            raise _missing(path) from None

    async def remove(self, inside: EnvdContext, message: Fields) -> dict[str, object]:
        path = resolved(await inside.account(), message.text("path"))
        try:
            await inside.machine.remove(path, recursive=True, user=ROOT)
        except errors.PathNotFound:
            return {}
        await inside.use.record(event=("file.removed", {"path": path}))
        return {}


async def _entry(inside: EnvdContext, account: Account, path: str) -> dict[str, Any]:
    return await describe_one(inside.machine, path, await inside.viewer(account))


def _walked(info: FileInfo) -> str:
    """Sort key for depth-first order: a directory, its content, then its next sibling. NUL sorts before all characters
    of names."""
    return info.path.replace("/", "\0")


def _missing(path: str) -> ConnectError:
    return ConnectError(Code.NOT_FOUND, f"path '{path}' does not exist")
