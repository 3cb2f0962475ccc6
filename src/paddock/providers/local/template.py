"""What a template is: the layers and files of the host that a sandbox's root is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SUDO = ("/usr/bin/sudo", "/usr/local/bin/sudo")


@dataclass(frozen=True, slots=True)
class Overlay:
    """A private, writable view: ``lowers`` from top to bottom, with the sandbox's own layer above them."""

    name: str
    target: str
    lowers: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class LocalTemplate:
    template_id: str
    overlays: tuple[Overlay, ...]
    binds: tuple[str, ...]
    """Directories of the host, read-only, where they cannot be overlaid."""
    top: Path | None
    """Where its own ``/usr`` is found from outside; None: in several layers."""
    python: str | None
    """What ``python`` means, where there is only ``python3``."""
    own_files: tuple[str, ...] = ()
    """Of which each sandbox gets a copy (``private_files``)."""
    copies: tuple[tuple[Path, str], ...] = ()
    """Files that are mounted over others, where those are not in an overlay."""

    sudo: tuple[str, ...] = ()
    """Of templates without a ``top``."""

    def sudo_paths(self) -> Sequence[str]:
        """Real ones, which cannot work here: they would need a privilege that no sandbox has."""
        if self.top is None:
            return self.sudo
        return [path for path in SUDO if (self.top / path.lstrip("/")).is_file()]
