"""Orchestrators and workers under crashes, pauses and lost messages, on virtual time.

Every run prints how many seeds it did in a second; `make torture` does many more of them. A seed that
fails is run again alone by `Simulation(seed).run()`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
from simulated_rows import Violation
from simulation import Simulation

from cograil.engine import attempts
from cograil.engine.board import Board
from cograil.model.job import Lost, NodeWrite, Reported, Started

SEEDS = 5000
CAUGHT_WITHIN = 3000


@contextmanager
def measured(count: int) -> Iterator[None]:
    """Print the rate, by the time that this process really had."""
    began = time.process_time()
    yield
    print(f"{count} seeds, {count / (time.process_time() - began):.0f} a second")


def run_all(seeds: Iterable[int], *, echoes: bool = False) -> None:
    for seed in seeds:
        Simulation(seed, echoes=echoes).run()


def first_violation(*mutants: str, echoes: bool = False) -> str:
    """What the first seed that notices has to say."""
    for seed in itertools.islice(itertools.count(), CAUGHT_WITHIN):
        try:
            Simulation(seed, mutants, echoes=echoes).run()
        except Violation as violation:
            return str(violation)
    return "nothing"


@pytest.mark.parametrize("half", [0, 1])
def test_jobs_end_and_nothing_runs_or_is_recorded_twice(half: int) -> None:
    with measured(SEEDS // 2):
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


def test_it_notices_a_report_without_a_fence() -> None:
    assert "the report of a replaced worker never counts" in first_violation("no fence")


def test_it_notices_an_inbox_taken_before_the_tasks_are_revoked() -> None:
    violation = first_violation("take before revoke")
    assert "a success is never lost" in violation or "what was accepted is recorded once" in violation


def test_it_notices_a_task_that_stays_after_its_report() -> None:
    assert "nothing runs again after its success" in first_violation("kept after report")


def test_it_notices_two_writers_of_one_job() -> None:
    assert "events are numbered without gaps" in first_violation("no lock")


def test_it_notices_a_job_that_is_never_woken() -> None:
    assert "every job ends" in first_violation("no wake")


def test_it_notices_news_of_old_attempts_that_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def current(board: Board, news: Reported | Lost | Started) -> NodeWrite | None:
        state = board.find(news.node_id)
        if state is None or state.status not in attempts.ACTIVE:
            return None
        return board.edit(news.node_id)

    monkeypatch.setattr(attempts, "_current", current)
    assert "seed" in first_violation(echoes=True)


def test_it_notices_a_success_that_is_handed_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = Board.complete

    def forgetful(board: Board, write: NodeWrite, output: bytes | None, task_id: int | None = None) -> None:
        if task_id is None or write.state.attempt > 1:
            complete(board, write, output, task_id)
        else:
            attempts._back_to_ready(board, write, {"code": "x", "message": "x"}, task_id, seconds=0.0)

    monkeypatch.setattr(Board, "complete", forgetful)
    assert "nothing is handed out after its success" in first_violation()
