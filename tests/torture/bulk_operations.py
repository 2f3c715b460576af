"""Operations on many jobs: each job is taken once, whichever process dies over it."""

from __future__ import annotations

from tests.torture.child_jobs import FAMILY, MIDDLE, publish_families, see_family
from tests.torture.forked_processes import Child
from tests.torture.lane import NUMBERS, Lane
from tests.torture.scenarios import AGAIN, Scenario
from tests.torture.sql_submissions import submit_from_sql

from cograil.verbs.bulk import JobFilter, begin_bulk
from cograil.verbs.pause import pause_workflow, resume_workflow

# Waits for nobody but the one who cancels it, and leaves a place under a limit then.
WAITING = """
workflow_id: waiting
limits: {concurrency: 50}
nodes:
  ask: {type: approval, approval: {message: "Go on?"}}
"""

# Under a limit, and failed until it is mended; the new job keeps its first node.
FRAGILE = f"""
workflow_id: frail
limits: {{concurrency: 50}}
nodes:
  first: {{handler: step, {AGAIN}, next: wrong}}
  wrong: {{handler: fragile, params: {{item: 1}}, {AGAIN}}}
"""

# The same with children: one that fails until it is mended, and one that ends as it is born, which did not
# begin while its workflow was paused.
FRAGILE_PARENT = f"""
workflow_id: frail_parent
fail_fast: true
nodes:
  first: {{handler: step, {AGAIN}, next: [inside, once]}}
  inside: {{type: subworkflow, retry: {{max_attempts: 1}}, subworkflow: {{workflow_id: frail}}}}
  once: {{type: subworkflow, retry: {{max_attempts: 1}}, subworkflow: {{workflow_id: moment}}}}
"""


async def several_running(lane: Lane) -> str:
    """Four jobs that can be cancelled, of one mark, and no orchestrator.

    Of one of them reports wait; another, from SQL, nobody has opened.
    """
    await publish_families(lane)
    mark = f"mark-{next(NUMBERS)}"
    await lane.help_with("orchestrator", "worker")
    lane.beside += [await lane.submit(WAITING, mark=mark) for _ in range(2)]
    middle = await lane.submit(MIDDLE, is_gated=True, mark=mark)
    lane.beside.append(middle)
    await ripen(lane, middle)
    lane.beside.append(await submit_from_sql(lane, "waiting", mark))
    return mark


async def ripen(lane: Lane, middle: str) -> None:
    """Everything of it runs, waits or has failed; then the orchestrator goes, and then reports come."""
    await lane.until(RIPE, lane.watchdog_seconds, job=middle)
    await lane.help_with("worker")
    await lane.open_family(middle)
    query = "select 1 from cograil.inbox where job_id = %(job)s and kind = 'report' having count(*) = 2"
    await lane.until(query, lane.watchdog_seconds, job=middle)


RIPE = f"""{FAMILY}
select 1 where
  (select count(*) from torture.effects where job = %(job)s and node like 'split%%') = 2
  and exists (select 1 from torture.effects e join cograil.jobs j on j.id = e.job
              where j.workflow_id = 'leaf' and j.id in (select id from family))
  and (select count(*) from cograil.nodes where job_id = %(job)s
       and (node_id, status) in (('ask', 'waiting'), ('wrong', 'failed'))) = 2
"""


async def several_failed(lane: Lane) -> str:
    """Two jobs that have failed and would succeed now, of one mark."""
    mark = f"mark-{next(NUMBERS)}"
    await publish_families(lane)
    async with lane.lab.db.transaction("pause") as tx:
        await pause_workflow(tx, "moment")
    lane.beside += [await lane.submit(text, mark=mark) for text in (FRAGILE, FRAGILE_PARENT)]
    await lane.help_with("orchestrator", "worker")
    for other in lane.beside:
        await lane.ended(other)
    async with lane.lab.db.transaction("resume") as tx:
        await resume_workflow(tx, "moment")
    await lane.lab.rows("insert into torture.mended values (%(mark)s)", mark=mark)
    return mark


async def _cancel_many(lane: Lane, scenario: Scenario) -> str:
    mark = await several_running(lane)
    await lane.help_with()
    return await begin(lane, "cancel", mark)


async def _retry_many(lane: Lane, scenario: Scenario) -> str:
    mark = await several_failed(lane)
    await lane.help_with()
    return await begin(lane, "retry", mark)


async def begin(lane: Lane, verb: str, mark: str) -> str:
    """Ask for it."""
    async with lane.lab.db.transaction("bulk") as tx:
        return await begin_bulk(
            tx, lane.lab.engine_context, verb, JobFilter(correlation_id=mark), by="torture"
        )


async def _orchestrate_afterwards(lane: Lane, job: str, victim: Child) -> None:
    """Nobody else takes the reports before the operation is through, or its worker was struck: it may be dead
    or silent, or the attempt has failed, and who lives on waits for an orchestrator then.
    """
    query = "select 1 from cograil.bulk_operations where job_id = %(job)s and finished_at is not null"
    while not (victim.stopped.is_set() or victim.ended.is_set() or victim.is_struck):
        if await lane.until(query, 0.02, job=job):
            break
    await lane.help_with("orchestrator")


async def see_cancelled(lane: Lane, job: str) -> list[str]:
    """Every job was cancelled once, as the operation says, and their children with them."""
    violations = await _wrong_counts(lane, job)
    for other in lane.beside:
        times = (await lane.lab.event_types(other)).count("job_cancelled")
        if times != 1:
            violations.append(f"{other} was cancelled {times} times")
        violations += await see_family(lane, other)
    return violations


async def see_retried(lane: Lane, job: str) -> list[str]:
    """Every job was retried once, as the operation says, and the new jobs end well."""
    violations = await _wrong_counts(lane, job)
    for other in lane.beside:
        violations += await see_family(lane, other)
        query = "select status from cograil.jobs where retry_of = %(job)s"
        new = await lane.lab.rows(query, job=other)
        if new != [("completed",)]:
            violations.append(f"{other} was retried as {new}")
    return violations


async def _wrong_counts(lane: Lane, job: str) -> list[str]:
    columns = "total, done, failed, skipped, reasons::text"
    query = f"select {columns} from cograil.bulk_operations where job_id = %(job)s"
    ((total, done, failed, skipped, reasons),) = await lane.lab.rows(query, job=job)
    if (total, done, failed, skipped) == (len(lane.beside), len(lane.beside), 0, 0):
        return []
    return [f"of {total} jobs {done} are done, {failed} failed, {skipped} skipped: {reasons}"]


BULK_OPERATIONS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "cancel_many",
            "",
            "completed",
            {"step": "completed"},
            {},
            roles=("worker",),
            begin=_cancel_many,
            meddle=_orchestrate_afterwards,
            look=see_cancelled,
        ),
        Scenario(
            "retry_many",
            "",
            "completed",
            {"step": "completed"},
            {},
            roles=("worker",),
            begin=_retry_many,
            meddle=_orchestrate_afterwards,
            look=see_retried,
        ),
    )
}
