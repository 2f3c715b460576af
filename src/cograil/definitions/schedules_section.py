"""The `schedules` section of a workflow file: when jobs of the workflow are submitted.

The section is not part of the version. The document and its digest omit it, so a schedule can change without
a new version of the workflow.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

from cograil.definitions.cron import MAX_CRON, check_calendar
from cograil.definitions.diagnostics import child
from cograil.definitions.inputs_section import INPUTS, apply_inputs
from cograil.definitions.mapping_reader import ID, MappingReader, NumberRange
from cograil.errors import InvalidInput
from cograil.model.schedule import MISSED, OVERLAPS, Missed, Overlap, SchedulePlan
from cograil.model.workflow import Json, Workflow

KEY = "schedules"
MAX_SCHEDULES = 100
MAX_TIMEZONE = 64
PRIORITY = NumberRange(0, 10)
SAMPLE_MOMENT = datetime(2026, 1, 1, tzinfo=UTC).isoformat().replace("+00:00", "Z")


def read_schedules(section: MappingReader, workflow: Workflow) -> dict[str, SchedulePlan]:
    """Return the schedules by name; problems are reported."""
    if len(section.values) > MAX_SCHEDULES:
        message = f"the file has {len(section.values)} schedules; at most {MAX_SCHEDULES} are allowed"
        section.diagnostics.add("too_large", message, section.pointer, at_key=True)
        return {}
    schedules: dict[str, SchedulePlan] = {}
    for name, value, pointer in section.items():
        if not ID.fullmatch(name):
            rule = "1 to 64 letters, digits, `_`, `.` and `-`, the first a letter or digit"
            section.diagnostics.add(
                "invalid_id", f"schedule {name[:80]!r} must be {rule}", pointer, at_key=True
            )
        schedules[name] = _read_schedule(MappingReader.of(value, pointer, section.diagnostics), workflow)
    return schedules


def _read_schedule(keys: MappingReader, workflow: Workflow) -> SchedulePlan:
    has_cron = keys.require("cron", "give a cron expression, such as '30 6 * * 1-5'")
    plan = SchedulePlan(
        workflow.workflow_id,
        cron=keys.text("cron", max_length=MAX_CRON),
        timezone=keys.text("timezone", "UTC", max_length=MAX_TIMEZONE),
        input=_read_inputs(keys),
        due_input=keys.filled("due_input", max_length=64),
        priority=keys.integer("priority", 0, PRIORITY),
        overlap=cast("Overlap", keys.choice("overlap", OVERLAPS, "skip")),
        missed=cast("Missed", keys.choice("missed", MISSED, "once")),
    )
    keys.close()
    _check_calendar(keys, plan, has_cron=has_cron)
    _check_inputs(keys, plan, workflow)
    return plan


def _read_inputs(keys: MappingReader) -> dict[str, Json]:
    inputs = keys.section("inputs")
    return {} if inputs is None else {name: value for name, value, _ in inputs.items()}


def _check_calendar(keys: MappingReader, plan: SchedulePlan, *, has_cron: bool) -> None:
    try:
        check_calendar(plan.cron, plan.timezone)
    except InvalidInput as error:
        for problem in error.problems:
            key = problem.pointer.removeprefix("/")
            if isinstance(keys.get(key), str) and (has_cron or key != "cron"):
                keys.diagnostics.add(problem.code, problem.message, keys.at(key))


def _check_inputs(keys: MappingReader, plan: SchedulePlan, workflow: Workflow) -> None:
    """Report the problems of the inputs that jobs of this schedule would have."""
    inputs = dict(plan.input or {})
    if plan.due_input is not None:
        inputs[plan.due_input] = SAMPLE_MOMENT
    try:
        apply_inputs(workflow, inputs)
    except InvalidInput as error:
        for problem in error.problems:
            pointer = keys.at("inputs") + problem.pointer.removeprefix(INPUTS)
            if plan.due_input is not None and problem.pointer == child(INPUTS, plan.due_input):
                pointer = keys.at("due_input")
            keys.diagnostics.add(problem.code, problem.message, pointer)
