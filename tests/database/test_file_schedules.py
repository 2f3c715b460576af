"""Schedules of workflow files: publishing makes them what the file says, and nothing else changes them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from browsing import Browser, token_of
from doors import Api
from lab import Lab

from cograil.definitions import read_workflow
from cograil.errors import Conflict
from cograil.model.schedules import Plan
from cograil.verbs import schedules as verbs
from cograil.verbs.file_schedules import sync_schedules
from cograil.verbs.publish import publish

FILE = "workflow_id: report\nversion: {version}\ninputs: {{region: {{type: string, default: x}}}}\n"
FILE += "nodes: {{write: {{handler: hello_world}}}}\n"
NIGHTLY = "schedules:\n  nightly: {cron: '30 2 * * *', timezone: Europe/Paris, inputs: {region: north}}\n"
STATE = "select name, cron, origin, paused_by, next_at from cograil.schedules order by name"


def text(schedules: str = NIGHTLY, version: int = 1) -> str:
    return FILE.format(version=version) + schedules


async def publish_file(lab: Lab, source: str) -> list[tuple[str, str]]:
    """Publish as commands do; what changed."""
    workflow = read_workflow(source)
    async with lab.db.transaction("publish") as tx:
        await publish(tx, workflow, source)
        return [tuple(one) for one in await sync_schedules(tx, lab.decider, workflow)]


async def test_the_schedules_are_what_the_file_says(lab: Lab) -> None:
    assert await publish_file(lab, text()) == [("nightly", "created")]
    ((*_, next_at),) = await lab.rows(STATE)
    await lab.rows("update cograil.schedules set next_at = next_at - interval '1 day'")
    assert await publish_file(lab, text()) == []
    ((*_, due_at),) = await lab.rows(STATE)
    assert due_at < next_at, "a moment that is due was lost by publishing the same again"
    assert await publish_file(lab, text(NIGHTLY.replace("30 2", "0 3"))) == [("nightly", "changed")]
    assert await publish_file(lab, text("")) == [("nightly", "paused")]
    assert await publish_file(lab, text("")) == []
    ((name, cron, origin, paused_by, _),) = await lab.rows(STATE)
    assert (name, cron, origin, paused_by) == ("nightly", "0 3 * * *", "file", "workflow file")
    assert await publish_file(lab, text()) == [("nightly", "resumed")]
    ((_, cron, _, paused_by, _),) = await lab.rows(STATE)
    assert (cron, paused_by) == ("30 2 * * *", None)


async def test_a_pause_of_people_stays_whatever_is_published(lab: Lab) -> None:
    await publish_file(lab, text())
    async with lab.db.transaction("schedule") as tx:
        await verbs.pause_schedule(tx, "default", "nightly", by="ada")
    for source in (text(NIGHTLY.replace("30 2", "0 3")), text(""), text()):
        await publish_file(lab, source)
        ((*_, paused_by, _),) = await lab.rows(STATE)
        assert paused_by == "ada"


async def test_a_schedule_that_left_its_file_is_resumed_only_when_it_is_detached(lab: Lab) -> None:
    await publish_file(lab, text())
    with pytest.raises(Conflict, match="was not removed from a workflow file"):
        await resume(lab, detach=True)
    await publish_file(lab, text(""))
    with pytest.raises(
        Conflict, match=r"removed from the file of workflow 'report': .* resume nightly --detach"
    ):
        await resume(lab)
    assert (await resume(lab, detach=True))["origin"] == "user"
    assert await publish_file(lab, text("")) == []
    ((*_, paused_by, _),) = await lab.rows(STATE)
    assert paused_by is None, "publishing the file paused a schedule that is not the file's any more"
    with pytest.raises(Conflict, match="exists already"):
        await publish_file(lab, text())


async def test_a_schedule_that_people_paused_leaves_its_file_too(lab: Lab) -> None:
    await publish_file(lab, text())
    async with lab.db.transaction("schedule") as tx:
        await verbs.pause_schedule(tx, "default", "nightly", by="ada", reason="moving")
    assert await publish_file(lab, text("")) == []
    async with lab.db.transaction("schedule") as tx:
        shown = await verbs.show_schedule(tx, "default", "nightly")
    assert shown["left_file_at"] is not None
    assert (shown["paused_by"], shown["paused_for"]) == ("ada", "moving")
    with pytest.raises(Conflict, match="--detach"):
        await resume(lab)
    await publish_file(lab, text())
    assert (await resume(lab))["left_file_at"] is None


async def resume(lab: Lab, *, detach: bool = False) -> dict[str, Any]:
    async with lab.db.transaction("schedule") as tx:
        return await verbs.resume_schedule(tx, "default", "nightly", detach=detach)


async def test_commands_say_that_a_schedule_left_its_file(lab: Lab, dsn: str) -> None:
    await publish_file(lab, text())
    await publish_file(lab, text(""))
    _, output = await cograil(dsn, "schedules", "list")
    assert "removed from" in output
    _, output = await cograil(dsn, "schedules", "show", "nightly")
    assert re.search(r"no longer in the file of workflow report, removed \d+ s ago: put it back", output)
    assert "schedules resume nightly --detach" in output
    assert "change it there" not in output
    code, output = await cograil(dsn, "schedules", "resume", "nightly")
    assert (code, "schedules resume nightly --detach" in output) == (4, True)
    code, output = await cograil(dsn, "schedules", "resume", "nightly", "--detach")
    assert (code, "schedule nightly resumed; next run " in output) == (0, True), output


async def test_the_page_says_that_a_schedule_left_its_file(lab: Lab, api: Api) -> None:
    browser = Browser(api)
    await publish_file(lab, text())
    await publish_file(lab, text(""))
    assert b"removed from file" in (await browser.get("/ui/schedules")).raw
    page = await browser.get("/ui/schedules/nightly")
    assert b"no longer in the file of workflow report" in page.raw
    assert b"Resume without file" in page.raw
    sent = {"token": token_of(page), "back": "/ui/schedules/nightly", "confirmed": "yes"}
    assert b"--detach" in (await browser.post("/ui/schedules/nightly/resume", sent)).raw
    await browser.post("/ui/schedules/nightly/resume", sent | {"detach": "yes"})
    ((_, _, origin, paused_by, _),) = await lab.rows(STATE)
    assert (origin, paused_by) == ("user", None)


async def test_the_api_says_that_a_schedule_left_its_file(lab: Lab, api: Api) -> None:
    await publish_file(lab, text())
    await publish_file(lab, text(""))
    place = "/api/v1/schedules/nightly"
    assert (await api.call("GET", place)).body["left_file_at"] is not None
    assert (await api.call("POST", f"{place}/resume")).status == 409
    resumed = await api.call("POST", f"{place}/resume", {"detach": True})
    assert (resumed.status, resumed.body["origin"], resumed.body["left_file_at"]) == (200, "user", None)


async def test_the_file_of_the_newest_version_counts(lab: Lab) -> None:
    await publish_file(lab, text())
    assert await publish_file(lab, text(NIGHTLY.replace("30 2", "0 3"), 2)) == [("nightly", "changed")]
    assert await publish_file(lab, text()) == []


async def test_names_and_changes_of_others_are_refused(lab: Lab) -> None:
    await publish_file(lab, text("", 1))
    plan = Plan("report", "@daily")
    async with lab.db.transaction("schedule") as tx:
        await verbs.create_schedule(tx, lab.decider, "default", "mine", plan)
    with pytest.raises(Conflict, match="schedules remove mine"):
        await publish_file(lab, text(NIGHTLY.replace("nightly", "mine")))
    await publish_file(lab, text())
    with pytest.raises(Conflict, match="in the file of workflow 'report'"):
        await publish_file(lab, text().replace("report", "other"))
    with pytest.raises(Conflict, match="change it there"):
        async with lab.db.transaction("schedule") as tx:
            await verbs.change_schedule(tx, lab.decider, "default", "nightly", plan)
    assert await publish_file(lab, text("")) == [("nightly", "paused")]  # and `mine` goes on
    assert [(row[0], row[3]) for row in await lab.rows(STATE)] == [
        ("mine", None),
        ("nightly", "workflow file"),
    ]


async def cograil(dsn: str, *words: str) -> tuple[int, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COGRAIL_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "cograil.intake.cli", *words),
        env=kept | {"COGRAIL_DATABASE_URL": dsn},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, " ".join(out.decode().split())


async def test_publish_and_show_say_where_a_schedule_comes_from(lab: Lab, dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "report.yaml"
    file.write_text(text())
    code, said = await cograil(dsn, "publish", str(file))
    assert (code, "report version 1 published schedule nightly created" in said) == (0, True), said
    file.write_text(text(NIGHTLY.replace("30 2", "0 3")))
    code, said = await cograil(dsn, "publish", str(file), "--json")
    assert (code, json.loads(said)["workflows"][0]["schedules"]) == (
        0,
        [{"name": "nightly", "change": "changed"}],
    )
    code, said = await cograil(dsn, "schedules", "show", "nightly")
    assert (code, "the file of workflow report" in said) == (0, True), said
    actions = await lab.rows("select action from cograil.audit_log order by id")
    assert actions == [("publish",), ("create schedule",), ("change schedule",)]


async def test_the_api_publishes_them_and_changes_only_what_is_named(api: Api) -> None:
    async def ask(method: str, path: str, body: Any = None) -> Any:
        return await api.call(method, f"/api/v1{path}", body)

    published = await ask("POST", "/workflows", {"source": text()})
    assert (published.status, published.body["schedules"]) == (
        201,
        [{"name": "nightly", "change": "created"}],
    )
    assert (await ask("GET", "/schedules/nightly")).body["origin"] == "file"
    assert (await ask("PATCH", "/schedules/nightly", {"priority": 1})).status == 409
    planned = {"name": "mine", "workflow_id": "report", "cron": "@daily", "timezone": "Europe/Paris"}
    assert (await ask("POST", "/schedules", planned | {"overlap": "allow"})).body["origin"] == "user"
    changed = (await ask("PATCH", "/schedules/mine", {"priority": 4, "input_params": {"region": "n"}})).body
    assert (changed["priority"], changed["input_params"]) == (4, {"region": "n"})
    assert (changed["cron"], changed["timezone"], changed["overlap"]) == ("@daily", "Europe/Paris", "allow")
    assert (await ask("PATCH", "/schedules/mine", {"cron": "61 * * * *"})).status == 422
    assert (await ask("PATCH", "/schedules/mine", {"cron": None})).status == 422
    assert (await ask("PATCH", "/schedules/none", {"priority": 1})).status == 404
