"""A schedule, described for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson

from cograil.intake.cli.words import ago
from cograil.processes.invocation import program
from cograil.store.schedules import View


def utc(moment: datetime) -> str:
    """A moment as the commands print it."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def origin_of(shown: View) -> str:
    """Where it comes from, in a word or two."""
    return "removed from file" if shown["left_file_at"] else str(shown["origin"])


def facts_of(shown: View) -> Iterator[tuple[str, Any]]:
    """What `schedules show` prints: a name and a value for each line."""
    version = "" if shown["version"] is None else f" version {shown['version']}"
    yield "schedule", shown["name"]
    yield "workflow", f"{shown['workflow_id']}{version}"
    yield "cron", f"{shown['cron']} {shown['timezone']}"
    if shown["left_file_at"]:
        yield "origin", _left_file(shown)
    elif shown["origin"] == "file":
        yield "origin", f"the file of workflow {shown['workflow_id']}: change it there and publish the file"
    if shown["input_params"]:
        yield "inputs", orjson.dumps(shown["input_params"]).decode()
    yield "overlap", shown["overlap"]
    yield "missed", shown["missed"]
    if shown["paused_at"]:
        why = f": {shown['paused_for']}" if shown["paused_for"] else ""
        yield "paused", f"{ago(shown['paused_at'])} by {shown['paused_by'] or 'nobody'}{why}"
    else:
        yield "next run", utc(shown["next_at"]) if shown["next_at"] else "none"
    if shown["last_due_at"]:
        job = f", job {shown['last_job_id']}" if shown["last_job_id"] else ""
        yield "last run", f"{utc(shown['last_due_at'])}, {shown['last_outcome']}{job}"
    for one in shown["passed_over"]:
        runs = "run" if one["moments"] == 1 else "runs"
        yield "skipped", f"{one['moments']} {runs} since its last job: {one['reason']}"


def _left_file(shown: View) -> str:
    """For a schedule that is no longer in its file: what can be done with it."""
    name, workflow = shown["name"], shown["workflow_id"]
    return (
        f"no longer in the file of workflow {workflow}, removed {ago(shown['left_file_at'])}: put it "
        f"back and publish the file, `{program()} schedules resume {name} --detach` to run it without the "
        f"file, or `{program()} schedules remove {name}`"
    )
