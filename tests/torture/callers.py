"""What callers do over HTTP: each move happens once, is audited once, and is told as it is.

The server that serves them is struck; who was not answered asks again, at another server if need be: with an
idempotency key the same again, else after a look.
"""

from __future__ import annotations

from functools import partial
from uuid import uuid4

from tests.torture import oracles
from tests.torture.caller_sessions import CallerSession, Reply, caller_session
from tests.torture.client_strikes import GONE_SECONDS, all_end
from tests.torture.crash import Run
from tests.torture.held_jobs import PAUSED, resume_all
from tests.torture.lane import NUMBERS, Lane
from tests.torture.operator_actions import PAUSED_SCENARIO, PAUSES, Act
from tests.torture.scenarios import AGAIN, PLAIN, SCENARIOS, Scenario, fail_for_retry

PLAIN_SCENARIO = Scenario(
    "plain", PLAIN, "completed", {"first": "completed", "last": "completed"}, {"first": 1, "last": 1}
)
QUESTION = f"""
workflow_id: question
nodes:
  ask: {{type: approval, approval: {{message: "Go on?"}}, next: last}}
  last: {{handler: step, {AGAIN}, next: END}}
"""
EDITION = f"""
workflow_id: %s
nodes:
  last: {{handler: step, {AGAIN}, next: END}}
"""
NEVER = """
workflow_id: never
nodes:
  ask: {type: approval, approval: {message: "Go on?"}}
"""


def _mark() -> str:
    return f"mark_{next(NUMBERS)}"


async def _jobs(lane: Lane, mark: str) -> list[str]:
    query = "select id::text from cograil.jobs where correlation_id = %(mark)s order by id"
    return [job_id for (job_id,) in await lane.lab.rows(query, mark=mark)]


# -- submits -----------------------------------------------------------------------------------------


async def _submit(lane: Lane, run: Run) -> None:
    """Without a key: who was not told looks, and there is one job or none."""
    mark = _mark()
    await lane.publish(PLAIN)
    async with caller_session(lane, run, mark, partial(oracles.unaudited, lane, mark, "submit")) as session:
        body = {"workflow_id": "plain", "correlation_id": mark}
        reply = await session.ask("/jobs", body, is_safe=False)
        if reply.status == 0 and not await _jobs(lane, mark):
            reply = await session.ask("/jobs", body)
    await _one_job(lane, run, session, reply, mark, most=_most(run))


async def _submit_once(lane: Lane, run: Run, *, has_key: bool = True) -> None:
    """With a key: asked as often as need be, there is one job, and it is the one that everybody is told."""
    mark = _mark()
    await lane.publish(PLAIN)
    look = partial(oracles.unaudited, lane, mark, "submit")
    async with caller_session(lane, run, mark, look, has_key=has_key, is_from_the_start=True) as session:
        body = {"workflow_id": "plain", "correlation_id": mark}
        reply = await session.ask("/jobs", body, idempotency_key=mark)
        again = await session.ask("/jobs", body, idempotency_key=mark)
    if (again.status, again.body) != (200, reply.body):
        run.violations.append(f"the caller was told {reply}, and then {again}")
    await _one_job(lane, run, session, reply, mark)


async def _submit_request(lane: Lane, run: Run) -> None:
    """Under the id of a request and a key, as a gateway does: one job, by either of them."""
    mark, request = _mark(), str(uuid4())
    await lane.publish(PLAIN)
    body = {"workflow_id": "plain", "request_id": request, "submitted_by": "torture"}
    async with caller_session(
        lane, run, mark, partial(oracles.unaudited, lane, mark, "submit", request)
    ) as session:
        reply = await session.ask("/submit", body, idempotency_key=mark)
        again = await session.ask("/submit", body)
    if (again.status, again.body) != (200, reply.body):
        run.violations.append(f"the caller was told {reply}, and then {again}")
    await _one_job(lane, run, session, reply, mark, request)


def _most(run: Run) -> int:
    """Who asks again without a key gets it twice when the server that was silent does its work after all."""
    return 2 if run.fault is not None and run.fault.mode == "stop" else 1


