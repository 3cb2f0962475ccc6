"""The provider that ``dcode --sandbox paddock`` finds by its entry point.

It is constructed without arguments, sometimes only to read its metadata, so the server is not contacted before a
sandbox is requested. Its sandboxes are deleted at the latest when the process ends (see :mod:`paddock.exit_deletion`).
"""

from __future__ import annotations

import os
from typing import Any, ClassVar, get_type_hints

from deepagents_code.integrations.sandbox_provider import (
    SandboxError,
    SandboxNotFoundError,
    SandboxProvider,
    SandboxProviderMetadata,
)

from paddock.client import SyncSandboxClient
from paddock.deepagents.backend import PaddockSandbox
from paddock.errors import PaddockError, SandboxFailed, SandboxGone, SandboxNotFound
from paddock.exit_deletion import ExitDeletion
from paddock.session.opening import SandboxOptions

USER = "dcode"
_GONE = (SandboxNotFound, SandboxGone, SandboxFailed)


class PaddockProvider(SandboxProvider):
    _deletions: ClassVar[dict[str, ExitDeletion]] = {}
    """Pending deletions of this process's sandboxes; shared, because another provider object may delete one."""

    @property
    def metadata(self) -> SandboxProviderMetadata:
        return SandboxProviderMetadata(
            name="paddock",
            working_dir="/workspace",
            supports_sandbox_id=True,
            supports_snapshot_name=True,
        )

    def get_or_create(
        self,
        *,
        sandbox_id: str | None = None,
        snapshot: str | None = None,
        user_id: str = USER,
        **kwargs: Any,
    ) -> PaddockSandbox:
        """The sandbox with this id, running, or a new one. ``snapshot`` is the template's name; ``params`` of the
        configuration may contain all options of ``create_sandbox``."""
        unknown = kwargs.keys() - get_type_hints(SandboxOptions).keys()
        if unknown:
            raise SandboxError(f"Paddock knows no option {', '.join(sorted(unknown))} for a sandbox.")
        if snapshot is not None:
            kwargs["template_id"] = snapshot
        try:
            with SyncSandboxClient() as client:
                if sandbox_id:
                    box = client.connect_sandbox(sandbox_id)
                else:
                    box = client.create_sandbox(user_id, **kwargs)
                    self._deletions[box.sandbox_id] = ExitDeletion(box.sandbox_id, os.environ)
        except _GONE as error:
            raise SandboxNotFoundError(error.message) from error
        except PaddockError as error:
            raise SandboxError(error.message) from error
        return PaddockSandbox(box.sandbox_id)

    def delete(self, *, sandbox_id: str, **kwargs: Any) -> None:
        try:
            with SyncSandboxClient() as client:
                client.delete_sandbox(sandbox_id)
            if (deletion := self._deletions.pop(sandbox_id, None)) is not None:
                deletion.cancel()
        except SandboxNotFound as error:
            raise SandboxNotFoundError(error.message) from error
        except PaddockError as error:
            raise SandboxError(error.message) from error
