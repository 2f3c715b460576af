"""The first half hour of a developer: run, see why it failed, look, edit, run again."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from shell import Answer, Shell, shell_in

HANDLERS = """
import asyncio
import logging
import sys

from cograil import handler

log = logging.getLogger(__name__)


@handler("noisy")
async def noisy(ctx):
    print("printed in a coroutine")
    log.info("logged %s", "for information")
    await asyncio.to_thread(print, "printed in a thread")
    ctx.log.info("said by ctx", rows=3)


@handler("noisy_thread")
def noisy_thread(ctx):
    print("without an end", end="")
    print("on stderr", file=sys.stderr)


@handler("noisy_child", process=True)
def noisy_child(ctx):
    print("printed in a child")
    log.error("logged in a child")


@handler("broken")
def broken(ctx):
    return {}["nothing here"]


@handler("answer")
def answer(ctx):
    return {"answer": 1}
"""

NOISY = """
workflow_id: noisy
nodes:
  a: {handler: noisy, next: b}
  b: {handler: noisy_thread, next: c}
  c: {handler: noisy_child, next: d}
  d: {handler: broken, retry: {max_attempts: 1}}
"""

ANSWER = "workflow_id: answer\nnodes:\n  a: {handler: answer}\n"
GUEST = 'from cograil import handler\n\n\n@handler("guest")\ndef guest(ctx):\n    return {"is": "guest"}\n'


def make_shell(directory: Path) -> Shell:
    shell = shell_in(directory, PYTHONDONTWRITEBYTECODE="1")
    (directory / "handlers.py").write_text(HANDLERS)
    (directory / "noisy.yaml").write_text(NOISY)
    (directory / "flows").mkdir()
    (directory / "flows" / "answer.yaml").write_text(ANSWER)
    return shell


@dataclass(frozen=True)
class Desk:
    """A shell beside `cograil up --dev`, and what was seen before that was started."""

    shell: Shell
    failed: Answer  # a run that failed, where nothing ran
    shown: Answer  # the command that it hinted at, as it was printed
    explained: Answer

    @property
    def data(self) -> tuple[str, str]:
        return "--data-dir", str(self.shell.directory / "else where")

    def run(self, *words: str) -> Answer:
        return self.shell.run(*words, *self.data)

    @property
    def job(self) -> str:
        (job,) = self.run("jobs", "--workflow", "noisy", "--json").json["jobs"]
        return str(job["job_id"])


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    shell = make_shell(tmp_path_factory.mktemp("developer"))
    data = ("--data-dir", str(shell.directory / "else where"))
    failed = run_apart(shell, "run", "noisy.yaml", "--app", "handlers", *data)
    (job,) = re.findall(r"^job (\S+)$", failed.err, re.M)
    command = failed.err.rpartition("`cograil ")[2].partition("`")[0]
    shown, explained = shell.run(*shlex.split(command)), shell.run("explain", job, *data)
    up = shell.start("up", "--port", "0", "--dev", "--workflows", "flows", "--app", "handlers", *data)
    try:
        wait_until(lambda: up.poll() is not None or "answer" in shell.run("workflows", *data).out)
        yield Desk(shell, failed, shown, explained)
    finally:
        up.terminate()
        up.communicate(timeout=60)


def run_apart(shell: Shell, *words: str) -> Answer:
    process = shell.start(*words)
    out, err = process.communicate(timeout=120)
    return Answer(process.returncode, out, err)


def wait_until(is_so: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_failed_run_shows_the_traceback_and_says_each_thing_once(desk: Desk) -> None:
    run = desk.failed
    assert run.code == 1
    assert run.out == ""  # what handlers print is not the answer
    assert run.err.count("Traceback (most recent call last)") == 1
    assert 'return {}["nothing here"]' in run.err
    after = run.err.partition("job  failed\n")[2]
    assert after.count("KeyError: 'nothing here' [handler_error]") == 1
    assert "failed: node d failed: KeyError" in after


def test_commands_that_look_start_the_database_for_a_moment(desk: Desk) -> None:
    assert (desk.shown.code, desk.explained.code) == (0, 0)
    assert 'return {}["nothing here"]' in desk.shown.out
    assert "node d failed: KeyError: 'nothing here'" in desk.explained.out
    assert f"`cograil show {desk.job} --node d --data-dir '" in desk.explained.out


def test_every_command_writes_times_in_one_way(desk: Desk) -> None:
    for words in (("events", desk.job), ("events", desk.job, "--node", "d"), ("logs", desk.job)):
        assert all(
            re.search(r"\d\d:\d\d:\d\d(\.\d{3})? UTC  ", line) for line in desk.run(*words).out.splitlines()
        )
    events = desk.run("events", desk.job, "--node", "d", "--json").json["events"]
    assert {event["node_id"] for event in events} == {"d"}


def test_what_handlers_print_and_log_is_kept(desk: Desk) -> None:
    lines = desk.run("logs", desk.job, "--json").json["logs"]
    kept = [(line["node_id"], line.get("logger"), line["level"], line["message"]) for line in lines]
    assert kept == [
        ("a", "stdout", "info", "printed in a coroutine"),
        ("a", "handlers", "info", "logged for information"),
        ("a", "stdout", "info", "printed in a thread"),
        ("a", None, "info", "said by ctx"),
        ("b", "stderr", "warning", "on stderr"),
        ("b", "stdout", "info", "without an end"),
        ("c", "stdout", "info", "printed in a child"),
        ("c", "handlers", "error", "logged in a child"),
    ]
    found = desk.run("logs", desk.job, "--grep", "THREAD|child", "--node", "a")
    assert "printed in a thread" in found.out
    assert len(found.out.splitlines()) == 1
    assert "nothing was logged" in desk.run("logs", desk.job, "--node", "d").err
    followed = desk.run("logs", desk.job, "--follow", "--json")
    assert len(followed.out.splitlines()) == len(lines)


def test_what_handlers_print_still_goes_to_the_terminal(desk: Desk) -> None:
    for line in ("printed in a coroutine", "printed in a thread", "without an end", "printed in a child"):
        assert line in desk.failed.err


def test_jobs_are_found_by_time_error_and_status(desk: Desk) -> None:
    def found(*words: str) -> list[str]:
        return [one["job_id"] for one in desk.run("jobs", *words, "--json").json["jobs"]]

    assert found("--status", "failed,cancelled", "--since", "1h", "--error", "nothing HERE") == [desk.job]
    assert found("--since", "1h", "--until", "2026-01-31T09:00:00Z") == []
    assert found("--until", "2h") == []
    assert found("--label", "team=none") == []
    assert desk.run("jobs", "--status", "failed,odd").code == 2


def test_a_path_of_a_file_is_not_a_module(desk: Desk) -> None:
    for path in ("handlers.py", "./handlers"):
        answer = desk.run("run", "noisy.yaml", "--app", path)
        assert answer.code == 2
        assert "say --app handlers" in answer.err


def result_of(desk: Desk) -> dict[str, dict[str, int]]:
    answer = desk.run("submit", "answer", "--wait", "--json", "--timeout", "60")
    result: dict[str, dict[str, int]] = answer.json["result"]
    return result


def test_run_brings_a_worker_for_the_handlers_of_its_app(desk: Desk) -> None:
    directory = desk.shell.directory
    (directory / "visiting.py").write_text(GUEST)
    (directory / "guest.yaml").write_text("workflow_id: guest\nnodes:\n  g: {handler: guest}\n")
    answer = run_apart(desk.shell, "run", "guest.yaml", "--app", "visiting", "--timeout", "60", *desk.data)
    assert answer.code == 0, answer.err
    assert "runs a worker beside it for guest" in answer.err
    assert '"guest"' in answer.out


def test_an_edited_handler_and_an_edited_file_are_used_at_once(desk: Desk) -> None:
    assert result_of(desk)["a"] == {"answer": 1}
    file = desk.shell.directory / "handlers.py"
    file.write_text(file.read_text().replace('{"answer": 1}', '{"answer": 22}'))
    wait_until(lambda: result_of(desk)["a"] == {"answer": 22})
    file = desk.shell.directory / "flows" / "answer.yaml"
    file.write_text(ANSWER + "  b: {handler: answer}\n")
    wait_until(lambda: "b" in result_of(desk))
    (found,) = desk.run("workflows", "--json").json["workflows"]
    assert found["version"] == 1


def test_a_syntax_error_in_a_handler_module_is_told_to_whoever_waits(desk: Desk) -> None:
    file = desk.shell.directory / "handlers.py"
    text = file.read_text()
    line = text.count("\n") + 1
    file.write_text(text + "def broken(:\n")
    error = f"the app 'handlers' cannot be imported: SyntaxError: invalid syntax (handlers.py, line {line})"

    def explained() -> str:
        job = desk.run("submit", "answer").out.strip()
        return desk.run("explain", job).out

    wait_until(lambda: error in explained())
    waited = desk.run("submit", "answer", "--wait", "--timeout", "6")
    assert error in " ".join(waited.err.split())
    file.write_text(text)
    wait_until(lambda: desk.run("submit", "answer", "--wait", "--timeout", "20").code == 0)
    assert error not in explained()


def test_another_tenant_has_its_own_workflows_and_jobs(desk: Desk) -> None:
    assert desk.run("publish", "greet.yaml", "--tenant", "acme").code == 0
    assert desk.run("submit", "greet").code == 3
    done = desk.run("submit", "greet", "--tenant", "acme", "--wait", "--label", "team=ops", "--json")
    assert done.code == 0
    job = done.json["job_id"]
    assert desk.run("show", job).code == 3
    assert desk.run("show", job, "--tenant", "acme").code == 0
    words = ("jobs", "--tenant", "acme", "--label", "team=ops", "--since", "1h", "--json")
    assert [one["job_id"] for one in desk.run(*words).json["jobs"]] == [job]


def test_a_watcher_of_documents_joins_the_instance(desk: Desk) -> None:
    watcher = desk.shell.start("documents", "watch", "--data", "comics", *desk.data)
    try:
        assert watcher.stderr is not None
        said = [watcher.stderr.readline()]
        assert "this is one more watcher and worker of it" in said[0]
        while '"ready"' not in said[-1]:
            assert watcher.poll() is None, said
            said.append(watcher.stderr.readline())
        assert (desk.shell.directory / "comics" / "in").is_dir()
    finally:
        watcher.terminate()
        watcher.communicate(timeout=60)
    again = desk.run("up", "--port", "0")
    assert again.code == 4
    assert "another cograil" in again.err
