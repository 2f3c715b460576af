"""The lists of crash points say the truth, and none is forgotten: what the source can reach is in the page,
which is written from the records of all scenarios. `make torture` records them again.
"""

from __future__ import annotations

import re

from tests.torture.page import points_in_the_page
from tests.torture.point_coverage import (
    EXCUSED,
    NO_SCENARIO,
    ONLY_READ,
    WRITES,
    as_one_app,
    misfits,
    points_of_the_engine,
    text_of,
)
from tests.torture.reachable import reachable_points

from cograil.store.statements import all_statements

# Statements without a named transaction, which only read: of the doctor, of `explain` and of `db roles`.
# The primitives are in transactions of tests/torture/app.py.
ELSEWHERE = re.compile(r"doctor_.*|explain_.*|missing_.*")


def test_every_excuse_is_about_a_point_that_exists() -> None:
    assert EXCUSED.keys() <= as_one_app(points_of_the_engine())
    assert ONLY_READ.keys() | NO_SCENARIO.keys() <= {point.split(".")[0] for point in reachable_points()}


def test_every_point_has_a_scenario_in_the_page() -> None:
    """A new transaction or statement gets one, is struck there, and the page is written anew."""
    assert misfits(points_in_the_page()) == {}


def test_statements_listed_as_reads_do_not_write() -> None:
    names = {tuple(point.split(".", 1)) for point in reachable_points()}
    read = {name for transaction, name in names if transaction in ONLY_READ and "." not in name}
    assert read
    assert [name for name in sorted(read) if WRITES.search(text_of(name))] == []


def test_every_statement_belongs_to_a_transaction() -> None:
    """Else a transaction is opened in a way that reachable.py does not know."""
    named = {point.split(".", 1)[1] for point in reachable_points()}
    rest = {statement.name for statement in all_statements()} - named
    assert {name for name in rest if not ELSEWHERE.fullmatch(name)} == set()
