"""`schedules:` of a workflow file: what is read, what is refused and where; it is not part of a version."""

from __future__ import annotations

import pytest

from cograil.definitions import read_workflow
from cograil.errors import InvalidWorkflow
from cograil.model.schedule import SchedulePlan

FILE = """\
workflow_id: report
inputs: {region: {type: string}, day: {type: string, required: false}, size: {type: integer, default: 1}}
nodes: {write: {handler: h}}
"""
SCHEDULES = """\
schedules:
  nightly:
    cron: '30 2 * * *'
    timezone: Europe/Paris
    inputs: {region: north}
    due_input: day
    overlap: allow
"""


def test_schedules_are_read_and_left_out_of_the_version() -> None:
    plain, scheduled = read_workflow(FILE), read_workflow(FILE + SCHEDULES)
    assert scheduled.schedules == {
        "nightly": SchedulePlan(
            "report", "30 2 * * *", "Europe/Paris", {"region": "north"}, due_input="day", overlap="allow"
        )
    }
    assert (scheduled.digest, dict(scheduled.document)) == (plain.digest, dict(plain.document))
    assert not read_workflow(FILE + "schedules:\n").schedules


@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        ("30 2 * * *", "61 2 * * *", "invalid_schedule", (6, 11)),
        ("Europe/Paris", "Mars/Olympus", "invalid_value", (7, 15)),
        ("{region: north}", "{region: 7}", "invalid_type", (8, 22)),
        ("{region: north}", "{regoin: north, region: north}", "unknown_input", (8, 22)),
        ("{region: north}", "{}", "missing_input", (8, 5)),
        ("due_input: day", "due_input: dya", "unknown_input", (9, 16)),
        ("due_input: day", "due_input: size", "invalid_type", (9, 16)),
        ("overlap: allow", "overlap: alow", "invalid_value", (10, 14)),
        ("overlap: allow", "overlpa: allow", "unknown_key", (10, 5)),
        ("nightly:", "'every night':", "invalid_id", (5, 3)),
        ("    cron: '30 2 * * *'\n", "    priority: 11\n    cron: '* * * * *'\n", "invalid_value", (6, 15)),
        ("    cron: '30 2 * * *'\n", "", "missing_key", (5, 3)),
    ],
)
def test_a_mistake_is_named_with_its_place(old: str, new: str, code: str, place: tuple[int, int]) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow((FILE + SCHEDULES).replace(old, new))
    assert [(problem.code, (problem.line, problem.column)) for problem in caught.value.problems] == [
        (code, place)
    ]
