"""Containers that are taken up by the next worker, whatever became of them while nobody looked."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.apps.containers.container_site import ContainerSite, working

from cograil.apps.containers.runtime.container_slots import ContainerSlots
from cograil.apps.containers.settings import ContainerSettings

UNTIL_STOPPED = "echo ran >> runs; echo up; until [ -f stop ]; do sleep 0.1; done"
LATE = "select 1 from cograil.checkpoints where data ->> 'is_late' = 'true'"
LONG_AGO = """update cograil.checkpoints set data = (data::jsonb || '{"started_at": 1000}')::json"""


async def only_container(site: ContainerSite) -> str:
    (held,) = await site.engine.held({"cograil.node": "run"})
    return held.container


async def finish(site: ContainerSite, id: str) -> None:
    """Let this one come to its end."""
    ((job,),) = await site.lab.rows(
        "select job_id::text from cograil_containers.container_jobs where id = %(id)s", id=id
    )
    (site.data_dir / "workspaces" / f"{job}.run.1" / "stop").touch()


async def test_a_container_that_ended_in_time_unobserved_is_not_late(site: ContainerSite) -> None:
    async with working(site.lab):
        await site.start("quick", UNTIL_STOPPED, timeoutSeconds=60)
        await site.heard("quick", "log")
    await finish(site, "quick")
    await site.engine.wait(await only_container(site))
    await site.lab.rows(LONG_AGO)
    async with working(site.lab):
        assert await site.until("quick", "completed", "failed") == {
            "id": "quick",
            "status": "completed",
            "exitCode": 0,
        }
        await site.swept()


async def test_an_unobserved_container_past_its_timeout_is_stopped_by_the_next_worker(
    site: ContainerSite,
) -> None:
    async with working(site.lab):
        await site.start("late", UNTIL_STOPPED, timeoutSeconds=60)
        await site.heard("late", "log")
    await site.lab.rows(LONG_AGO)
    async with working(site.lab):
        ended = await site.until("late", "completed", "failed")
        await site.swept()
    assert (ended["status"], ended["exitCode"]) == ("failed", 137)
    assert ended["error"].startswith("timeout")


async def test_a_worker_that_takes_over_a_stopping_container_knows_why(
    site: ContainerSite, eventually: Any
) -> None:
    """It ends with 0 when it is told to stop; nobody is left who told it."""
    dying = "until [ -f stop ]; do sleep 0.1; done; exit 0"
    command = f"trap '{dying}' TERM; echo up; while true; do sleep 0.1; done"

    async def is_late() -> bool:
        return bool(await site.lab.rows(LATE))

    async with working(site.lab):
        await site.start("late", command, timeoutSeconds=1)
        await site.until("late", "running")
        container = await only_container(site)
        await eventually(is_late)
    await finish(site, "late")
    assert (await site.engine.wait(container)).exit_code == 0
    async with working(site.lab):
        ended = await site.until("late", "completed", "failed")
        await site.swept()
    assert (ended["status"], ended["exitCode"]) == ("failed", 137)
    assert ended["error"].startswith("timeout")


async def test_a_container_removed_while_unobserved_is_not_run_again(site: ContainerSite) -> None:
    artifacts = [{"id": "runs", "type": "read", "in": "runs", "depends": "job"}]
    async with working(site.lab):
        await site.start("gone", UNTIL_STOPPED, artifacts=artifacts)
        await site.heard("gone", "log")
    await site.engine.remove(await only_container(site))
    async with working(site.lab):
        ended = await site.until("gone", "completed", "failed")
        assert (await site.heard("gone", "artifact"))["content"] == "ran\n"
        await site.swept()
    assert (ended["status"], ended["exitCode"]) == ("failed", 137)
    assert site.kinds("gone").count("start") == 1


async def test_a_running_container_is_taken_over_without_waiting_for_a_slot(
    site: ContainerSite, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    names = ("first", "second")
    async with working(site.lab):
        for name in names:
            await site.start(name, UNTIL_STOPPED)
            await site.heard(name, "log")
    fewer = site.lab.settings.section(ContainerSettings).model_copy(update={"concurrency": 1})
    site.lab.settings = site.lab.settings.model_copy(update={"containers": fewer})
    slot_requests: list[bool] = []
    take_slot = ContainerSlots.one

    def noted(self: ContainerSlots, *, runs_already: bool = False) -> AbstractAsyncContextManager[None]:
        slot_requests.append(runs_already)
        return take_slot(self, runs_already=runs_already)

    monkeypatch.setattr(ContainerSlots, "one", noted)
    async with working(site.lab):
        await eventually(lambda: slot_requests == [True, True])
        await site.start("next", "true")
        await eventually(lambda: slot_requests == [True, True, False])
        assert len(await site.engine.held({"cograil.node": "run"})) == 2
        for name in names:
            await finish(site, name)
            assert (await site.until(name, "completed"))["exitCode"] == 0
        await site.until("next", "completed")
        await site.swept()


async def test_an_end_that_was_told_stays_when_the_files_are_out_of_reach(
    site: ContainerSite, tmp_path: Path
) -> None:
    """The machine with the workspace is lost while outputs are put: what is left of them fails."""
    requested = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requested.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(never, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    artifacts = [
        {"id": "known", "type": "read", "in": "x", "depends": "job"},
        {"id": "up", "type": "upload", "in": "x", "out": url, "depends": "job"},
        {"id": "next", "type": "list", "in": ".", "depends": "up"},
    ]
    callback = site.callback("start", "artifact", "exit", "complete")
    async with server:
        async with working(site.lab):
            await site.start("told", "echo ran > x; exit 3", artifacts=artifacts, callback=callback)
            await asyncio.wait_for(requested.wait(), 30)
        site.lab.settings = site.lab.settings.model_copy(update={"data_dir": tmp_path / "other"})
        async with working(site.lab):
            await site.heard("told", "complete")
            assert await site.show("told") == {"id": "told", "status": "failed", "exitCode": 3}
    kinds = ["start", "exit", "artifact", "artifact", "artifact", "complete"]
    assert site.kinds("told") == kinds, "it was not run again"
    events = {event["artifactId"]: event for event in site.events_of("told", "artifact")}
    assert events["known"]["content"] == "ran\n"
    assert events["up"]["error"].startswith("workspace_lost")
    assert events["next"]["error"].startswith("not run")
