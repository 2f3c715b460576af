"""How container jobs end: by themselves, by cancel, by time, by memory; in workflows too; what is left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from house import IMAGE, House, open_site, working
from test_wire import settled

from cograil.apps.containers import queries as container_jobs
from cograil.apps.containers.runtime.container_workspaces import ContainerWorkspaces
from cograil.apps.containers.runtime.docker_engine import ContainerEngine
from cograil.apps.containers.sweeper import settle_ended
from cograil.model.ids import new_id

RUNNING = "trap 'echo told; exit 0' TERM; echo up; while true; do sleep 0.1; done"
STUBBORN = "trap '' TERM; echo up; while true; do sleep 0.1; done"


async def test_cancel_stops_a_running_container(house: House) -> None:
    async with working(house.lab):
        await house.start("long", RUNNING)
        await house.until("long", "running")
        await house.heard("long", "log")
        (container,) = await house.engine.held({"cograil.node": "run"})
        assert (await house.call("DELETE", "/long")).status == 204
        assert await house.show("long") == {
            "id": "long",
            "status": "cancelled",
            "exitCode": 137,
            "error": "cancelled",
        }
        assert (await house.heard("long", "exit"))["exitCode"] == 137
        await house.swept()
        assert (await house.call("DELETE", "/long")).status == 204
        assert (await house.show("long"))["status"] == "cancelled"
    assert house.kinds("long").count("exit") == 1
    assert container.labels["cograil.run"] == "1"


async def test_a_job_that_is_cancelled_elsewhere_tells_its_exit_too(house: House) -> None:
    async with working(house.lab):
        await house.start("long", RUNNING)
        await house.until("long", "running")
        ((job,),) = await house.lab.rows("select job_id::text from cograil.container_jobs")
        await house.lab.cancel(job)
        assert (await house.show("long"))["status"] == "cancelled"
        assert (await house.heard("long", "exit"))["exitCode"] == 137
        await house.swept()
        await settled(house, "long")


async def test_a_job_that_is_cancelled_where_nothing_runs_containers_tells_its_exit_too(house: House) -> None:
    nowhere = house.lab.settings.containers.model_copy(update={"runtime": "none"})
    house.lab.settings = house.lab.settings.model_copy(update={"containers": nowhere})
    await house.start("never")
    ((job,),) = await house.lab.rows("select job_id::text from cograil.container_jobs")
    await house.lab.cancel(job)
    async with working(house.lab):
        assert (await house.heard("never", "exit"))["exitCode"] == 137
    assert (await house.show("never"))["status"] == "cancelled"


async def test_one_that_is_slow_to_stop_keeps_no_other(
    house: House, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    told: list[str] = []
    may_stop, stop = asyncio.Event(), ContainerEngine.stop

    async def stop_slowly(self: ContainerEngine, container: str, seconds: int = 10) -> None:
        told.append(container)
        if container == told[0]:
            await may_stop.wait()
        await stop(self, container, 0)

    monkeypatch.setattr(ContainerEngine, "stop", stop_slowly)
    async with working(house.lab):
        for id in ("slow", "quick"):
            await house.start(id, RUNNING)
            await house.heard(id, "log")
        await house.call("DELETE", "/slow")
        await eventually(lambda: len(told) == 1)
        await house.call("DELETE", "/quick")
        await eventually(lambda: len(house.rooms()) == 1)
        assert [one.container for one in await house.engine.held({"cograil.node": "run"})] == told[:1]
        may_stop.set()
        await house.swept()


async def test_a_sweep_goes_on_until_all_are_settled_and_forgotten(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_jobs, "AT_A_TIME", 2)
    for number in range(5):
        await house.start(f"job-{number}")
    for (job,) in await house.lab.rows("select job_id::text from cograil.container_jobs"):
        await house.lab.cancel(job)
    settings = house.lab.settings.containers
    await settle_ended(house.lab.db, settings)
    long_ago = "update cograil.container_jobs set settled_at = settled_at - interval '1 day' returning id"
    assert len(await house.lab.rows(f"{long_ago}, settled_at")) == 5
    assert not await house.lab.rows("select 1 from cograil.container_jobs where settled_at is null")
    await settle_ended(house.lab.db, settings)
    assert not await house.lab.rows("select 1 from cograil.container_jobs")


async def test_a_workspace_that_cannot_be_removed_holds_up_no_other(
    house: House, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """As those of a worker that is not root, where the containers were."""
    rooms = ContainerWorkspaces(house.data_dir / "workspaces")
    stuck, *others = (f"{new_id()}.run.1" for _ in range(4))
    remove = ContainerWorkspaces.remove

    def refuse(self: ContainerWorkspaces, name: str) -> None:
        if name == stuck:
            raise PermissionError(13, "Permission denied")
        remove(self, name)

    async with working(house.lab):
        with monkeypatch.context() as patched:
            patched.setattr(ContainerWorkspaces, "remove", refuse)
            for name in (stuck, *others):
                rooms.make(name)
            await eventually(lambda: house.rooms() == [stuck])
        await house.swept()


async def test_cancel_while_inputs_are_fetched(house: House) -> None:
    asked = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(never, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, working(house.lab):
        artifacts = [{"id": "slow", "type": "download", "in": f"http://127.0.0.1:{port}/", "out": "x"}]
        await house.start("fetching", artifacts=artifacts)
        await asyncio.wait_for(asked.wait(), 20)
        rooms = house.rooms()
        await asyncio.sleep(1.2)  # two sweeps: that nothing happens cannot be waited for
        assert rooms == house.rooms() != [], "a job that fetches its inputs is not swept"
        assert await house.show("fetching") == {"id": "fetching", "status": "accepted"}
        assert (await house.call("DELETE", "/fetching")).status == 204
        await house.swept()
        assert (await house.show("fetching"))["status"] == "cancelled"
        await house.heard("fetching", "exit")
    assert house.kinds("fetching") == ["exit"]


async def test_a_container_that_runs_for_too_long_is_stopped(house: House) -> None:
    async with working(house.lab):
        await house.start("late", RUNNING, timeoutSeconds=1)
        ended = await house.until("late", "failed")
        assert ended["exitCode"] == 137
        assert ended["error"].startswith("timeout")
        assert (await house.heard("late", "exit"))["error"].startswith("timeout")
        await house.swept()
    assert house.lines("late") == ["up", "told"], "it was asked before it was killed"


async def test_what_does_not_stop_is_killed_after_ten_seconds(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is given ten, and here takes one: that it does kill then is seen in test_runtimes."""
    given: list[int] = []
    stop = ContainerEngine.stop

    async def stop_soon(self: ContainerEngine, container: str, seconds: int = 0) -> None:
        given.append(seconds)
        await stop(self, container, 1)

    monkeypatch.setattr(ContainerEngine, "stop", stop_soon)
    async with working(house.lab):
        await house.start("stubborn", STUBBORN, timeoutSeconds=1)
        assert (await house.until("stubborn", "failed"))["exitCode"] == 137
        await house.start("cancelled", STUBBORN)
        await house.heard("cancelled", "log")
        await house.call("DELETE", "/cancelled")
        await house.swept()
    assert given == [10, 10]


