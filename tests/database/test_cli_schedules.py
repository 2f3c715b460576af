"""Schedules from a terminal: every command of `cograil schedules`, for people and for programs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from lab import Lab

from cograil.verbs.schedules import fire_due

HELLO = "workflow_id: hello\ninputs: {name: {type: string}}\nnodes: {greet: {handler: hello_world}}\n"
RANGE = ("--from", "2026-01-01T00:00:00Z", "--until", "2026-01-03T00:00:00Z")
MAKE = ("create", "nightly", "hello", "--cron", "30 2 * * *", "--timezone", "Europe/Paris")


class Terminal:
    """Runs commands on a database."""

    def __init__(self, dsn: str) -> None:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("COGRAIL_")}
        self.environment = kept | {"COGRAIL_DATABASE_URL": dsn}

    async def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, data and talk."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "cograil.intake.cli", "schedules", *words),
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, talk = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), talk.decode()

    async def read(self, *words: str) -> Any:
        """What it says to programs."""
        code, out, talk = await self.run(*words, "--json")
        assert code == 0, talk
        return json.loads(out)


async def test_a_schedule_is_made_changed_paused_and_removed(lab: Lab, dsn: str) -> None:
    await lab.publish(HELLO)
    terminal = Terminal(dsn)
    made = await terminal.read(*MAKE, "--input", "name=Ada", "--overlap", "cancel", "--missed", "all")
    assert (made["timezone"], made["overlap"], made["missed"]) == ("Europe/Paris", "cancel", "all")
    assert (await terminal.run(*MAKE, "--input", "name=Ada"))[0] == 4  # the name is taken
    change = ("change", "nightly", "hello", "--cron", "0 5 * * *", "--input", "name=Grace")
    assert (await terminal.read(*change))["cron"] == "0 5 * * *"
    assert (await terminal.read("pause", "nightly", "--reason", "moving"))["paused_at"] is not None
    assert (await terminal.read("resume", "nightly"))["paused_at"] is None
    code, out, _ = await terminal.run("list")
    assert (code, "nightly" in out, "0 5 * * *" in out) == (0, True, True)
    assert await terminal.read("remove", "nightly") == {"name": "nightly", "is_removed": True}
    assert (await terminal.run("pause", "nightly"))[0] == 3
    audited = await lab.rows("select action from cograil.audit_log order by id")
    done = ["create", "change", "pause", "resume", "remove"]
    assert [action for (action,) in audited if "schedule" in action] == [f"{verb} schedule" for verb in done]


async def test_a_change_names_only_what_changes(lab: Lab, dsn: str) -> None:
    await lab.publish(HELLO.replace("inputs: {", "inputs: {size: {type: integer, default: 1}, "))
    terminal = Terminal(dsn)
    await terminal.read(*MAKE, "--input", "name=Ada", "--overlap", "cancel", "--priority", "3")
    changed = await terminal.read("change", "nightly", "--cron", "0 5 * * *", "--input", "size=2")
    assert (changed["cron"], changed["timezone"], changed["overlap"]) == (
        "0 5 * * *",
        "Europe/Paris",
        "cancel",
    )
    assert (changed["priority"], changed["input_params"]) == (3, {"name": "Ada", "size": 2})


async def test_a_schedule_runs_now_and_says_why_it_passed_over_moments(lab: Lab, dsn: str) -> None:
    await lab.publish("workflow_id: ask\nnodes: {q: {type: approval, approval: {message: well?}}}")
    terminal = Terminal(dsn)
    await terminal.read("create", "often", "ask", "--cron", "* * * * *")
    code, job, _ = await terminal.run("run", "often")
    assert code == 0
    await lab.rows("update cograil.firings set due_at = due_at - interval '1 hour'")
    await lab.rows("update cograil.schedules set next_at = date_trunc('minute', now())")
    async with lab.db.transaction("fire") as tx:
        fired = await fire_due(tx, lab.decider)
    assert [(one.schedule, one.outcome, one.job_id) for one in fired.passed] == [
        ("often", "overlapped", job.strip())
    ]
    code, out, _ = await terminal.run("show", "often")
    said = f"job {job.strip()} is still running, waiting for approval, and `overlap` is skip"
    assert (code, said in " ".join(out.split())) == (0, True), out


async def test_a_backfill_says_which_moments_before_it_submits(lab: Lab, dsn: str) -> None:
    await lab.publish(HELLO)
    terminal = Terminal(dsn)
    await terminal.read(*MAKE, "--input", "name=Ada")
    code, out, talk = await terminal.run("backfill", "nightly", *RANGE, "--preview")
    assert (code, out) == (0, "2026-01-01 01:30:00Z\n2026-01-02 01:30:00Z\n")
    assert "2 jobs would be submitted" in talk
    assert await lab.rows("select count(*) from cograil.jobs") == [(0,)]
    assert (await terminal.read("backfill", "nightly", *RANGE))["submitted"] == 2
    assert (await terminal.read("backfill", "nightly", *RANGE))["kept"] == 2  # each leads to one job
    code, out, _ = await terminal.run("firings", "nightly")
    assert (code, out.count("submitted")) == (0, 2)


async def test_what_is_no_schedule_is_refused(lab: Lab, dsn: str) -> None:
    await lab.publish(HELLO)
    terminal = Terminal(dsn)
    for words, code in (
        (("create", "x", "hello", "--cron", "61 * * * *", "--input", "name=a"), 2),
        (("create", "x", "hello", "--cron", "0 5 * * *", "--timezone", "Mars/Olympus"), 2),
        (("create", "x", "hello", "--cron", "0 5 * * *"), 2),  # an input is missing
        (("create", "x", "none", "--cron", "0 5 * * *"), 3),
        (("firings", "none"), 3),
        (("backfill", "none", *RANGE), 3),
    ):
        assert (await terminal.run(*words))[0] == code, words
    assert await lab.rows("select count(*) from cograil.schedules") == [(0,)]


async def test_commands_use_the_words_of_cron_and_jobs(lab: Lab, dsn: str) -> None:
    """No words of our own: a schedule has runs, which are due, skipped or missed."""
    await lab.publish(HELLO)
    terminal = Terminal(dsn)
    _, _, talk = await terminal.run(*MAKE, "--input", "name=Ada")
    assert talk.startswith("schedule nightly created; next run 20")
    _, output, _ = await terminal.run("firings", "nightly")
    assert output == "this schedule was not due yet\n"
    _, output, _ = await terminal.run("list")
    assert output.split("\n")[0].split("  ")[0] == "schedule"
    assert all(word in output for word in ("cron", "origin", "next run", "last run", "outcome"))
    _, _, talk = await terminal.run("pause", "nightly")
    assert talk == "schedule nightly paused; it does not run until it is resumed\n"
    printed = [output, talk]
    commands = (
        "",
        "create",
        "change",
        "list",
        "show",
        "run",
        "firings",
        "pause",
        "resume",
        "remove",
        "backfill",
    )
    for command in commands:
        code, output, _ = await terminal.run(*filter(None, [command]), "--help")
        assert code == 0
        printed.append(output)
    for word in ("moment", "pass over", "passed over", "became", "besides", "Whose", "by the calendar"):
        assert [text for text in printed if word in text] == [], word
