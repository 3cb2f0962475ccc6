"""Open files: how many this process may have, and who may have which.

The kernel gives out the lowest number that is free, so whoever gets a high one knows that all below are taken. The
uppermost quarter is for the server's own work: making sandboxes, reading files, its database. Connections from outside
stay below it, and connections of sandboxes in the lower half, so that neither kind can take what the other, or the
server itself, needs.
"""

from __future__ import annotations

import errno
import resource

_MOST = 1 << 20
_LEAST_RESERVED = 256
EXHAUSTED_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Of accept(2): the process or the machine is out of a resource, which passes. Clients wait in the backlog."""
GONE_ERRORS = frozenset(
    getattr(errno, name)
    for name in ("ECONNABORTED", "EPROTO", "EPERM", "ENETDOWN", "EHOSTUNREACH", "ENETUNREACH", "EHOSTDOWN", "ENONET")
)
"""Of accept(2) on Linux: what befell a connection that was still in the backlog."""


def descriptor_limit() -> int:
    """Of this process, as it is now."""
    given, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if given == resource.RLIM_INFINITY else min(given, _MOST)


def for_connections(limit: int) -> int:
    """Numbers from here on are not for connections from outside."""
    return limit - max(limit // 4, min(_LEAST_RESERVED, limit // 2))


def for_sandboxes(limit: int) -> int:
    """Numbers from here on are not for connections that sandboxes make."""
    return limit // 2


def for_one_sandbox(limit: int) -> int:
    """Connections at a time on one listener inside a sandbox; each may need a second descriptor to where it leads."""
    return max(8, limit // 32)
