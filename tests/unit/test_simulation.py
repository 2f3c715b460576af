"""Orchestrators and workers under crashes, pauses and lost messages, on virtual time.

Every run prints how many seeds it did in a second; `make torture` does many more of them. A seed that
fails is run again alone by `Simulation(seed).run()`.
"""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import Any

import pytest
from tests.support.simulation import clients
from tests.support.simulation.rows import Violation
from tests.support.simulation.simulator import Simulation, print_rate, run_all

from cograil.engine import approvals, attempts, timers
from cograil.engine.working_copy import WorkingCopy
from cograil.model.job import Lost, NodeState, NodeWrite, Reported, Started
from cograil.model.workflow import WorkflowNode

SEEDS = 5000
CAUGHT_WITHIN = 3000


def first_violation(
    *mutants: str, saying: str = "", echoes: bool = False, within: int = CAUGHT_WITHIN
) -> str:
    """What the first seed that notices has to say; those that say something else are passed over."""
    for seed in itertools.islice(itertools.count(), within):
        try:
            Simulation(seed, mutants, echoes=echoes).run()
        except Violation as violation:
            if saying in str(violation):
                return str(violation)
    return "nothing"


@pytest.mark.parametrize("half", [0, 1])
def test_jobs_end_and_nothing_runs_or_is_recorded_twice(half: int) -> None:
    with print_rate(SEEDS // 2):
        run_all(range(half, SEEDS, 2))


def test_the_same_seed_gives_the_same_history() -> None:
    def history(seed: int) -> list[object]:
        run = Simulation(seed)
        run.run()
        return [(event.seq, event.type, event.data) for rows in run.db.jobs for event in rows.events]

    assert all(history(seed) == history(seed) for seed in range(50))


def test_news_that_come_twice_count_once() -> None:
    run_all(range(1000), echoes=True)


# -- the simulation has teeth: each mechanism that is left out is noticed ---------------------------


def test_simulation_notices_a_report_without_a_fence() -> None:
    assert "the report of a replaced worker never counts" in first_violation("no fence")


def test_simulation_notices_an_inbox_taken_before_the_tasks_are_revoked() -> None:
    violation = first_violation("take before revoke")
    assert "a success is never lost" in violation or "what was accepted is recorded once" in violation


def test_simulation_notices_a_task_that_stays_after_its_report() -> None:
    violation = "nothing runs again after its success"
    assert violation in first_violation("kept after report", saying=violation)


def test_simulation_notices_an_attempt_that_is_released_and_keeps_its_number() -> None:
    assert "an attempt number is handed to one worker" in first_violation("kept number")


def test_simulation_notices_two_writers_of_one_job() -> None:
    violation = "events are numbered without gaps"
    assert violation in first_violation("no lock", saying=violation)


def test_simulation_notices_a_job_that_its_last_task_ends_under_another_writer() -> None:
    violation = "events are numbered without gaps"
    assert violation in first_violation("ends what is locked", saying=violation)


def test_simulation_notices_a_job_that_is_never_woken() -> None:
    assert "every job ends" in first_violation("no wake")


def test_simulation_notices_a_job_that_is_cut_short_while_its_tasks_are_out() -> None:
    assert "an ended job has no tasks" in first_violation("cut without revoking")


def test_simulation_notices_bystanders_that_are_failed_as_poison() -> None:
    """One seed in 1,500 has a killer and a bystander that meet often enough."""
    noticed = first_violation("none alone", within=20_000)
    assert "a task that never kills is never failed as poison" in noticed


def test_simulation_notices_children_that_outlive_their_parent() -> None:
    assert "an open child of an ended job was told to stop" in first_violation("no cancel of children")


def test_simulation_notices_parents_that_never_hear_of_their_children() -> None:
    assert "a waiting node has one living child, or its news" in first_violation("parents not told")


def test_simulation_notices_a_limit_that_counts_only_running_tasks() -> None:
    assert "no more at once than allowed" in first_violation("ready not counted")


def test_simulation_notices_limits_that_two_look_at_together() -> None:
    violation = first_violation("no limit lock")
    assert "no more at once than allowed" in violation or "than the rate allows" in violation


def test_simulation_notices_places_that_cancelled_jobs_keep() -> None:
    assert "every job ends" in first_violation("cancelled counted")


def test_simulation_notices_a_rate_that_forgets_what_it_gave() -> None:
    assert "no more in a span of time than the rate allows" in first_violation("tokens not kept")


def test_simulation_notices_a_lease_that_is_taken_over_with_the_old_fence() -> None:
    violation = first_violation("fence not raised")
    assert "the act of a replaced holder is refused" in violation or "only who holds the lease" in violation


def test_simulation_notices_writes_under_a_lease_that_is_over() -> None:
    assert "only who holds the lease writes under it" in first_violation("no lease check")


def test_simulation_notices_slots_that_are_given_out_twice() -> None:
    violation = first_violation("slot taken over")
    assert "nobody is replaced before" in violation or "no more slots than allowed" in violation


def test_simulation_notices_held_jobs_that_keep_everybody_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    def wake_at(job: WorkingCopy) -> datetime | None:
        begins_at = job.state.not_before
        return begins_at if job.status == "pending" and begins_at is not None else plain(job)

    plain = timers.wake_at
    monkeypatch.setattr(timers, "wake_at", wake_at)
    assert "every job ends" in (violation := first_violation()) or "circles" in violation


def test_simulation_notices_an_approval_that_is_decided_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_open(node: WorkflowNode, state: NodeState | None, now: datetime) -> bool:
        return state is not None and state.status in ("waiting", "completed")

    def complete(job: WorkingCopy, write: NodeWrite, *more: Any) -> None:
        if write.state.status != "completed":
            plain(job, write, *more)

    plain = WorkingCopy.complete
    monkeypatch.setattr(WorkingCopy, "complete", complete)
    monkeypatch.setattr(approvals, "is_open", is_open)
    monkeypatch.setattr(clients, "is_open", is_open)
    assert "an approval is decided once" in first_violation()


def test_simulation_notices_news_of_old_attempts_that_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def current(job: WorkingCopy, news: Reported | Lost | Started) -> NodeWrite | None:
        state = job.find(news.node_id)
        if state is None or state.status not in attempts.ACTIVE:
            return None
        return job.row(news.node_id)

    monkeypatch.setattr(attempts, "_current", current)
    assert "seed" in first_violation(echoes=True)


def test_simulation_notices_a_success_that_is_handed_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = WorkingCopy.complete

    def forgetful(
        job: WorkingCopy, write: NodeWrite, output: bytes | None, task_id: int | None = None, *more: Any
    ) -> None:
        if task_id is None or write.state.attempt > 1:
            complete(job, write, output, task_id, *more)
        else:
            attempts._schedule_retry(job, write, {"code": "x", "message": "x"}, task_id, seconds=0.0)

    monkeypatch.setattr(WorkingCopy, "complete", forgetful)
    violation = "nothing is handed out after its success"
    assert violation in first_violation(saying=violation)
