"""Which points need no scenario, and why; and whether all the others have one."""

from __future__ import annotations

import re
from collections.abc import Set

from tests.torture.reachable import reachable_points

from cograil.store.statements import statement

WRITES = re.compile(r"\b(insert|(?<!for )update|delete|merge|truncate)\b")

# Whoever dies there has changed nothing: they only read, which a test sees to.
ONLY_READ = {
    "explain": "`cograil explain`",
    "show": "`cograil show`, `list` and their like",
    "preview": "`--preview` of a retry or of an operation on many jobs: locks, and lets go",
    "watch": "a client that waits for a job",
    "metrics": "/metrics",
    "probe": "/readyz",
    "look": "an orchestrator looks which limits have a place",
    "next_delivery": "a relay that has nothing to do asks when it will have",
    "needed": "the sweeper of containers asks what is still needed",
    "unsettled": "the sweeper of containers asks what has ended",
    "request": "the gateway shows what became of a request; its sessions may only read",
}
DOCUMENTS = (
    "documents",
    *(
        f"documents_{what}"
        for what in (
            "admit",
            "busy",
            "config",
            "convert",
            "decide",
            "existing",
            "name",
            "project",
            "publish",
            "refuse",
            "settle",
            "show",
            "tidy",
        )
    ),
)
NO_SCENARIO = {
    **dict.fromkeys(DOCUMENTS, "an app: tests/documents/test_crashes.py strikes its watcher and its workers"),
    "documents_upload": "only the audit of an upload: the file is in the folder by then, and is processed",
    "capture": "tests/captures/test_capture_crashes.py kills a server at each of these",
    "refuse_capture": "tests/captures/test_capture_crashes.py kills a server at each of these",
    "begin_sealing": "tests/captures/test_capture_crashes.py kills a worker at each of these",
    "settle_capture": "tests/captures/test_capture_crashes.py kills a worker at each of these",
    "reconcile_capture": "tests/captures/test_capture_left.py kills a worker at each of these",
    "check_log": "only reads: the chains of the audit log, by `cograil captures check`",
    "check_captures": "only reads: captures and proofs, by `cograil captures check`",
    "left_captures": "only reads: the sweeper asks which captures were left",
    "look_at_proof": "only reads: what a time-stamping authority is asked about",
    "show_capture": "only reads: what the owner of a capture is shown",
    "companies": "an app: tests/companies/test_kills_everywhere.py kills whoever works for it",
    "note": "one statement: `up` notes why its worker cannot start",
    "enable": "the CLI enables a subscription in one statement; `door_subscribe` does it with its audit",
}
NOT_OPENED = "nothing of a job that nobody has opened has failed or asks anybody: this is refused before"
UNTELLABLE = "for a row of the outbox that cannot be told, and no scenario makes one"
BY_THE_CLI = "the CLI's audit commits with its change; no scenario kills this command in between"
NO_PARENT = "only the children of a child ask for it, and none is made here"
OF_SUBMIT = (
    "cancel_children",
    "count_ancestors",
    "hold_jobs",
    "is_paused",
    "leave_lines",
    "link_children",
    "load_children",
    "load_children_wake",
    "load_outputs",
    "tell_parents",
)
ADVANCING = ("advance", "bulk", "cancel", "fire", "retry", "signal")
BY_THE_CLOCK = (
    "only a deadline that has passed ends a job there; `advance`, `bulk` and `cancel` are struck there"
)
AS_SUBMITTED = "of a submit or a cancel: the clients that do these are struck there"
FOR_TRACES = "only reads, for the links of a span, and only where traces are made"
IN_FILES = (
    "of a file with schedules, in the transaction of `publish`, whose commit is struck; no scenario has one"
)
OF_FILE_SCHEDULES = (
    "add_schedule",
    "change_schedule",
    "leave_file",
    "load_definitions",
    "lock_file_schedules",
    "resume_schedule",
    "return_to_file",
)
EXCUSED = {
    **{f"publish.{name}": IN_FILES for name in OF_FILE_SCHEDULES},
    **{f"{within}.{name}": AS_SUBMITTED for within in ("app", "fire", "schedule") for name in OF_SUBMIT},
    **{f"{within}.close_nodes": AS_SUBMITTED for within in ("app", "schedule")},
    **{f"{within}.attempts_of_children": FOR_TRACES for within in ADVANCING},
    "fire.load_submitted": AS_SUBMITTED,
    "fire.open_jobs": AS_SUBMITTED,
    "bulk.count_ancestors": NO_PARENT,
    "bulk.completed_children": "only reads: which children keep their idempotency key",
    "bulk.keep_key_roots": "as in `retry`, which is struck there",
    "retry.completed_children": "only reads: which children keep their idempotency key",
    "bulk.list_failures": "only reads: the nodes that a refusal names",
    "retry.list_failures": "only reads: the nodes that a refusal names",
    "schedule.detach_schedule": "one statement before its audit, as `resume_schedule`, which is struck there",
    "bulk.load_child": "only who retries one node asks for it",
    "cancel.link_children": "a job that is cancelled begins nothing",
    "keys.add_audits": BY_THE_CLI,
    "keys.delete_key": BY_THE_CLI,
    "keys.find_secret": "only reads",
    "publish.replace_workflow": "only of `up --dev`, on one statement before that of a publish",
    "publish.list_processes": "only reads: the CLI warns of handlers that nobody has",
    "report.note_late": "one statement: a result over HTTP that came too late is noted, or was not",
    "retry.leave_lines": BY_THE_CLOCK,
    "retry.load_submitted": NOT_OPENED,
    "retry.open_jobs": NOT_OPENED,
    "signal.leave_lines": BY_THE_CLOCK,
    "signal.load_submitted": NOT_OPENED,
    "signal.open_jobs": NOT_OPENED,
    "spread.find_insides": "only reads, for requests of the gateway",
    "spread.oldest_in_outbox": UNTELLABLE,
    "spread.set_aside": UNTELLABLE,
    "submit.cancel_children": "a job that is being made has no children that could be told to stop",
    "submit.count_ancestors": NO_PARENT,
    "submit.find_secret": "only reads",
    "submit.give_back_record": "for a request that is refused, and then all of this transaction is undone",
    "submit.leave_lines": "a job that waits to be admitted does not end as it is made",
    "submit.load_children_wake": "a job that is being made has no fan-out that is already open",
    "submit.load_outputs": "all it could read was completed in this very decision, and is at hand",
    "submit.refresh_record": "no door gives answers that grow stale; `app` is struck there",
}
# tests/acceptance/test_relay_processes.py kills a real relay at each of these, also in `make test`.
KILLED_ELSEWHERE = {"spread", "claim_deliveries", "relay", "record_deliveries", "record_gone"}
# Before these their transaction has written nothing, so who dies there has changed nothing.
FIRST_WRITES = {
    "add_schedule",
    "add_subscription",
    "change_schedule",
    "enable_subscription",
    "find_held_task",
    "join_remote_worker",
    "make_key",
    "note_key_use",
    "open_record",
    "pause_job",
    "pause_name",
    "pause_schedule",
    "prune_firings",
    "prune_deliveries",
    "publish_workflow",
    "remove_schedule",
    "remove_subscription",
    "resend_delivery",
    "resume_job",
    "resume_name",
    "resume_schedule",
    "revoke_key",
    "rotate_secret",
}
APP = re.compile(r"^app_\w+\.")
OF_THE_HARNESS = {"retry.find_job_ids"}  # its client looks the job up in the same transaction
HANDED_ON = {"submit.find_jobs"}  # in a function that is given to another, which reachable.py does not follow


