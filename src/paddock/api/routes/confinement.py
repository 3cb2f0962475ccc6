"""A sandbox's isolation from the host, and its egress rules."""

from __future__ import annotations

from paddock.api.auth import Calling
from paddock.api.openapi import guarded_router
from paddock.api.params import SandboxIdHere
from paddock.api.shapes import egress_answer, isolation_answer
from paddock.models import EgressAnswer, EgressRules, IsolationAnswer

router = guarded_router("confinement", "/sandboxes/{sandbox_id}")


@router.get("/isolation")
async def get_isolation(sandbox_id: SandboxIdHere, caller: Calling) -> IsolationAnswer:
    """Which isolation layers are active for this sandbox, and which are missing. Does not resume it."""
    return isolation_answer(sandbox_id, await caller.context.confinement.isolation(caller.who, sandbox_id))


@router.get("/egress")
async def get_egress(sandbox_id: SandboxIdHere, caller: Calling) -> EgressAnswer:
    """The egress rules, counters, and latest connections. Does not resume it."""
    return egress_answer(sandbox_id, await caller.context.confinement.egress(caller.who, sandbox_id))


@router.put("/egress")
async def set_egress(body: EgressRules, sandbox_id: SandboxIdHere, caller: Calling) -> EgressAnswer:
    """Replace `allow`, `deny` or both; an omitted list is not changed. Takes effect at once, also for open connections.

    The mode cannot be changed: another one is a 409.
    """
    return egress_answer(sandbox_id, await caller.context.confinement.set_egress(caller.who, sandbox_id, body))