async def _one_job(
    lane: Lane,
    run: Run,
    session: CallerSession,
    reply: Reply,
    mark: str,
    correlation: str | None = None,
    most: int = 1,
) -> None:
    """There is one, it is the one of which everybody was told, and it ends."""
    jobs = await _jobs(lane, correlation or mark)
    told_jobs = _told(session, reply)
    if not (1 <= len(jobs) <= most and told_jobs <= set(jobs)) or len(jobs) > max(1, len(told_jobs)):
        run.violations.append(f"the callers were told {told_jobs or reply}, but there is {jobs}")
    run.violations += await oracles.unaudited(lane, mark, "submit", correlation)
    await all_end(lane, run, PLAIN_SCENARIO, jobs)


def _told(session: CallerSession, reply: Reply) -> set[str]:
    """The jobs of which the caller was told, also by a server that had been silent until then."""
    told_jobs = {reply.body["job_id"]} if reply.status in (200, 202) else set()
    return told_jobs | {answer.body["job_id"] for answer in session.late if answer.status in (200, 202)}


async def _submit_many(lane: Lane, run: Run) -> None:
    """Two with keys and two without: the latter are there together or not at all, the others once each."""
    mark = _mark()
    await lane.publish(PLAIN)
    plain = {"workflow_id": "plain", "correlation_id": mark, "labels": {"kind": "plain"}}
    keyed = [plain | {"labels": {"kind": "keyed"}, "idempotency_key": f"{mark}-{n}"} for n in range(2)]
    async with caller_session(lane, run, mark, partial(oracles.unaudited, lane, mark, "submit")) as session:
        reply = await session.ask("/jobs/batch", {"jobs": [plain, *keyed, plain]}, is_safe=False)
        if reply.status == 0:
            rest = [] if await _count(lane, mark, "plain") else [plain, plain]
            reply = await session.ask("/jobs/batch", {"jobs": [*keyed, *rest]})
        if not all(submission["status"] in (200, 202) for submission in reply.body["results"]):
            run.violations.append(f"the caller was told {reply}")
    counts = [await _count(lane, mark, kind) for kind in ("plain", "keyed")]
    if counts not in ([2, 2], [2 * _most(run), 2]):
        run.violations.append(f"there are {counts} of two and two")
    run.violations += await oracles.unaudited(lane, mark, "submit")
    await all_end(lane, run, PLAIN_SCENARIO, await _jobs(lane, mark))


async def _count(lane: Lane, mark: str, kind: str) -> int:
    query = (
        "select count(*) from cograil.jobs where correlation_id = %(mark)s and labels ->> 'kind' = %(kind)s"
    )
    return int((await lane.lab.rows(query, mark=mark, kind=kind))[0][0])


# -- deeds -------------------------------------------------------------------------------------------


async def _cancel(lane: Lane, run: Run) -> None:
    """Asked again, it had ended before: it is cancelled once."""
    mark = _mark()
    job = await lane.submit(NEVER, mark=mark)
    async with caller_session(lane, run, mark, partial(oracles.unaudited, lane, mark, "cancel")) as session:
        reply = await session.ask(f"/jobs/{job}/cancel", {"reason": "enough"})
    if reply.status != 200 and (reply.status, reply.times > 1) != (409, True):
        run.violations.append(f"the caller was told {reply}")
    await all_end(lane, run, Scenario("never", NEVER, "cancelled", {"ask": "cancelled"}, {}), [job])
    run.violations += await oracles.unaudited(lane, mark, "cancel")


async def _retry(lane: Lane, run: Run) -> None:
    """A new job for a failed one, if there is none yet."""
    scenario = SCENARIOS["retry"]
    failed = await fail_for_retry(lane, scenario)
    mark = str((await lane.lab.job(failed))["correlation_id"])
    query = "select id::text from cograil.jobs where retry_of = %(job)s"
    async with caller_session(lane, run, mark, partial(oracles.unaudited, lane, mark, "retry")) as session:
        reply = await session.ask(f"/jobs/{failed}/retry", is_safe=False)
        if reply.status == 0 and not await lane.lab.rows(query, job=failed):
            reply = await session.ask(f"/jobs/{failed}/retry")
    retries = [job_id for (job_id,) in await lane.lab.rows(query, job=failed)]
    told_jobs = _told(session, reply)
    if not (1 <= len(retries) <= _most(run) and told_jobs <= set(retries)) or len(retries) > max(
        1, len(told_jobs)
    ):
        run.violations.append(f"the caller was told {told_jobs or reply}, but there is {retries}")
    run.violations += await oracles.unaudited(lane, mark, "retry")
    await all_end(lane, run, scenario, retries)


