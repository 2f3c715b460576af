"""`advance` against an independent model: whatever the workflow, the fates and the order of the news.

The examples are the same in every run; COGRAIL_EXAMPLES=6000 tries that many new ones.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.engine_model import Model
from tests.support.job_rows import T0
from tests.support.memory_job import Job
from tests.support.random_workflows import Case, Driver, cases

from cograil import engine
from cograil.definitions import load_workflow
from cograil.model.job import Outputs, RetryRequested
from cograil.model.states import JOB_TERMINAL, NODE_TERMINAL

randoms = st.integers(0, 2**32).map(Random)
EXAMPLES = os.environ.get("COGRAIL_EXAMPLES")
often = settings(
    max_examples=int(EXAMPLES or 120),
    derandomize=EXAMPLES is None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@often
@given(cases(), randoms)
def test_a_job_ends_as_the_model_says_whatever_the_order_of_the_news(case: Case, random: Random) -> None:
    expected = Model(case.document, case.inputs, case.fates).predict()
    job = Driver(case, random).run()
    assert job.statuses == expected.nodes
    assert job.status == expected.status
    assert Counter(name for name, _ in job.dispatched) == expected.attempts
    assert set(job.error["failed_nodes"] if job.error else ()) == expected.failures
    started = Counter(event.node_id for event in job.rows.events if event.type == "child_started")
    assert started == expected.jobs
    bad = Counter(event.node_id for event in job.rows.events if event.type == "task_failed")
    assert bad == expected.bad
    assert job.alone == expected.alone
    for name, indexes in expected.gathered.items():
        assert job.output(name) == {"results": [{"v": i} for i in indexes], "count": len(indexes)}


@often
@given(cases(), randoms)
def test_a_job_that_fails_fast_ends_at_its_first_failure_and_not_otherwise(
    case: Case, random: Random
) -> None:
    expected = Model(case.document, case.inputs, case.fates).predict()
    case.document["fail_fast"] = True
    job = Driver(case, random).run()
    assert job.status == expected.status
    assert set(job.error["failed_nodes"] if job.error else ()) <= expected.failures
    assert bool(job.error) == bool(expected.failures)
    for name, status in job.statuses.items():
        assert status in ("cancelled", expected.nodes[name])
    assert expected.failures or "cancelled" not in job.statuses.values()
    assert not job.tasks
    assert all(row.status in NODE_TERMINAL for row in job.rows.nodes.values())


@often
@given(cases(), randoms)
def test_the_last_event_is_the_end_and_nothing_stays_open(case: Case, random: Random) -> None:
    job = Driver(case, random).run()
    assert job.rows.events[-1].type in ("job_completed", "job_failed")
    assert all(row.status in NODE_TERMINAL for row in job.rows.nodes.values())
    assert not job.tasks
    assert not job.to_expand
    assert job.wakes_in() is None
    assert (job.result is not None) == (job.status == "completed")
    assert (job.error is not None) == (job.status == "failed")


@often
@given(cases(), randoms, st.integers(0, 5))
def test_a_cancel_at_any_moment_ends_the_job_with_nothing_open(
    case: Case, random: Random, steps: int
) -> None:
    driver = Driver(case, random)
    job = driver.job
    for _ in range(steps):
        if job.status not in JOB_TERMINAL:
            driver.step()
    if job.status in JOB_TERMINAL:
        return
    dispatched = len(job.dispatched)
    some = random.sample(sorted(job.tasks), random.randint(0, len(job.tasks)))
    job.cancel(*[news for name in some for news in driver.news_of(name)])
    assert job.status in JOB_TERMINAL
    assert all(job[name] in NODE_TERMINAL for name in job.workflow.nodes)
    assert all(row.status in NODE_TERMINAL for row in job.rows.nodes.values())
    assert len(job.dispatched) == dispatched
    assert not job.to_expand


@often
@given(cases(), randoms, st.sampled_from([0.5, 1, 2.5, 3, 5]))
def test_a_deadline_at_any_moment_ends_the_job_with_nothing_open(
    case: Case, random: Random, limit: float
) -> None:
    case.document["timeout_seconds"] = limit
    driver = Driver(case, random)
    job = driver.job
    while job.status not in JOB_TERMINAL:
        if random.random() < 0.3:
            job.sleep(random.choice([0.25, 1, limit]))
        else:
            driver.step()
        over = (job.now - T0).total_seconds() > limit
        assert job.status in JOB_TERMINAL or not over
    assert all(job[name] in NODE_TERMINAL for name in job.workflow.nodes)
    assert all(row.status in NODE_TERMINAL for row in job.rows.nodes.values())


@often
@given(cases(), randoms)
def test_old_news_change_nothing_but_are_recorded(case: Case, random: Random) -> None:
    driver = Driver(case, random)
    job = driver.job
    while job.status not in JOB_TERMINAL:
        driver.step()
        before = copy.deepcopy(job.rows.nodes), list(job.dispatched), job.status
        old = random.sample(driver.told, min(2, len(driver.told)))
        changes = engine.advance(
            job.workflow,
            job.rows.load(old, job.now),
            old,
            now=job.now,
            random=random.random,
            outputs=Outputs(),
            bounds=job.bounds,
        )
        assert {event.type for event in changes.events} <= {"warning"}
        assert not changes.tasks
        assert (job.rows.nodes, job.dispatched, job.status) == before


@often
@given(cases(), randoms)
def test_the_same_arguments_give_the_same_changes_and_stay_as_they_are(case: Case, random: Random) -> None:
    driver = Driver(case, random)
    job = driver.job
    plain = job.rows.decide

    def twice(news, now, random, bounds, **more):  # type: ignore[no-untyped-def]
        def advance(workflow, state, happenings, **rest):  # type: ignore[no-untyped-def]
            arguments = copy.deepcopy((state, happenings, rest["outputs"]))
            rest["random"] = lambda: 0.25
            first = engine.advance(workflow, state, happenings, **rest)
            assert (state, happenings, rest["outputs"]) == arguments
            assert engine.advance(workflow, state, happenings, **rest) == first
            return first

        return plain(news, now, random, bounds, advance, **more)

    job.rows.decide = twice  # type: ignore[method-assign, assignment]
    driver.run()


@often
@given(cases(), randoms)
def test_a_retry_by_hand_opens_what_was_given_up_and_then_all_goes_well(case: Case, random: Random) -> None:
    driver = Driver(case, random)
    job = driver.job
    retried = ""
    while job.status not in JOB_TERMINAL and not retried:
        retried = _worth_a_retry(driver, random)
        if not retried:
            driver.step()
    if not retried:
        return
    given_up = {name for name, row in job.rows.nodes.items() if _was_given_up(row)}
    driver.case.fates[retried] = []
    job.advance(RetryRequested(retried, "ann"))
    driver.seen = len(job.dispatched)
    opened = set(job.data("node_retry", retried)["reopened"])
    assert opened == given_up & _behind(job, retried.rsplit("__", 1)[0], given_up)
    driver.run()
    expected = Model(case.document, case.inputs, case.fates).predict()
    assert job.statuses == expected.nodes
    assert job.status == expected.status


def _was_given_up(row) -> bool:  # type: ignore[no-untyped-def]
    if row.status == "skipped":
        return bool(row.skip_reason == "upstream_failed")
    return bool(row.status == "failed" and row.error["code"] == "children_failed")


def _worth_a_retry(driver: Driver, random: Random) -> str:
    """A required node or child that a worker failed, if there is one."""
    rows = driver.job.rows.nodes.values()
    model = driver.model
    failed = [
        row.node_id
        for row in rows
        if row.status == "failed" and row.attempt > 0 and model.is_required(row.parent or row.node_id)
    ]
    return random.choice(failed) if failed else ""


def _behind(job: Job, name: str, through: set[str]) -> set[str]:
    """What follows a node, going only through nodes that were given up."""
    reached: set[str] = set()
    todo = list(job.workflow.nodes[name].successors)
    while todo:
        node_id = todo.pop()
        if node_id in through and node_id not in reached:
            reached.add(node_id)
            todo.extend(job.workflow.nodes[node_id].successors)
    return reached


@often
@given(cases())
def test_the_random_workflows_are_workflows(case: Case) -> None:
    assert set(load_workflow(case.document).nodes) == set(case.document["nodes"])
