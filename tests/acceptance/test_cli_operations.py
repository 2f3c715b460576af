"""Operations from the command line: retry from a node, bulk, doctor, with real processes and a real kill."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.acceptance.shell import Shell, shell_in

# The worker dies with the second step of each attempt before it commits; `up` starts another.
FAULT = "bulk.commit.before:2:kill9"
QUICK = {
    "COGRAIL_LEASE__SECONDS": "1.5",
    "COGRAIL_LEASE__HEARTBEAT_SECONDS": "0.3",
    "COGRAIL_LEASE__SCAN_SECONDS": "0.3",
}
CHAIN = """
workflow_id: chain
inputs:
  x: {type: integer, default: 1}
  y: {type: integer, default: 2}
nodes:
  first: {handler: echo, params: {x: "{{ inputs.x }}"}, next: second}
  second: {handler: echo, params: {y: "{{ inputs.y }}"}, next: third}
  third: {handler: echo, params: {y: "{{ nodes.second.output.echoed_params.y }}"}}
"""
CHOICE = """
workflow_id: choice
nodes:
  choose:
    type: conditional
    branches:
      - {name: never, condition: "1 > 2", next: right}
      - {name: other, default: true, next: left}
  right: {handler: echo, next: last}
  left: {handler: echo, next: last}
  last: {handler: echo}
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell beside a running instance, with the workflows published."""
    shell = shell_in(tmp_path_factory.mktemp("cli"), **QUICK)
    (shell.directory / "chain.yaml").write_text(CHAIN)
    (shell.directory / "choice.yaml").write_text(CHOICE)
    yield from _beside_up(shell)


def _beside_up(shell: Shell, fault: str = "") -> Iterator[Shell]:
    starting = shell.with_environment(COGRAIL_FAULT=fault) if fault else shell
    up = starting.start("up", "--port", "0", "--workflows", ".")
    try:
        until = time.monotonic() + 60
        while shell.run("workflows").code != 0:
            assert up.poll() is None, up.communicate()
            assert time.monotonic() < until
        yield shell
    finally:
        up.terminate()
        up.communicate(timeout=60)


def statuses(shell: Shell, workflow: str) -> set[str]:
    listed = shell.run("jobs", "--workflow", workflow, "--limit", "1000", "--json").json["jobs"]
    return {job["status"] for job in listed}


# -- retry ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def done(shell: Shell) -> str:
    return shell.submit("chain", "--wait")


def test_a_preview_of_a_retry_says_what_is_kept_and_what_has_read_an_old_input(
    shell: Shell, done: str
) -> None:
    before = shell.run("jobs", "--workflow", "chain", "--json").json
    words = ("retry", done, "--from", "second", "--input", "x=5", "--input", "y=6", "--preview")
    seen = shell.run(*words, "--json").json
    assert (seen["kept"], seen["again"]) == (["first"], ["second", "third"])
    assert (seen["changed"], seen["outdated"]) == (["x", "y"], {"first": ["x"]})
    shown = shell.run(*words)
    assert re.search(r"first +kept +its output is based on the old input x", shown.out)
    assert re.search(r"third +runs again", shown.out)
    assert "nothing was changed" in shown.err
    assert shell.run("jobs", "--workflow", "chain", "--json").json == before


def test_a_retry_from_a_node_with_other_inputs(shell: Shell, done: str) -> None:
    (shell.directory / "edited.json").write_text('{"y": 6}')
    answer = shell.run("retry", done, "--from", "second", "--input-file", "edited.json", "--wait", "--json")
    assert answer.code == 0
    assert (answer.json["retry_of"], answer.json["input_params"]) == (done, {"x": 1, "y": 6})
    assert answer.json["result"]["third"]["echoed_params"] == {"y": 6}
    events = shell.run("events", answer.json["job_id"], "--json").json["events"]
    ran = [event["node_id"] for event in events if event["event_type"] == "node_dispatched"]
    assert ran == ["second", "third"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--from", "nobody"], 3, "no node"),
        (["--from", "second", "--input", "y=six"], 2, "whole number"),
        (["--from", "second", "--input", "z=6"], 2, "no input 'z'"),
        (["--preview"], 4, "name the node"),
    ],
)
def test_an_impossible_retry_is_refused_with_a_reason(
    shell: Shell, done: str, words: list[str], code: int, message: str
) -> None:
    answer = shell.run("retry", done, *words)
    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err


def test_nodes_behind_an_untaken_branch_are_skipped_and_not_retried(shell: Shell) -> None:
    job = shell.submit("choice", "--wait")
    shown = shell.run("retry", job, "--from", "last", "--preview")
    assert re.search(r"right +skipped +on a branch that was not taken", shown.out)
    assert re.search(r"last +runs again", shown.out)
    for more in ([], ["--preview"]):
        refused = shell.run("retry", job, "--from", "right", *more)
        assert (refused.code, refused.out) == (4, "")
        assert "retry from 'choose' or before it" in refused.err


# -- bulk -------------------------------------------------------------------------------------------------


def test_a_bulk_cancel_shows_first_and_then_does_it(shell: Shell) -> None:
    ids = [shell.submit("slow", "--label", "team=ops") for _ in range(3)]
    other = shell.submit("slow")
    words = ("bulk", "cancel", "--workflow", "slow", "--label", "team=ops", "--newer-than", "1h")
    seen = shell.run(*words, "--preview", "--json").json
    assert (seen["count"], seen["ids"]) == (3, sorted(ids))
    shown = shell.run(*words, "--preview")
    assert shown.out.split() == sorted(ids)
    assert "3 jobs; nothing was changed" in shown.err
    assert statuses(shell, "slow") == {"running"}

    answer = shell.run(*words, "--reason", "enough", "--wait", "--json")
    assert (answer.code, answer.json["workflow_id"]) == (0, "cograil.bulk")
    counts = answer.json["result"]["step"]
    assert (counts["total"], counts["done"], counts["failed"], counts["skipped"]) == (3, 3, 0, 0)
    assert {shell.run("show", job, "--json").json["job"]["status"] for job in ids} == {"cancelled"}
    assert shell.run("show", other, "--json").json["job"]["status"] == "running"
    assert shell.run("cancel", other).code == 0
    shown = shell.run("bulk", "show", answer.json["job_id"])
    assert re.search(r"done +3", shown.out)
    assert shell.run("bulk", "show", answer.json["job_id"], "--json").json["is_finished"] is True


def test_a_bulk_retry_tells_what_was_skipped_and_why(shell: Shell) -> None:
    first, _ = shell.submit("broken", "--wait"), shell.submit("broken", "--wait")
    assert shell.run("retry", first, "--wait").code == 1
    answer = shell.run("bulk", "retry", "--workflow", "broken", "--wait", "--json")
    counts = answer.json["result"]["step"]
    assert (counts["total"], counts["done"], counts["skipped"]) == (3, 2, 1)
    assert counts["reasons"]["already_retried"]["count"] == 1
    shown = shell.run("bulk", "show", answer.json["job_id"]).out
    assert re.search(r"skipped +1 +already_retried", shown)


def test_bulk_without_wait_prints_the_id_of_its_job(shell: Shell) -> None:
    answer = shell.run("bulk", "cancel", "--workflow", "nobody")
    assert re.fullmatch(r"[0-9a-f-]{36}\n", answer.out)
    assert f"cograil bulk show {answer.out.strip()}" in answer.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["cancel"], 2, "select jobs with a filter"),
        (["cancel", "--status", "failed"], 2, "cancel is for jobs that are pending or running, not failed"),
        (["retry", "--older-than", "soon"], 2, "not an age"),
        (["retry", "--older-than", "1d", "--created-before", "2026-01-31T09:00:00Z"], 2, "not both"),
        (["retry", "--label", "team"], 2, "KEY=VALUE"),
        (["show", "019a8f2e"], 3, "does not exist"),
    ],
)
def test_an_invalid_bulk_operation_is_refused_with_a_reason(
    shell: Shell, words: list[str], code: int, message: str
) -> None:
    answer = shell.run("bulk", *words)
    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err


def test_bulk_show_refuses_a_job_that_is_not_a_bulk_operation(shell: Shell, done: str) -> None:
    answer = shell.run("bulk", "show", done)
    assert answer.code == 3
    assert "is not a bulk operation" in answer.err


@pytest.mark.parametrize("name", ["cancel", "retry", "show"])
def test_every_bulk_command_has_help_with_examples_and_speaks_json(shell: Shell, name: str) -> None:
    shown = shell.run("bulk", name, "--help").out
    assert "Examples:" in shown
    assert "--json" in shown


def test_a_bulk_operation_survives_kill_9_of_its_worker(tmp_path: Path) -> None:
    """Three steps of 50, 50 and 20; each of the first two attempts commits one and dies in the next."""
    shell = shell_in(tmp_path, **QUICK)
    (tmp_path / "later.yaml").write_text("workflow_id: later\nnodes:\n  a: {handler: nobody_has_this}\n")
    for _ in _beside_up(shell, FAULT):
        for _ in range(120):
            shell.submit("later")
        answer = shell.run("bulk", "cancel", "--workflow", "later", "--wait", "--timeout", "60", "--json")
        assert answer.code == 0, answer.err
        counts = answer.json["result"]["step"]
        assert (counts["total"], counts["done"], counts["failed"], counts["skipped"]) == (120, 120, 0, 0)
        nodes = shell.run("show", answer.json["job_id"], "--json").json["nodes"]
        assert nodes[0]["attempt"] == 3
        assert statuses(shell, "later") == {"cancelled"}
        assert shell.run("doctor").code == 0


# -- doctor -----------------------------------------------------------------------------------------------


def test_the_doctor_shows_sizes_and_snapshots(shell: Shell, done: str) -> None:
    seen = shell.run("doctor", "--json").json
    sizes = {size["table"]: size for size in seen["sizes"]}
    assert {"jobs", "nodes_default", "events_default", "tasks", "inbox"} <= sizes.keys()
    assert sizes["jobs"]["total_bytes"] > 0
    assert {"rows", "dead_rows", "vacuumed_at"} <= sizes["jobs"].keys()
    assert isinstance(seen["snapshots"], list)
    codes = {finding["code"]: finding["level"] for finding in seen["findings"]}
    assert (codes["H1"], codes["H2"], codes["H3"]) == ("green", "green", "green")
    assert re.search(r"jobs +[\d,]+ +[\d,]+ +[\d.]+ MB", shell.run("doctor").out)
