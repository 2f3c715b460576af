"""The commands that need a running instance: submit, look, steer."""

from __future__ import annotations

import json
import re
import signal
import time
import urllib.request
from collections.abc import Iterator

import pytest
from tests.acceptance.shell import CONTROL, FILES, Shell, shell_in

from cograil.embedded.data_directory import read_instance

JOB_FIELDS = {
    *("job_id", "workflow_id", "workflow_version", "status", "input_params", "result", "error"),
    *("created_at", "started_at", "completed_at", "submitted_by", "correlation_id", "priority", "labels"),
    *("owner_id", "retry_of", "result_data", "error_message"),
}
NODE_FIELDS = {
    *("node_id", "status", "attempt", "task_id", "parent_node_id", "fan_out_index", "input", "output"),
    *("error", "started_at", "completed_at"),
}
EVENT_FIELDS = {"seq", "event_type", "node_id", "data", "created_at"}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell beside a running instance, with the workflows published."""
    shell = shell_in(tmp_path_factory.mktemp("cli"))
    up = shell.start("up", "--port", "0", "--workflows", ".")
    try:
        until = time.monotonic() + 60
        while shell.run("workflows").code != 0:
            assert up.poll() is None, up.communicate()
            assert time.monotonic() < until
        yield shell
    finally:
        up.terminate()
        up.communicate(timeout=60)


# -- files and runs --------------------------------------------------------------------------------


def test_publishing_again_does_nothing_and_other_content_is_a_conflict(shell: Shell) -> None:
    assert shell.run("publish", "greet.yaml", "--json").json["workflows"][0]["is_new"] is False
    (shell.directory / "other.txt").write_text(FILES["greet.yaml"].replace("[a, b]", "[c]"))
    answer = shell.run("publish", "other.txt")
    assert answer.code == 4
    assert "next free version is 2" in answer.err


def test_run_of_a_failing_file_exits_1_and_names_the_node_and_its_error(shell: Shell) -> None:
    answer = shell.run("run", "broken.yaml")
    assert answer.code == 1
    assert answer.out == ""
    assert re.search(r"wrong failed after 2 attempts: it broke \[\w+\]", answer.err)


def test_run_of_a_bad_file_exits_2_with_all_its_problems(shell: Shell) -> None:
    answer = shell.run("run", "wrong.txt")
    assert answer.code == 2
    assert answer.err.count("wrong.txt:") >= 3


# -- submit ----------------------------------------------------------------------------------------


def test_submit_prints_the_id_and_nothing_else(shell: Shell) -> None:
    answer = shell.run("submit", "greet")
    assert re.fullmatch(r"[0-9a-f-]{36}\n", answer.out)


def test_submit_and_wait_prints_the_job_with_its_result(shell: Shell) -> None:
    (shell.directory / "inputs.json").write_text('{"name": "Ada"}')
    words = ["--input-file", "inputs.json", "--label", "team=ops", "--priority", "5", "--wait", "--json"]
    answer = shell.run("submit", "greet", *words)
    assert answer.code == 0
    job = answer.json
    assert job.keys() >= JOB_FIELDS
    assert job["status"] == "completed"
    assert job["input_params"] == {"name": "Ada", "times": 1}
    assert job["result"]["hello"] == {"message": "Hello, Ada!"}
    assert (job["labels"], job["priority"]) == ({"team": "ops"}, 5)
    assert answer.err == ""


def test_submit_reads_inputs_from_stdin(shell: Shell) -> None:
    answer = shell.run("submit", "greet", "--input-file", "-", "--wait", "--json", stdin='{"name": "Bob"}')
    assert answer.json["result"]["hello"] == {"message": "Hello, Bob!"}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["submit", "nothing"], 3, "not published"),
        (["submit", "greet", "--version", "9"], 3, "version 9"),
        (["submit", "greet", "--version", "99999999999"], 2, "--version"),
        (["submit", "\udcff"], 2, "is not UTF-8"),
        (["cancel", "019a8f2e77aa", "--reason", "caf\udce9"], 2, "is not UTF-8"),
        (["submit", "greet", "--wait", "--timeout", "nan"], 2, "--timeout"),
        (["keys", "create", "--role", "admin", "--days", "1e9"], 2, "--days"),
        (["submit", "greet", "--input", "times=x"], 2, "a whole number"),
        (["submit", "greet", "--input", "nmae=x"], 2, "did you mean 'name'"),
        (["submit", "greet", "--priority", "11"], 2, "--priority"),
        (["submit", "greet", "--not-before", "soon"], 2, "soon"),
        (["submit", "greet", "--correlation-id", "x" * 65], 2, "64"),
        (["show", "not-a-job"], 3, "does not exist"),
        (["show", "019a8f2e-77aa-7c3e-9d54-0b6f3c1a2d4e"], 3, "does not exist"),
        (["events", "'; drop table jobs"], 3, "does not exist"),
        (["cancel", "019a8f2e"], 3, "does not exist"),
        (["explain", "019a8"], 2, "at least 8 characters"),
        (["submit", "greet", "--input", "times=x", "--input", "nmae=y"], 2, "did you mean 'name'"),
        (["pause", "queue", "default", "--reason", "x" * 300], 2, "256"),
        (["pause", "queue", ""], 2, "is not the name of a queue"),
        (["resume", "workflow", "greet"], 4, "is not paused"),
        (["jobs", "--status", "odd"], 2, "--status"),
        (["shwo"], 2, "did you mean 'show'"),
    ],
)
def test_cli_errors_are_a_sentence_and_an_exit_code(
    shell: Shell, words: list[str], code: int, message: str
) -> None:
    answer = shell.run(*words)
    assert answer.code == code
    assert answer.out == ""
    assert message in answer.err


def test_waiting_too_long_exits_5_and_the_job_goes_on(shell: Shell) -> None:
    answer = shell.run("submit", "slow", "--wait", "--timeout", "0.5", "--json")
    assert answer.code == 5
    job_id = answer.json["job_id"]
    assert shell.run("show", job_id, "--json").json["job"]["status"] == "running"
    assert shell.run("cancel", job_id).code == 0


def test_an_interrupt_ends_the_waiting_with_130_and_not_the_job(shell: Shell) -> None:
    process = shell.start("submit", "slow", "--wait")
    assert process.stderr is not None
    assert "job " in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    match = re.search(r"job ([0-9a-f-]{36}) continues", err)
    assert match, err
    assert shell.run("cancel", match[1], "--json").json["status"] == "cancelled"


# -- looking ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def greeted(shell: Shell) -> str:
    return shell.submit("greet", "--wait")


def test_a_key_makes_one_job_by_whatever_way(shell: Shell) -> None:
    words = ["submit", "greet", "--input", "name=Eve", "--label", "team=ops"]
    by = ["--submitted-by", "ann", "--correlation-id", "c", "--not-before", "2026-01-31T09:00:00Z"]
    first = shell.run(*words, *by, "--idempotency-key", "order-1", "--json")
    assert (first.code, first.json["submitted_by"]) == (0, "ann")
    again = shell.run(*words, *by, "--idempotency-key", "order-1")
    assert (again.code, again.out.strip()) == (0, first.json["job_id"])
    other = shell.run("submit", "greet", "--idempotency-key", "order-1")
    assert (other.code, "used with another request" in other.err) == (4, True)
    assert shell.run(*words, "--idempotency-key", "two words").code == 2
    instance = read_instance(shell.directory / "data")
    assert instance is not None
    body = {
        "workflow_id": "greet",
        "input_params": {"name": "Eve"},
        "labels": {"team": "ops"},
        "not_before": "2026-01-31T09:00:00Z",
        "submitted_by": "ann",
        "correlation_id": "c",
    }
    request = urllib.request.Request(
        f"http://{instance.host}:{instance.port}/api/v1/jobs",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Idempotency-Key": "order-1"},
    )
    with urllib.request.urlopen(request) as answer:
        assert (answer.status, json.load(answer)["job_id"]) == (200, first.json["job_id"])


def test_a_callback_is_a_url_or_json_and_checked(shell: Shell) -> None:
    assert shell.run("submit", "greet", "--callback", "https://example.org/done").code == 0
    assert shell.run("submit", "greet", "--callback", '{"url": "https://example.org/done"}').code == 0
    for odd in ("nowhere", '{"url": 3}', "{", "http://127.0.0.1/"):
        assert shell.run("submit", "greet", "--callback", odd).code == 2, odd


@pytest.fixture(scope="module")
def failed(shell: Shell) -> str:
    return shell.submit("broken", "--wait")


def test_show_has_the_job_and_all_nodes_children_included(shell: Shell, greeted: str) -> None:
    shown = shell.run("show", greeted, "--json").json
    assert shown.keys() == {"job", "nodes"}
    assert shown["job"].keys() >= JOB_FIELDS
    nodes = {node["node_id"]: node for node in shown["nodes"]}
    assert list(nodes) == ["hello", "each", "each__0", "each__1", "all"]
    assert all(node.keys() >= NODE_FIELDS for node in nodes.values())
    assert nodes["hello"]["output"] == {"message": "Hello, World!"}
    assert (nodes["each__1"]["parent_node_id"], nodes["each__1"]["fan_out_index"]) == ("each", 1)
    for moment in (shown["job"]["created_at"], nodes["hello"]["completed_at"]):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", moment)


def test_show_of_one_node_shows_that_node(shell: Shell, greeted: str) -> None:
    shown = shell.run("show", greeted, "--node", "each__1", "--json").json
    assert [node["node_id"] for node in shown["nodes"]] == ["each__1"]
    assert "each__1" in shell.run("show", greeted, "--node", "each__1").out
    assert shell.run("show", greeted, "--node", "none").code == 3


def test_show_for_people_fits_and_has_no_control_characters(shell: Shell, greeted: str, failed: str) -> None:
    for job, word in ((greeted, "completed"), (failed, "it broke")):
        answer = shell.run("show", job)
        assert answer.code == 0
        assert word in answer.out
        assert not CONTROL.search(answer.out)
    assert all(len(line) <= 80 for line in shell.run("jobs").out.splitlines())


def test_a_job_is_found_by_the_beginning_of_its_id_unless_there_are_several(
    shell: Shell, greeted: str
) -> None:
    assert shell.run("show", greeted[:30], "--json").json["job"]["job_id"] == greeted
    assert shell.run("show", greeted.replace("-", "").upper()).code == 0
    shell.submit("greet")
    shell.submit("greet")
    newest = shell.run("jobs", "--limit", "1", "--json").json["jobs"][0]["job_id"]
    answer = shell.run("show", newest[:8])  # the first eight digits are a minute
    assert answer.code == 4
    assert "several jobs" in answer.err


def test_events_are_numbered_without_gaps_and_end_with_the_job(shell: Shell, greeted: str) -> None:
    events = shell.run("events", greeted, "--json").json["events"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert all(event.keys() >= EVENT_FIELDS for event in events)
    assert (events[0]["event_type"], events[-1]["event_type"]) == ("job_created", "job_completed")
    later = shell.run("events", greeted, "--after", "3", "--json").json["events"]
    assert later == events[3:]
    assert len(shell.run("events", greeted).out.splitlines()) == len(events)


def test_following_prints_a_line_for_each_event_until_the_job_ends(shell: Shell) -> None:
    job_id = shell.submit("slow")
    follower = shell.start("events", job_id, "--follow", "--json")
    assert follower.stdout is not None
    first = json.loads(follower.stdout.readline())
    assert first["event_type"] == "job_created"
    assert shell.run("cancel", job_id, "--reason", "enough").code == 0
    out, _ = follower.communicate(timeout=30)
    last = json.loads(out.splitlines()[-1])
    assert (follower.returncode, last["event_type"], last["data"]["reason"]) == (0, "job_cancelled", "enough")


def test_jobs_are_listed_newest_first_and_filtered(shell: Shell, greeted: str, failed: str) -> None:
    listed = shell.run("jobs", "--json").json["jobs"]
    ids = [job["job_id"] for job in listed]
    assert ids == sorted(ids, reverse=True)
    assert {greeted, failed} <= set(ids)
    only = shell.run("jobs", "--status", "failed", "--workflow", "broken", "--json").json["jobs"]
    assert {job["status"] for job in only} == {"failed"}
    older = shell.run("jobs", "--before", ids[0], "--limit", "1", "--json").json["jobs"]
    assert [job["job_id"] for job in older] == ids[1:2]


def test_explain_says_that_nobody_has_the_handler(shell: Shell) -> None:
    job_id = shell.submit("nobody")
    explained = shell.run("explain", job_id, "--json").json
    assert (explained["job_id"], explained["status"]) == (job_id, "running")
    assert explained["blockers"][0]["kind"] == "no_worker"
    assert "nobody_has_this" in shell.run("explain", job_id).out
    assert shell.run("cancel", job_id).code == 0
    assert shell.run("explain", job_id, "--json").json["blockers"] == []


def test_explain_says_how_a_job_ended(shell: Shell, greeted: str, failed: str) -> None:
    assert "it completed " in shell.run("explain", greeted).out
    explanation = shell.run("explain", failed).out
    assert re.search(r"it failed .*: it broke \[handler_error\]", explanation)
    assert f"cograil retry {failed}`" in explanation
    directory = shell.environment["COGRAIL_DATA_DIR"]
    assert (
        f"cograil retry {failed} --data-dir {directory}`"
        in shell.run("explain", failed, "--data-dir", directory).out
    )
    assert shell.run("explain", failed, "--json").json["blockers"] == []


def test_waiting_for_a_job_that_nobody_can_run_says_so(shell: Shell) -> None:
    answer = shell.run("submit", "nobody", "--wait", "--timeout", "5")
    assert answer.code == 5
    assert "no worker has the handler 'nobody_has_this'" in answer.err


def test_logs_of_a_job_without_any_are_an_empty_list(shell: Shell, greeted: str) -> None:
    assert shell.run("logs", greeted, "--json").json == {"logs": []}
    assert shell.run("logs", greeted, "--node", "each__1").code == 0
    answer = shell.run("logs", greeted, "--node", "nobody")
    assert (answer.code, "has no node 'nobody'" in answer.err) == (3, True)


# -- steering --------------------------------------------------------------------------------------


def test_cancelling_what_has_ended_is_a_conflict(shell: Shell, greeted: str) -> None:
    answer = shell.run("cancel", greeted)
    assert answer.code == 4
    assert "already completed" in answer.err


def test_retrying_a_failed_job_makes_a_new_one_that_keeps_what_completed(shell: Shell, failed: str) -> None:
    answer = shell.run("retry", failed, "--wait", "--json")
    assert answer.code == 1
    again = answer.json
    assert again["retry_of"] == failed
    events = shell.run("events", again["job_id"], "--json").json["events"]
    assert "fine" not in {event["node_id"] for event in events if event["event_type"] == "node_dispatched"}


def test_retrying_a_running_or_completed_job_is_a_conflict(shell: Shell, greeted: str) -> None:
    assert shell.run("retry", greeted).code == 4
    assert shell.run("retry", greeted, "--node", "none").code == 3
    job_id = shell.submit("slow")
    assert shell.run("retry", job_id).code == 4
    assert shell.run("cancel", job_id).code == 0


def test_the_doctor_finds_the_instance_healthy(shell: Shell, greeted: str, failed: str) -> None:
    answer = shell.run("doctor", "--json")
    assert answer.code == 0, answer.out
    findings = answer.json["findings"]
    assert {finding["code"] for finding in findings} >= {"S1", "S2", "S3", "I01", "I12", "L4"}
    assert {finding["level"] for finding in findings} == {"green"}
    assert "green" in shell.run("doctor").out


def test_no_color_means_no_color_on_a_terminal_too(shell: Shell, greeted: str) -> None:
    colourful = shell.run_on_terminal("jobs")[1]
    quiet = shell.with_environment(NO_COLOR="1")
    assert re.search(r"\x1b\[[0-9;]*3[0-9]", colourful)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", quiet.run_on_terminal("jobs")[1])
