"""Every command through a server prints what it prints on the database, and ends with the same exit code."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.acceptance.shell import Answer, Shell, shell_in

from cograil.cli import ENTRIES
from cograil.embedded.data_directory import read_instance

ASK = """
workflow_id: ask
nodes:
  first: {type: approval, approval: {message: May I}}
  second: {type: approval, approval: {message: May I again}}
"""
FORM = "workflow_id: one_ask\nnodes:\n  ask: {type: approval, approval: {message: May I}}\n"
CHATTY = "workflow_id: chatty\nnodes:\n  talk: {handler: chatter}\n"
HANDLERS = """
from cograil import handler

@handler("chatter")
def chatter(ctx):
    ctx.log.info("hello log", size=3)
    print("printed")
    return {"said": 2}
"""
SECOND = "workflow_id: second\nversion: {version}\nnodes:\n  a: {{handler: echo}}\n"

TASK_ID = re.compile(r"\d+\.<id>")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIMES = (
    re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?( UTC|Z)?"),
    re.compile(r"\d\d:\d\d:\d\d(\.\d+)?( UTC)?"),
    re.compile(r"\d+ [smhd] ago"),
    re.compile(r"\d+\.\d+ ?s\b"),
    re.compile(r'"\w*(?:seconds|_ms|pid|sequence)": [\d.]+'),
)


@dataclass(frozen=True)
class Pair:
    """A shell on the database of an instance, and one that knows only its server."""

    local: Shell
    remote: Shell
    url: str
    jobs: dict[str, str]

    def run(self, *words: str, stdin: str = "") -> tuple[Answer, Answer]:
        """Run a command both ways; `{greet}` in a word is the id of that job."""
        filled = [word.format(**self.jobs) if re.fullmatch(r"\{\w+\}.*", word) else word for word in words]
        return self.local.run(*filled, stdin=stdin), self.remote.run(*filled, stdin=stdin)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A running instance with ended and waiting jobs, reached both ways."""
    local = shell_in(
        tmp_path_factory.mktemp("cli"),
        COGRAIL_TESTING="1",
        COGRAIL_WORKER__GRACE_SECONDS="0.5",
        COLUMNS="240",
    )  # nothing is folded
    for name, text in {"ask.yaml": ASK, "form.yaml": FORM, "chatty.yaml": CHATTY}.items():
        (local.directory / name).write_text(text)
    (local.directory / "chat_handlers.py").write_text(HANDLERS)
    up = local.start("up", "--port", "0", "--workflows", ".", "--app", "chat_handlers")
    try:
        until = time.monotonic() + 60
        while (instance := read_instance(local.directory / "data")) is None or not is_ready(instance):
            assert up.poll() is None, up.communicate()
            assert time.monotonic() < until
        url = f"http://{instance.host}:{instance.port}"
        key = local.run("keys", "create", "--role", "admin", "--name", "ops", "--json").json["key"]
        remote_env = {name: text for name, text in local.environment.items() if name != "COGRAIL_DATA_DIR"}
        own = {
            "COGRAIL_SERVER_URL": url,
            "COGRAIL_API_KEY": key,
            "XDG_CONFIG_HOME": str(local.directory / "config"),
        }
        yield Pair(local, Shell(local.directory, remote_env | own), url, _make_jobs(local))
    finally:
        up.terminate()
        up.communicate(timeout=60)