def points_of_the_engine() -> set[str]:
    """Every point at which a process that writes may die."""
    left_out = ONLY_READ.keys() | NO_SCENARIO.keys()
    return {point for point in reachable_points() if point.split(".")[0] not in left_out}


def misfits(passed: Set[str]) -> dict[str, set[str]]:
    """Where what the scenarios pass and what the source can reach do not fit; empty when they do."""
    expected, passed = as_one_app(points_of_the_engine()), as_one_app(passed)
    seen = as_one_app(reachable_points()) | OF_THE_HARNESS | HANDED_ON
    found = {
        "in no scenario": expected - passed - EXCUSED.keys(),
        "reachable.py does not see these": passed - seen,
        "passed, so there is nothing to excuse": EXCUSED.keys() & passed,
    }
    return {what: points for what, points in found.items() if points}


def as_one_app(points: Set[str]) -> set[str]:
    """The transactions of tests/torture/app.py as one: each primitive has to be passed in one of them.

    What `decide` could need is more than any one of them needs.
    """
    return {APP.sub("app.", point) for point in points}


def writes(point: str) -> bool:
    """Whether to die here may leave something behind: a commit, or a statement after others that wrote.

    Not where `make test` kills in another test.
    """
    transaction, name = point.split(".", 1)
    if transaction in ONLY_READ or transaction in KILLED_ELSEWHERE or name in FIRST_WRITES:
        return False
    return name.startswith("commit.") or bool(WRITES.search(statement(name).text))