async def _answer(lane: Lane, run: Run) -> None:
    """Asked again, it was answered: once, and by whom the log says."""
    mark = _mark()
    job = await lane.submit(QUESTION, mark=mark)
    query = "select 1 from cograil.nodes where job_id = %(job)s and status = 'waiting'"
    await lane.until(query, GONE_SECONDS, job=job)
    async with caller_session(
        lane, run, mark, partial(oracles.unaudited, lane, mark, "signal approve")
    ) as session:
        reply = await session.ask(f"/jobs/{job}/approve")
    is_late = reply.times > 1 and reply.status in (409, 422)
    if reply.status != 200 and not is_late:
        run.violations.append(f"the caller was told {reply}")
    nodes = {"ask": "completed", "last": "completed"}
    await all_end(lane, run, Scenario("question", QUESTION, "completed", nodes, {"last": 1}), [job])
    run.violations += await oracles.unaudited(lane, mark, "signal approve")


async def _hold(verb: str, lane: Lane, run: Run) -> None:
    """Pause or resume a job, its queue and its workflow: the log always says which of them is paused."""
    mark = _mark()
    job = await lane.submit(PAUSED, is_gated=True, mark=mark)
    await lane.until(SLOW_RUNS, GONE_SECONDS, job=job)
    names = {"job": job, "queue": "halting", "workflow": "paused"}
    before = 1 if verb == "resume" else 0
    if before:
        async with lane.lab.db.transaction("test") as tx:
            for kind, name in names.items():
                await PAUSES[kind](tx, name)

    async def look() -> list[str]:
        return await oracles.wrong_pauses(lane, mark, names, before)

    try:
        async with caller_session(lane, run, mark, look) as session:
            for kind, name in names.items():
                reply = await session.ask(f"/{kind}s/{name}/{verb}")
                if reply.status != 200 and (reply.status, reply.times > 1) != (409, True):
                    run.violations.append(f"{verb} {kind}: the caller was told {reply}")
        run.violations += await look()
    finally:
        await resume_all(lane, job)
        await lane.set_gate(job, is_closed=False)
    await all_end(lane, run, PAUSED_SCENARIO, [job])


SLOW_RUNS = "select 1 from torture.effects where job = %(job)s and node = 'slow'"


async def _publish(lane: Lane, run: Run) -> None:
    """There is one such version, and it was audited once, however often it was asked for."""
    mark = _mark()
    text = EDITION % mark
    async with caller_session(lane, run, mark, partial(oracles.unaudited, lane, mark, "publish")) as session:
        reply = await session.ask("/workflows", {"source": text})
    if reply.status not in (200, 201):
        run.violations.append(f"the caller was told {reply}")
    run.violations += await oracles.unaudited(lane, mark, "publish")
    query = "select source from cograil.workflows where workflow_id = %(mark)s"
    if (published := await lane.lab.rows(query, mark=mark)) != [(text,)]:
        run.violations.append(f"published is {published}")
    lane.known.add(text)
    job = await lane.submit(text)
    await all_end(lane, run, Scenario(mark, text, "completed", {"last": "completed"}, {"last": 1}), [job])


# -- containers --------------------------------------------------------------------------------------

# At any moment: every container job has its job, and it has ended if and only if its exit was told, once.
WRONG_CONTAINERS = """
select coalesce(c.id, j.labels ->> 'container_job'), j.status, c.status,
       (select count(*) from cograil.outbox o where o.job_id = j.id and o.type = 'orchestrator.job.exit')
from cograil.jobs j full join cograil_containers.container_jobs c on c.job_id = j.id
where coalesce(c.id, j.labels ->> 'container_job') = %(name)s
  and (j.id is null or c.id is null or (j.status = 'cancelled') <> (c.status is not distinct from 'cancelled')
       or (c.settled_at is not null)::int <> (
         select count(*) from cograil.outbox o where o.job_id = j.id and o.type = 'orchestrator.job.exit'))
"""