def is_ready(instance: Any) -> bool:
    """Return whether the server of this instance is ready."""
    try:
        with urllib.request.urlopen(f"http://{instance.host}:{instance.port}/readyz", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _make_jobs(shell: Shell) -> dict[str, str]:
    jobs = {}
    for name in ("greet", "broken", "chatty"):
        answer = shell.run("submit", name, "--wait", "--json", "--label", "team=ops")
        jobs[name] = answer.json["job_id"]
    jobs["prefix"] = jobs["greet"][:13].replace("-", "")[:12]
    jobs["soon"] = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    jobs["slow"] = shell.submit("slow")
    jobs["nobody"] = shell.submit("nobody")
    jobs["ask"] = shell.submit("ask")
    while shell.run("show", jobs["slow"], "--json").json["nodes"][0]["status"] != "running":
        pass
    while (
        len(
            [
                node
                for node in shell.run("show", jobs["ask"], "--json").json["nodes"]
                if node["status"] == "waiting"
            ]
        )
        < 1
    ):
        pass
    while "handler" not in shell.run("explain", jobs["nobody"]).out:
        pass
    shell.run("pause", "queue", "gpu", "--reason", "driver update")
    shell.run("schedules", "create", "nightly", "greet", "--cron", "30 2 * * *", "--input", "name=Ada")
    shell.run("subscriptions", "add", "https://example.org/hook", "--type", "job.failed")
    return jobs


def same(text: str, pair: Pair) -> str:
    """Return the text without what differs from one run to the next, and without how the instance is named."""
    text = TASK_ID.sub("<task>", UUID.sub("<id>", text))
    for pattern in TIMES:
        text = pattern.sub("<time>", text)
    text = text.replace(f" --server {pair.url}", "")
    return re.sub(r"[ ]+$", "", re.sub(r"[ ]{2,}", "  ", text), flags=re.M)


def assert_same(pair: Pair, local: Answer, remote: Answer) -> None:
    assert remote.code == local.code, (local, remote)
    assert same(remote.out, pair) == same(local.out, pair)
    assert same(remote.err, pair) == same(local.err, pair)


READS = (
    "workflows",
    "workflows --json",
    "jobs",
    "jobs --json --limit 3",
    "jobs --status failed --workflow broken --json",
    "jobs --status waiting,running",
    "jobs --label team=ops --since 1h --json",
    "jobs --error broke",
    "jobs --text nothing-like-it",
    "jobs --limit 2 --before {greet}",
    "show {greet}",
    "show {prefix}",
    "show {greet} --json",
    "show {greet} --node each --json",
    "show {greet} --node hello",
    "show {greet} --result",
    "show {broken}",
    "show {broken} --node wrong",
    "show {broken} --result",
    "show {ask}",
    "events {greet}",
    "events {greet} --json",
    "events {greet} --follow",
    "events {broken} --node wrong --follow --json",
    "events {greet} --after 3 --json",
    "logs {chatty}",
    "logs {chatty} --json",
    "logs {chatty} --follow --grep printed",
    "logs {greet} --node hello",
    "explain {broken}",
    "explain {greet}",
    "explain {nobody}",
    "explain {ask} --json",
    "retry {broken} --preview",
    "retry {broken} --from fine --preview --json",
    "retry {greet} --from each --input name=Bob --preview",
    "bulk retry --workflow broken --preview",
    "bulk cancel --older-than 1w --preview --json",
    "pauses",
    "pauses --json",
    "schedules list",
    "schedules list --json",
    "schedules show nightly",
    "schedules show nightly --json",
    "schedules firings nightly",
    "schedules backfill nightly --from 2026-01-01T00:00:00Z --until 2026-01-03T00:00:00Z --preview",
    "subscriptions list",
    "subscriptions list --json",
    "deliveries list",
    "deliveries list --job {broken} --json",
    "keys list --json",
    "top --once --json",
    "publish greet.yaml nobody.yaml",
    "publish greet.yaml --json",
    "check greet.yaml",
    "schema --json",
)


@pytest.mark.parametrize("words", READS)
def test_a_command_that_reads_prints_the_same_through_a_server(pair: Pair, words: str) -> None:
    assert_same(pair, *pair.run(*words.split()))


ERRORS = (
    ("submit greet --not-before 2099-01-31T09:00:00Z", 2),
    ("submit nothing", 3),
    ("submit greet --version 9", 3),
    ("submit greet --input times=x --input nmae=y", 2),
    ("submit greet --idempotency-key é", 2),
    ("submit greet --correlation-id " + "x" * 65, 2),
    ("show 019a8f2e-77aa-7c3e-9d54-0b6f3c1a2d4e", 3),
    ("show 019a8f2e77aa", 3),
    ("show 019a8", 2),
    ("show ../../etc", 3),
    ("show {greet} --node helo", 3),
    ("show {broken} --result", 4),
    ("events {greet} --node helo", 3),
    ("logs {greet} --node helo", 3),
    ("logs {greet} --grep (", 2),
    ("explain 019a8f2e77aa", 3),
    ("cancel {greet}", 4),
    ("cancel 019a8f2e77aa", 3),
    ("retry {greet} --from helo", 3),
    ("retry {slow}", 4),
    ("approve {greet}", 4),
    ("approve {ask} third", 3),
    ("approve {ask} --data {", 2),
    ("pause workflow nothing", 3),
    ("pause queue gpu", 4),
    ("resume workflow greet", 4),
    ("resume job 019a8", 2),
    ("bulk cancel", 2),
    ("bulk show {greet}", 3),
    ("schedules show nothing", 3),
    ("schedules create nightly greet --cron @daily", 4),
    ("schedules create bad greet --cron often", 2),
    ("schedules resume nightly", 4),
    ("subscriptions remove 019a8f2e-77aa-7000-8000-000000000000", 3),
    ("subscriptions add ftp://example.org", 2),
    ("deliveries resend 019a8f2e-77aa-7000-8000-000000000000", 3),
    ("publish wrong.txt", 2),
    ("deliveries list --job ../x", 3),
)


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize(("words", "code"), ERRORS)
def test_an_error_is_the_same_through_a_server(pair: Pair, words: str, code: int, as_json: bool) -> None:
    local, remote = pair.run(*words.split(), *(["--json"] if as_json else []))
    assert local.code == code, local
    assert_same(pair, local, remote)


PAST = "schedules backfill past --from 2026-01-01T00:00:00Z --until 2026-01-01T12:00:00Z"
WRITES = (
    ["submit greet"],
    ["submit greet --wait"],
    ["submit greet --wait --json --label a=b --priority 3 --submitted-by me"],
    ["submit broken --wait"],
    ["submit slow --wait --timeout 0"],
    ["submit greet --json --not-before {soon} --submitted-by me"],
    ["retry {broken} --new-keys --wait"],
    ["retry {broken} --from fine --input-file none.json"],
    ["bulk cancel --workflow no_such --wait"],
    [
        "schedules create odd greet --cron @daily --input name=Bob",
        "schedules change odd --priority 2",
        "schedules remove odd",
    ],
    ["schedules pause nightly --reason moves", "schedules resume nightly"],
    ["schedules create past greet --cron @daily", *[PAST] * 2, "schedules remove past"],
    ["pause workflow greet --reason tea", "resume workflow greet"],
    ["pause queue cpu --json", "resume queue cpu --json"],
    ["pause job {slow}", "resume job {slow}"],
)


@pytest.mark.parametrize("steps", WRITES, ids=lambda steps: steps[0])
def test_a_command_that_changes_something_prints_the_same_through_a_server(
    pair: Pair, steps: list[str]
) -> None:
    (pair.local.directory / "none.json").write_text("{}")
    for shell_runs in zip(
        *([shell.run(*_filled(pair, step)) for step in steps] for shell in (pair.local, pair.remote)),
        strict=True,
    ):
        assert shell_runs[0].code in (0, 1, 5), shell_runs[0]
        assert_same(pair, *shell_runs)


def _filled(pair: Pair, step: str) -> list[str]:
    return [word.format(**pair.jobs) if word.startswith("{") else word for word in step.split()]


def test_no_command_is_forgotten() -> None:
    """Each command that a server can do is compared above, or has a test of its own below."""
    compared = {words.split()[0] for words in (*READS, *(step for steps in WRITES for step in steps))}
    below = {"cancel", "approve", "reject", "signal", "doctor", "profiles"}
    assert compared | below == {name for name, entry in ENTRIES.items() if not entry.is_local}


# -- with an object of its own for each way --------------------------------------------------------


def test_an_approval_is_answered_the_same_through_a_server(pair: Pair) -> None:
    for words in (["approve", "--by", "ann"], ["reject", "--reason", "no", "--by", "ann", "--json"]):
        answers = []
        for shell in (pair.local, pair.remote):
            job_id = shell.submit("one_ask")
            until = time.monotonic() + 30
            while "waiting" not in shell.run("show", job_id).out:
                assert time.monotonic() < until
            verb, *options = words
            answers.append(shell.run(verb, job_id, *options))
        assert answers[0].code == 0, answers
        assert_same(pair, *answers)


def test_the_key_answers_where_nobody_is_named(pair: Pair) -> None:
    job_id = pair.remote.submit("one_ask")
    while "waiting" not in pair.remote.run("show", job_id).out:
        pass
    assert pair.remote.run("signal", job_id, "ask", "approve", "--json").json["by"] == "ops"


def test_a_running_job_is_cancelled_the_same_through_a_server(pair: Pair) -> None:
    for option in ([], ["--json"]):
        answers = []
        for shell in (pair.local, pair.remote):
            job_id = shell.submit("ask", "--submitted-by", "me")
            answers.append(shell.run("cancel", job_id[:23], "--reason", "wrong file", *option))
        assert answers[0].code == 0, answers
        assert_same(pair, *answers)


def test_a_subscription_is_managed_the_same_through_a_server(pair: Pair) -> None:
    answers: list[list[Answer]] = []
    for shell in (pair.local, pair.remote):
        added = shell.run("subscriptions", "add", "https://example.org/own", "--header", "X-A=b", "--json")
        name = added.json["subscription_id"]
        rotated = shell.run("subscriptions", "rotate", name, "--overlap-hours", "0")
        enabled = shell.run("subscriptions", "enable", name, "--json")
        answers.append([rotated, enabled, shell.run("subscriptions", "remove", name)])
        assert added.json["secret"] != rotated.out.strip() != ""
    for local, remote in zip(*answers, strict=True):
        assert (local.code, remote.code) == (0, 0), (local, remote)
        assert same(remote.err, pair) == same(local.err, pair)
    assert _without(answers[0][1].json, "created_by") == _without(answers[1][1].json, "created_by")


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    ignored = {*names, "subscription_id", "created_at"}
    return {name: value for name, value in fields.items() if name not in ignored}


def test_an_idempotency_key_means_the_same_job_on_both_ways(pair: Pair) -> None:
    words = ["submit", "greet", "--idempotency-key", "order-4711", "--input", "name=Ada"]
    local, remote = pair.run(*words)
    assert local == remote
    for shell in (pair.local, pair.remote):
        answer = shell.run(*words[:-1], "name=Bob")
        assert answer.code == 4
        assert "order-4711" in answer.err or "different request" in answer.err or "key" in answer.err


def test_a_running_job_is_followed_through_a_server(pair: Pair) -> None:
    job_id = pair.remote.submit("slow")
    followers = [
        pair.remote.start("events", job_id, "--follow", "--json"),
        pair.remote.start("logs", job_id, "--follow"),
    ]
    until = time.monotonic() + 30
    while "running" not in pair.remote.run("show", job_id).out:
        assert time.monotonic() < until
    pair.remote.run("cancel", job_id)
    events, error = followers[0].communicate(timeout=60)
    assert followers[0].returncode == 0, error
    assert [json.loads(line)["event_type"] for line in events.splitlines()][-1] == "job_cancelled"
    _, error = followers[1].communicate(timeout=60)
    assert followers[1].returncode == 0, error


def test_progress_is_drawn_on_a_terminal_through_a_server(pair: Pair) -> None:
    code, drawn = pair.remote.run_on_terminal("submit", "greet", "--wait")
    assert code == 0
    assert "hello" in drawn
    assert "completed" in drawn


def test_doctor_shows_what_the_server_checks(pair: Pair) -> None:
    answer = pair.remote.run("doctor", "--json")
    names = {finding["name"] for finding in answer.json["findings"]}
    assert {"database", "schema", "orchestrators", "workers"} <= names
    assert answer.code == 0, answer
    assert "database" in pair.remote.run("doctor").out


def test_a_role_that_is_not_enough_exits_4(pair: Pair) -> None:
    key = pair.local.run("keys", "create", "--role", "viewer", "--json").json["key"]
    viewer = pair.remote.with_environment(COGRAIL_API_KEY=key)
    assert viewer.run("jobs").code == 0
    refused = viewer.run("submit", "greet")
    assert refused.code == 4
    assert refused.err.startswith("error: ")
    assert refused.err.count("\n") == 1


def test_a_key_that_is_wrong_or_missing_exits_2(pair: Pair) -> None:
    wrong = pair.remote.with_environment(COGRAIL_API_KEY="cog_aaaaaaaaaaaaaaaa_x").run("jobs")
    assert (wrong.code, wrong.out) == (2, "")
    assert "rejects the API key" in wrong.err
    missing = pair.remote.with_environment(COGRAIL_API_KEY="").run("jobs")
    assert missing.code == 2
    assert "requires an API key" in missing.err


def test_a_profile_is_enough_to_reach_the_server(pair: Pair) -> None:
    environment = {
        name: text
        for name, text in pair.remote.environment.items()
        if name not in ("COGRAIL_SERVER_URL", "COGRAIL_API_KEY")
    }
    shell = Shell(pair.local.directory, environment)
    (shell.directory / "ops.key").write_text(pair.remote.environment["COGRAIL_API_KEY"])
    assert shell.run("profiles", "add", "prod", "--server", pair.url, "--key-file", "ops.key").code == 0
    assert shell.run("--profile", "prod", "jobs", "--json").json["jobs"]
    assert shell.run("profiles", "use", "prod").code == 0
    assert shell.run("jobs", "--json").json["jobs"]
    timeout = shell.run("submit", "slow", "--wait", "--timeout", "0")
    assert timeout.code == 5
    assert "--profile prod" in timeout.err
    assert shell.run("profiles", "remove", "prod").code == 0
