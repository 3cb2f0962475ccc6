"""Sandboxes on this machine itself, with real isolation: no Docker, no KVM, as root or as an ordinary user."""

from paddock.providers.local.provider import LocalProvider

__all__ = ["LocalProvider"]
