"""No crash point is forgotten: what the source can reach is passed, and so struck, in some scenario."""

from __future__ import annotations

import re
from pathlib import Path

from tests.torture.enumeration import CLIENTS, PROCESSES, record_all
from tests.torture.lane import open_lanes
from tests.torture.reachable import reachable_points

from cograil.store.statements import all_statements, statement

LANES = 4
WRITES = re.compile(r"\b(insert|update|delete|merge|truncate)\b")

# Whoever dies there has changed nothing: they only read, which a test sees to.
ONLY_READ = {
    "explain": "`cograil explain`",
    "show": "`cograil show`, `list` and their like",
    "watch": "a client that waits for a job",
    "metrics": "/metrics",
    "probe": "/readyz",
}
# Verbs of the second issue. They have crash tests of their own where it says so, and no scenario yet.
NOT_YET = {
    "admit": "limits: nothing is counted, so nothing can be left behind (tests/database/test_limits.py)",
    "bulk": "struck at each of its points in tests/database/test_bulk.py",
    "handler": "ctx.transaction: killed at each of its points in tests/database/test_transactions.py",
    "identify": "one read before ctx.transaction",
    "pause": "one statement under the job's lock",
    "preview": "only reads",
    "resume": "one statement",
    "retention": "struck at each of its points in tests/database/test_retention.py",
    "signal": "approve and reject: as cancel does, under the job's lock",
    "steps": "ctx.step: one statement with the fence",
}
CHILDREN = {
    "cancel_children",
    "count_ancestors",
    "find_workflow",
    "hold_job",
    "link_children",
    "tell_parents",
}
EXCUSED = {
    "publish.list_processes": "only reads: the CLI warns of handlers that nobody has",
    "report.await_task": "asked after an unknown commit of ctx.transaction (test_transactions.py)",
    "submit.load_children_wake": "a job that is being made has no fan-out that is already open",
    "submit.load_outputs": "all it could read was completed in this very decision, and is at hand",
}
# Statements without a named transaction: the doctor's, those of `explain`, which only reads,
# the primitives, which run in their caller's transaction, and the report of ctx.transaction.
ELSEWHERE = re.compile(r"doctor_.*|explain_.*|report_here|status_of_jobs|\w+_(lease|record|slots?)")


def points_of_the_engine() -> set[str]:
    """Every point at which a process that writes may die."""
    return {point for point in reachable_points() if point.split(".")[0] not in ONLY_READ}


def is_not_yet_struck(point: str) -> bool:
    """Told honestly: these have no scenario. Children are passed in `children`, but not by every verb."""
    transaction, _, name = point.partition(".")
    return transaction in NOT_YET or name in CHILDREN


async def test_every_point_is_passed_in_a_scenario(postgres: str, template: str, tmp_path: Path) -> None:
    """`make torture` strikes every point that is passed. A new one needs a scenario, or a reason here."""
    async with open_lanes(postgres, template, tmp_path, LANES) as lanes:
        visits = await record_all(lanes, PROCESSES + CLIENTS)
    passed = {point for points in visits.values() for point in points}
    expected = points_of_the_engine()
    missing = expected - passed - EXCUSED.keys()
    assert {point for point in missing if not is_not_yet_struck(point)} == set(), "in no scenario"
    of_the_harness = {"retry.find_job_ids"}  # its client looks the job up in the same transaction
    assert passed - expected - of_the_harness == set(), "reachable.py does not see these"
    assert passed & EXCUSED.keys() == set(), "passed, so there is nothing to excuse"


def test_every_excuse_is_about_a_point_that_exists() -> None:
    assert EXCUSED.keys() <= points_of_the_engine()
    assert ONLY_READ.keys() <= {point.split(".")[0] for point in reachable_points()}


def test_what_is_said_to_read_only_does_not_write() -> None:
    names = {tuple(point.split(".", 1)) for point in reachable_points()}
    read = {name for transaction, name in names if transaction in ONLY_READ and "." not in name}
    assert read
    assert [name for name in sorted(read) if WRITES.search(statement(name).text)] == []


def test_every_statement_belongs_to_a_transaction() -> None:
    """Else a transaction is opened in a way that reachable.py does not know."""
    named = {point.split(".", 1)[1] for point in reachable_points()}
    rest = {one.name for one in all_statements()} - named
    assert {name for name in rest if not ELSEWHERE.fullmatch(name)} == set()