# The relays of other scenarios have nobody to tell it.
TAKE_AWAY = """
delete from cograil.outbox where job_id in (select job_id from cograil_containers.container_jobs where id = %(name)s)
"""


async def _run_container(lane: Lane, run: Run) -> None:
    """Ask for a container, then for its end; who asks again is told that it is there, or gone."""
    mark = _mark()

    async def look() -> list[str]:
        return [f"wrong: {row}" for row in await lane.lab.rows(WRONG_CONTAINERS, name=mark)]

    async with caller_session(lane, run, mark, look) as session:
        body = {"id": mark, "image": "nobody/runs:it", "callback": {"url": "https://nobody.example/"}}
        made = await session.ask("/v1/jobs", body)
        if made.status != 202 and (made.status, made.times > 1) != (409, True):
            run.violations.append(f"the caller was told {made}")
        ended = await session.ask(f"/v1/jobs/{mark}", method="DELETE")
        if ended.status != 204:
            run.violations.append(f"the caller was told {ended}")
    run.violations += await look()
    statuses = await lane.lab.rows(
        "select status from cograil_containers.container_jobs where id = %(name)s", name=mark
    )
    if statuses != [("cancelled",)]:
        run.violations.append(f"there is {statuses}")
    await lane.lab.rows(TAKE_AWAY, name=mark)


# -- whom to tell ------------------------------------------------------------------------------------


async def _subscribe(lane: Lane, run: Run) -> None:
    """Subscribe, send again, enable, change the secret, unsubscribe: each as the log says, and no more."""
    mark = _mark()
    url = f"http://127.0.0.1:9/{mark}"

    async def look() -> list[str]:
        return await oracles.wrong_subscriptions(lane, mark, url)

    async with caller_session(lane, run, mark, look) as session:
        reply = await session.ask("/subscriptions", {"url": url, "workflow_id": mark}, is_safe=False)
        if reply.status == 0 and not await lane.lab.rows(FIND_SUBSCRIPTION, url=url):
            await session.ask("/subscriptions", {"url": url, "workflow_id": mark})
        ((name,),) = await lane.lab.rows(FIND_SUBSCRIPTION, url=url)
        delivery = await _dead_letter(lane, name, url)
        for path, method in (
            (f"/deliveries/{delivery}/resend", "POST"),
            (f"/subscriptions/{name}/enable", "POST"),
            (f"/subscriptions/{name}/rotate", "POST"),
            (f"/subscriptions/{name}", "DELETE"),
        ):
            reply = await session.ask(path, method=method)
            if reply.status != 200 and not (reply.status in (404, 409) and reply.times > 1):
                run.violations.append(f"{method} {path}: the caller was told {reply}")
    run.violations += await look()
    if len(await lane.lab.rows(FIND_SUBSCRIPTION, url=url)) >= _most(run):
        run.violations.append("the subscription is still there")


FIND_SUBSCRIPTION = "select id::text from cograil.subscriptions where url = %(url)s"


async def _dead_letter(lane: Lane, name: str, url: str) -> str:
    """As if its receiver had said that it is gone: the subscription is disabled, a delivery to it is dead."""
    await lane.lab.rows(DISABLE, url=url)
    return str((await lane.lab.rows(DEAD_LETTER, name=name, url=url))[0][0])


DISABLE = "update cograil.subscriptions set disabled_at = now(), disabled_reason = 'gone' where url = %(url)s"
DEAD_LETTER = """
insert into cograil.deliveries (id, type, destination, origin, url, sending, body, seq, state, ended_at)
values (gen_random_uuid(), 'torture.letter', %(name)s, 'http://127.0.0.1:9', %(url)s, '{}', '{}', 0,
        'dead', now())
returning id::text
"""

CALLERS: dict[str, Act] = {
    "door_submit": _submit,
    "door_submit_once": _submit_once,
    "door_submit_unguarded": partial(_submit_once, has_key=False),
    "door_submit_request": _submit_request,
    "door_submit_many": _submit_many,
    "door_cancel": _cancel,
    "door_retry": _retry,
    "door_answer": _answer,
    "door_pause": partial(_hold, "pause"),
    "door_resume": partial(_hold, "resume"),
    "door_publish": _publish,
    "door_subscribe": _subscribe,
    "door_container": _run_container,
}
