"""The name of this installation, so that two with one engine or one account leave each other's machines alone."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from paddock import errors


def installation_name(home: Path) -> str:
    """Made when it is first asked for; the same for every server on this home."""
    path = home / "installation"
    if not path.exists():
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        draft.write_text(secrets.token_hex(8))
        with contextlib.suppress(FileExistsError):  # another server was quicker
            os.link(draft, path)
        draft.unlink()
    if not (name := path.read_text().strip()):
        raise errors.ProviderUnavailable(f"{path} is empty: it holds the name of this installation at its provider.")
    return name