async def test_too_much_memory_is_told_as_such(house: House) -> None:
    async with working(house.lab):
        await house.start("hungry", "yes | tail -n 1000000000", memory=16)
        ended = await house.until("hungry", "failed", seconds=60)
        told = await house.heard("hungry", "exit")
    assert "out of memory" in ended["error"] == told["error"]


async def test_an_image_that_cannot_be_had_fails_the_job_and_is_named(house: House) -> None:
    async with working(house.lab):
        await house.start("nowhere", image="nowhere/nothing:1")
        ended = await house.until("nowhere", "failed")
        assert (await house.heard("nowhere", "exit"))["exitCode"] == ended["exitCode"] == -1
        await house.swept()
    assert "nowhere/nothing:1" in ended["error"]
    assert house.kinds("nowhere") == ["exit"]


async def test_the_end_of_the_container_decides_while_outputs_are_put(house: House) -> None:
    gate = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await gate.wait()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(slow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    up = {"id": "up", "type": "upload", "in": "x", "out": f"http://127.0.0.1:{port}/", "depends": "job"}
    async with server, working(house.lab):
        await house.start("putting", "echo x > x", artifacts=[up])
        assert (await house.until("putting", "completed"))["exitCode"] == 0
        assert (await house.call("DELETE", "/putting")).status == 204
        assert (await house.show("putting"))["status"] == "completed"
        gate.set()
        assert (await house.heard("putting", "artifact"))["status"] == "success"
        await house.swept()


async def test_fifty_at_once_all_tell_their_start_and_their_exit(house: House) -> None:
    async with working(house.lab):
        names = [f"job-{number}" for number in range(50)]
        await asyncio.gather(*(house.start(name, f"echo {name}") for name in names))
        for name in names:
            await house.until(name, "completed", seconds=100)
            await house.heard(name, "exit")
        await house.swept()
    assert {name: (house.kinds(name), house.lines(name)) for name in names} == {
        name: (["start", "log", "exit"], [name]) for name in names
    }


# -- in workflows ---------------------------------------------------------------------------------------

FLOW = f"""
workflow_id: flow
inputs:
  greeting: {{type: string}}
nodes:
  box:
    type: container
    container:
      image: {IMAGE}
      command: "echo $GREETING > out.txt; echo working"
      memory: 64
      environment: {{GREETING: "{{{{ inputs.greeting }}}}"}}
      artifacts:
        - {{id: out, type: read, in: out.txt, depends: job}}
    next: say
  say: {{handler: echo, params: {{said: "{{{{ nodes.box.output.artifacts.out.content }}}}"}}}}
"""
FAILING = f"""
workflow_id: failing
nodes:
  box:
    type: container
    container: {{image: {IMAGE}, command: "echo once >> runs; exit 7", memory: 64}}
    retry: {{max_attempts: 2, initial_delay_seconds: 0}}
"""


MISSING = """
workflow_id: missing
nodes:
  box:
    type: container
    container: {image: "nowhere/nothing:1", memory: 64}
    retry: {max_attempts: 3, initial_delay_seconds: 60}
"""


async def test_an_image_that_is_missing_fails_its_node_at_once(house: House) -> None:
    """It is not tried three times; and it is said how to have it."""
    never = house.lab.settings.containers.model_copy(update={"pull": "never"})
    house.lab.settings = house.lab.settings.model_copy(update={"containers": never})
    async with working(house.lab):
        job = await house.lab.submit(MISSING)
        await house.lab.ended(job, 30)
        node = (await house.lab.nodes(job))["box"]
    assert (node["status"], node["attempt"], node["error"]["code"]) == ("failed", 1, "image_not_found")
    assert "COGRAIL_CONTAINERS__PULL" in node["error"]["message"]


async def test_a_container_is_a_node_of_any_workflow(house: House) -> None:
    async with working(house.lab):
        job = await house.lab.submit(FLOW, {"greeting": "hi {{ there }}"})
        ended = await house.lab.ended(job, 30)
        nodes = await house.lab.nodes(job)
        await house.swept()
        lines = await house.lab.rows("select lines from cograil.task_logs where job_id = %(job)s", job=job)
    assert ended["status"] == "completed", ended["error"]
    assert nodes["box"]["output"]["exitCode"] == 0
    assert nodes["say"]["output"]["echoed_params"] == {"said": "hi {{ there }}\n"}
    assert any("working" in str(line) for line in lines)


async def test_the_example_runs_to_its_end(house: House) -> None:
    example = (Path(__file__).parents[2] / "examples" / "container.yaml").read_text("utf-8")
    async with working(house.lab):
        job = await house.lab.submit(example.replace("alpine:latest", IMAGE), {"words": "up"})
        ended = await house.lab.ended(job, 30)
        nodes = await house.lab.nodes(job)
        await house.swept()
    assert ended["status"] == "completed", ended["error"]
    assert nodes["tell"]["output"]["echoed_params"] == {"shouted": "UP"}


async def test_a_node_whose_container_fails_is_tried_again_from_the_beginning(house: House) -> None:
    async with working(house.lab):
        job = await house.lab.submit(FAILING)
        ended = await house.lab.ended(job, 30)
        node: dict[str, Any] = (await house.lab.nodes(job))["box"]
        await house.swept()
    assert (ended["status"], node["attempt"]) == ("failed", 2)
    assert node["error"]["code"] == "exit_code"
    assert node["error"]["details"]["exitCode"] == 7


async def test_a_node_that_takes_too_long_leaves_no_container(house: House) -> None:
    text = FAILING.replace("echo once >> runs; exit 7", "sleep 60").replace(
        "retry:", "timeout_seconds: 2\n    retry:"
    )
    async with open_site(), working(house.lab):
        job = await house.lab.submit(text)
        ended = await house.lab.ended(job, 40)
        await house.swept()
    assert (ended["status"], ended["error"]["code"]) == ("failed", "timeout")
