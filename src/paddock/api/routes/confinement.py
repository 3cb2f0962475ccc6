"""Confinement: what stands around a sandbox, and where it may connect to."""

from __future__ import annotations

from fastapi import APIRouter

from paddock.api.auth import Calling, GuardedRoute
from paddock.api.openapi import ON_A_SANDBOX, operation_id
from paddock.api.params import SandboxIdHere
from paddock.api.shapes import egress_answer, isolation_answer
from paddock.models import EgressAnswer, EgressRules, IsolationAnswer

router = APIRouter(
    prefix="/sandboxes/{sandbox_id}",
    tags=["confinement"],
    route_class=GuardedRoute,
    responses=ON_A_SANDBOX,
    generate_unique_id_function=operation_id,
)


@router.get("/isolation")
async def get_isolation(sandbox_id: SandboxIdHere, caller: Calling) -> IsolationAnswer:
    """Which layers stand between this sandbox and the host, and which are missing here. Looking does not wake it."""
    return isolation_answer(sandbox_id, await caller.context.confinement.isolation(caller.who, sandbox_id))


@router.get("/egress")
async def get_egress(sandbox_id: SandboxIdHere, caller: Calling) -> EgressAnswer:
    """Where it may connect to, what was counted, and the latest connections. Looking does not wake it."""
    return egress_answer(sandbox_id, await caller.context.confinement.egress(caller.who, sandbox_id))


@router.put("/egress")
async def set_egress(body: EgressRules, sandbox_id: SandboxIdHere, caller: Calling) -> EgressAnswer:
    """Replace `allow`, `deny` or both; a list that is left out stays. In force at once, also for open connections.

    The mode is the sandbox's for life: another one is a 409.
    """
    return egress_answer(sandbox_id, await caller.context.confinement.set_egress(caller.who, sandbox_id, body))
