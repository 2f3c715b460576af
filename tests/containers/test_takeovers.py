"""Containers that are taken up by the next worker, whatever became of them while nobody looked."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from house import House, working

from cograil.apps.containers.runtime.container_slots import ContainerSlots

UNTIL_STOPPED = "echo ran >> runs; echo up; until [ -f stop ]; do sleep 0.1; done"
LATE = "select 1 from cograil.checkpoints where data ->> 'is_late' = 'true'"
LONG_AGO = """update cograil.checkpoints set data = (data::jsonb || '{"started_at": 1000}')::json"""


async def only_container(house: House) -> str:
    (held,) = await house.engine.held({"cograil.node": "run"})
    return held.container


async def finish(house: House, id: str) -> None:
    """Let this one come to its end."""
    ((job,),) = await house.lab.rows(
        "select job_id::text from cograil.container_jobs where id = %(id)s", id=id
    )
    (house.data_dir / "workspaces" / f"{job}.run.1" / "stop").touch()


async def test_what_ended_in_time_while_nobody_looked_is_not_late(house: House) -> None:
    async with working(house.lab):
        await house.start("quick", UNTIL_STOPPED, timeoutSeconds=60)
        await house.heard("quick", "log")
    await finish(house, "quick")
    await house.engine.wait(await only_container(house))
    await house.lab.rows(LONG_AGO)
    async with working(house.lab):
        assert await house.until("quick", "completed", "failed") == {
            "id": "quick",
            "status": "completed",
            "exitCode": 0,
        }
        await house.swept()


async def test_what_runs_for_too_long_while_nobody_looks_is_stopped_by_the_next(house: House) -> None:
    async with working(house.lab):
        await house.start("late", UNTIL_STOPPED, timeoutSeconds=60)
        await house.heard("late", "log")
    await house.lab.rows(LONG_AGO)
    async with working(house.lab):
        ended = await house.until("late", "completed", "failed")
        await house.swept()
    assert (ended["status"], ended["exitCode"]) == ("failed", 137)
    assert ended["error"].startswith("timeout")


async def test_who_takes_over_while_it_is_stopped_knows_why(house: House, eventually: Any) -> None:
    """It ends with 0 when it is told to stop; nobody is left who told it."""
    dying = "until [ -f stop ]; do sleep 0.1; done; exit 0"
    command = f"trap '{dying}' TERM; echo up; while true; do sleep 0.1; done"

    async def is_late() -> bool:
        return bool(await house.lab.rows(LATE))

    async with working(house.lab):
        await house.start("late", command, timeoutSeconds=1)
        await house.until("late", "running")
        container = await only_container(house)
        await eventually(is_late)
    await finish(house, "late")
    assert (await house.engine.wait(container)).exit_code == 0
    async with working(house.lab):
        ended = await house.until("late", "completed", "failed")
        await house.swept()
    assert (ended["status"], ended["exitCode"]) == ("failed", 137)
    assert ended["error"].startswith("timeout")


async def test_what_was_removed_while_nobody_looked_is_not_run_again(house: House) -> None:
    artifacts = [{"id": "runs", "type": "read", "in": "runs", "depends": "job"}]
    async with working(house.lab):
        await house.start("gone", UNTIL_STOPPED, artifacts=artifacts)
        await house.heard("gone", "log")
    await house.engine.remove(await only_container(house))
    async with working(house.lab):
        ended = await house.until("gone", "completed", "failed")
        assert (await house.heard("gone", "artifact"))["content"] == "ran\n"
        await house.swept()
    assert (ended["status"], ended["exitCode"]) == ("failed", 137)
    assert house.kinds("gone").count("start") == 1


async def test_what_runs_already_waits_for_no_slot_and_leaves_none_to_the_next(
    house: House, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    names = ("first", "second")
    async with working(house.lab):
        for name in names:
            await house.start(name, UNTIL_STOPPED)
            await house.heard(name, "log")
    fewer = house.lab.settings.containers.model_copy(update={"concurrency": 1})
    house.lab.settings = house.lab.settings.model_copy(update={"containers": fewer})
    asked: list[bool] = []
    one = ContainerSlots.one

    def noted(self: ContainerSlots, *, runs_already: bool = False) -> AbstractAsyncContextManager[None]:
        asked.append(runs_already)
        return one(self, runs_already=runs_already)

    monkeypatch.setattr(ContainerSlots, "one", noted)
    async with working(house.lab):
        await eventually(lambda: asked == [True, True])
        await house.start("next", "true")
        await eventually(lambda: asked == [True, True, False])
        assert len(await house.engine.held({"cograil.node": "run"})) == 2
        for name in names:
            await finish(house, name)
            assert (await house.until(name, "completed"))["exitCode"] == 0
        await house.until("next", "completed")
        await house.swept()


async def test_an_end_that_was_told_stays_when_the_files_are_out_of_reach(
    house: House, tmp_path: Path
) -> None:
    """The machine with the workspace is lost while outputs are put: what is left of them fails."""
    asked = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(never, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    artifacts = [
        {"id": "known", "type": "read", "in": "x", "depends": "job"},
        {"id": "up", "type": "upload", "in": "x", "out": url, "depends": "job"},
        {"id": "next", "type": "list", "in": ".", "depends": "up"},
    ]
    callback = house.callback("start", "artifact", "exit", "complete")
    async with server:
        async with working(house.lab):
            await house.start("told", "echo ran > x; exit 3", artifacts=artifacts, callback=callback)
            await asyncio.wait_for(asked.wait(), 30)
        house.lab.settings = house.lab.settings.model_copy(update={"data_dir": tmp_path / "other"})
        async with working(house.lab):
            await house.heard("told", "complete")
            assert await house.show("told") == {"id": "told", "status": "failed", "exitCode": 3}
    kinds = ["start", "exit", "artifact", "artifact", "artifact", "complete"]
    assert house.kinds("told") == kinds, "it was not run again"
    told = {one["artifactId"]: one for one in house.told("told", "artifact")}
    assert told["known"]["content"] == "ran\n"
    assert told["up"]["error"].startswith("workspace_lost")
    assert told["next"]["error"].startswith("not run")
