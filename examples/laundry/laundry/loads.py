"""A load and its job: both are made in one transaction, and both end in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cograil.plugins import Context, EngineContext, Transaction, counter, new_id, statement, submit_app_job

ADD_LOAD = statement("add_load", package="laundry")
LIST_LOADS = statement("list_loads", package="laundry")
WASHED = "update cograil_laundry.loads set washed_at = now() where id = %s"

WORKFLOW_ID = "cograil.laundry"
WORKFLOW = """\
workflow_id: cograil.laundry
name: Wash a load
inputs:
  load: {type: string}
  soap: {type: string}
nodes:
  wash:
    handler: laundry.wash
    params: {load: "{{ inputs.load }}", soap: "{{ inputs.soap }}"}
"""

loads_washed = counter("laundry_loads_washed", "Loads washed by this worker, by soap.", "soap")


class Load(NamedTuple):
    """A load, its soap and its job."""

    id: str
    soap: str
    job_id: str
    is_washed: bool


async def bring_load(
    tx: Transaction, engine_context: EngineContext, soap: str, tenant: str = "default"
) -> Load:
    """Record a load and start the job that washes it."""
    load_id = new_id()
    job_id = await submit_app_job(
        tx, engine_context, "laundry", WORKFLOW, {"load": load_id, "soap": soap}, tenant
    )
    await tx.execute(ADD_LOAD, id=load_id, tenant=tenant, soap=soap, job=job_id)
    return Load(load_id, soap, job_id, is_washed=False)


async def list_loads(tx: Transaction, tenant: str = "default") -> list[Load]:
    """Return the newest loads of this tenant."""
    return [Load(*row) for row in await tx.fetch(LIST_LOADS, tenant=tenant)]


async def wash(ctx: Context, load: str, soap: str) -> dict[str, Any]:
    """Wash a load; the mark on its row commits together with the result of the task."""
    loads_washed.labels(soap).inc()
    async with ctx.transaction() as tx:
        await tx.execute(WASHED, [load])
        return {"load": load, "soap": soap}


def handlers() -> Mapping[str, Callable[..., Any]]:
    """The handlers of this app."""
    return {"laundry.wash": wash}


def workflows() -> Mapping[str, str]:
    """The workflows of this app."""
    return {WORKFLOW_ID: WORKFLOW}
