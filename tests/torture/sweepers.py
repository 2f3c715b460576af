"""The sweeper of containers under crashes: how a job ended is written once, and told once with it."""

from __future__ import annotations

from pathlib import Path

from tests.torture.client_strikes import nothing, struck
from tests.torture.crash import Run
from tests.torture.lane import NUMBERS, Lane
from tests.torture.operator_actions import Act
from tests.torture.victims import sweep

from cograil.apps.containers import jobs
from cograil.apps.containers.jobs import ContainerCaller
from cograil.apps.containers.request import read_request
from cograil.verbs.cancel import cancel

KEPT_SECONDS = 900.0
ASKED = ContainerCaller("default", None, KEPT_SECONDS)
# At any moment: it is settled if and only if its exit was told, once.
UNEVEN = """
select c.id, c.status, (select count(*) from cograil.outbox o
                        where o.job_id = c.job_id and o.type = 'orchestrator.job.exit') as told
from cograil_containers.container_jobs c where c.id = any(%(names)s) and (c.settled_at is not null)::int <> (
  select count(*) from cograil.outbox o where o.job_id = c.job_id and o.type = 'orchestrator.job.exit')
"""
STATUS = "select id, status from cograil_containers.container_jobs where id = any(%(names)s) order by id"
LONG_AGO = """
update cograil_containers.container_jobs set settled_at = now() - interval '1 day', status = 'completed'
where id = %(name)s returning 1
"""
TAKE_AWAY = "delete from cograil.outbox where type like 'orchestrator.job.%%' returning 1"


async def _sweep(lane: Lane, run: Run) -> None:
    """Two unsettled container jobs, one to be forgotten: the process after the struck one does the rest."""
    number = next(NUMBERS)
    names = [f"left-{number}-a", f"left-{number}-b"]
    old = f"old-{number}"
    await lane.help_with()  # or the worker of another would be in the way
    for name in (*names, old):
        await _make_and_cancel(lane, name)
    await lane.lab.rows(LONG_AGO, name=old)
    place = Path(f"{lane.fork_server.directory}/sweeper-{number}")
    answer = await struck(lane, run, "sweep", str(place), meanwhile=nothing)
    await lane.help_with("orchestrator", "worker")
    run.violations += await _uneven(lane, names)
    if answer is not None and await _statuses(lane, [*names, old]) != [(name, "cancelled") for name in names]:
        run.violations.append(f"swept, and there are {await _statuses(lane, [*names, old])}")
    await sweep(lane.lab.db, lane.lab.settings, place)
    run.violations += await _uneven(lane, names)
    if (statuses := await _statuses(lane, [*names, old])) != [(name, "cancelled") for name in names]:
        run.violations.append(f"in the end there are {statuses}")
    await lane.lab.rows(TAKE_AWAY)


async def _make_and_cancel(lane: Lane, name: str) -> None:
    """Not by DELETE, which would settle it."""
    body = {"id": name, "image": "nobody/runs:it", "callback": {"url": "https://nobody.example/"}}
    async with lane.lab.db.transaction("test") as tx:
        job_id = await jobs.make(tx, lane.lab.engine_context, read_request(body), ASKED)
    async with lane.lab.db.transaction("test") as tx:
        await cancel(tx, lane.lab.engine_context, job_id, by="somebody", reason="")


async def _uneven(lane: Lane, names: list[str]) -> list[str]:
    return [f"uneven: {row}" for row in await lane.lab.rows(UNEVEN, names=names)]


async def _statuses(lane: Lane, names: list[str]) -> list[tuple[str, str]]:
    return [(name, status) for name, status in await lane.lab.rows(STATUS, names=names)]


SWEEPERS: dict[str, Act] = {"sweep": _sweep}
