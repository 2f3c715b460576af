"""How container jobs end: by themselves, by cancel, by time, by memory; in workflows too; what is left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.apps.containers.container_site import IMAGE, ContainerSite, open_file_server, settled, working

from cograil.apps.containers import queries as container_jobs
from cograil.apps.containers.runtime.container_workspaces import ContainerWorkspaces
from cograil.apps.containers.runtime.docker_engine import ContainerEngine
from cograil.apps.containers.settings import ContainerSettings
from cograil.apps.containers.sweeper import settle_ended
from cograil.model.ids import new_id

RUNNING = "trap 'echo told; exit 0' TERM; echo up; while true; do sleep 0.1; done"
STUBBORN = "trap '' TERM; echo up; while true; do sleep 0.1; done"


async def test_cancel_stops_a_running_container(site: ContainerSite) -> None:
    async with working(site.lab):
        await site.start("long", RUNNING)
        await site.until("long", "running")
        await site.heard("long", "log")
        (container,) = await site.engine.held({"cograil.node": "run"})
        assert (await site.call("DELETE", "/long")).status == 204
        assert await site.show("long") == {
            "id": "long",
            "status": "cancelled",
            "exitCode": 137,
            "error": "cancelled",
        }
        assert (await site.heard("long", "exit"))["exitCode"] == 137
        await site.swept()
        assert (await site.call("DELETE", "/long")).status == 204
        assert (await site.show("long"))["status"] == "cancelled"
    assert site.kinds("long").count("exit") == 1
    assert container.labels["cograil.run"] == "1"


async def test_a_job_that_is_cancelled_elsewhere_tells_its_exit_too(site: ContainerSite) -> None:
    async with working(site.lab):
        await site.start("long", RUNNING)
        await site.until("long", "running")
        ((job,),) = await site.lab.rows("select job_id::text from cograil_containers.container_jobs")
        await site.lab.cancel(job)
        assert (await site.show("long"))["status"] == "cancelled"
        assert (await site.heard("long", "exit"))["exitCode"] == 137
        await site.swept()
        await settled(site, "long")


async def test_a_job_that_is_cancelled_where_nothing_runs_containers_tells_its_exit_too(
    site: ContainerSite,
) -> None:
    nowhere = site.lab.settings.section(ContainerSettings).model_copy(update={"runtime": "none"})
    site.lab.settings = site.lab.settings.model_copy(update={"containers": nowhere})
    await site.start("never")
    ((job,),) = await site.lab.rows("select job_id::text from cograil_containers.container_jobs")
    await site.lab.cancel(job)
    async with working(site.lab):
        assert (await site.heard("never", "exit"))["exitCode"] == 137
    assert (await site.show("never"))["status"] == "cancelled"


async def test_a_container_that_is_slow_to_stop_delays_no_other(
    site: ContainerSite, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    stopped: list[str] = []
    may_stop, stop = asyncio.Event(), ContainerEngine.stop

    async def stop_slowly(self: ContainerEngine, container: str, seconds: int = 10) -> None:
        stopped.append(container)
        if container == stopped[0]:
            await may_stop.wait()
        await stop(self, container, 0)

    monkeypatch.setattr(ContainerEngine, "stop", stop_slowly)
    async with working(site.lab):
        for id in ("slow", "quick"):
            await site.start(id, RUNNING)
            await site.heard(id, "log")
        await site.call("DELETE", "/slow")
        await eventually(lambda: len(stopped) == 1)
        await site.call("DELETE", "/quick")
        await eventually(lambda: len(site.rooms()) == 1)
        assert [
            container.container for container in await site.engine.held({"cograil.node": "run"})
        ] == stopped[:1]
        may_stop.set()
        await site.swept()


async def test_a_sweep_goes_on_until_all_are_settled_and_forgotten(
    site: ContainerSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_jobs, "AT_A_TIME", 2)
    for number in range(5):
        await site.start(f"job-{number}")
    for (job,) in await site.lab.rows("select job_id::text from cograil_containers.container_jobs"):
        await site.lab.cancel(job)
    settings = site.lab.settings.section(ContainerSettings)
    await settle_ended(site.lab.db, settings)
    long_ago = (
        "update cograil_containers.container_jobs set settled_at = settled_at - interval '1 day' returning id"
    )
    assert len(await site.lab.rows(f"{long_ago}, settled_at")) == 5
    assert not await site.lab.rows("select 1 from cograil_containers.container_jobs where settled_at is null")
    await settle_ended(site.lab.db, settings)
    assert not await site.lab.rows("select 1 from cograil_containers.container_jobs")


async def test_a_workspace_that_cannot_be_removed_holds_up_no_other(
    site: ContainerSite, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """As those of a worker that is not root, where the containers were."""
    rooms = ContainerWorkspaces(site.data_dir / "workspaces")
    stuck, *others = (f"{new_id()}.run.1" for _ in range(4))
    remove = ContainerWorkspaces.remove

    def refuse(self: ContainerWorkspaces, name: str) -> None:
        if name == stuck:
            raise PermissionError(13, "Permission denied")
        remove(self, name)

    async with working(site.lab):
        with monkeypatch.context() as patched:
            patched.setattr(ContainerWorkspaces, "remove", refuse)
            for name in (stuck, *others):
                rooms.make(name)
            await eventually(lambda: site.rooms() == [stuck])
        await site.swept()


async def test_cancel_while_inputs_are_fetched(site: ContainerSite) -> None:
    requested = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requested.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(never, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, working(site.lab):
        artifacts = [{"id": "slow", "type": "download", "in": f"http://127.0.0.1:{port}/", "out": "x"}]
        await site.start("fetching", artifacts=artifacts)
        await asyncio.wait_for(requested.wait(), 20)
        rooms = site.rooms()
        await asyncio.sleep(1.2)  # two sweeps: that nothing happens cannot be waited for
        assert rooms == site.rooms() != [], "a job that fetches its inputs is not swept"
        assert await site.show("fetching") == {"id": "fetching", "status": "accepted"}
        assert (await site.call("DELETE", "/fetching")).status == 204
        await site.swept()
        assert (await site.show("fetching"))["status"] == "cancelled"
        await site.heard("fetching", "exit")
    assert site.kinds("fetching") == ["exit"]


async def test_a_container_that_runs_for_too_long_is_stopped(site: ContainerSite) -> None:
    async with working(site.lab):
        await site.start("late", RUNNING, timeoutSeconds=1)
        ended = await site.until("late", "failed")
        assert ended["exitCode"] == 137
        assert ended["error"].startswith("timeout")
        assert (await site.heard("late", "exit"))["error"].startswith("timeout")
        await site.swept()
    assert site.lines("late") == ["up", "told"], "it was asked before it was killed"


async def test_a_container_that_does_not_stop_is_killed_after_ten_seconds(
    site: ContainerSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is given ten, and here takes one: that it does kill then is seen in test_runtimes."""
    grace_periods: list[int] = []
    stop = ContainerEngine.stop

    async def stop_soon(self: ContainerEngine, container: str, seconds: int = 0) -> None:
        grace_periods.append(seconds)
        await stop(self, container, 1)

    monkeypatch.setattr(ContainerEngine, "stop", stop_soon)
    async with working(site.lab):
        await site.start("stubborn", STUBBORN, timeoutSeconds=1)
        assert (await site.until("stubborn", "failed"))["exitCode"] == 137
        await site.start("cancelled", STUBBORN)
        await site.heard("cancelled", "log")
        await site.call("DELETE", "/cancelled")
        await site.swept()
    assert grace_periods == [10, 10]


async def test_a_container_out_of_memory_is_reported_as_such(site: ContainerSite) -> None:
    async with working(site.lab):
        await site.start("hungry", "yes | tail -n 1000000000", memory=16)
        ended = await site.until("hungry", "failed", seconds=60)
        event = await site.heard("hungry", "exit")
    assert "out of memory" in ended["error"] == event["error"]


async def test_an_image_that_cannot_be_had_fails_the_job_and_is_named(site: ContainerSite) -> None:
    async with working(site.lab):
        await site.start("nowhere", image="nowhere/nothing:1")
        ended = await site.until("nowhere", "failed")
        assert (await site.heard("nowhere", "exit"))["exitCode"] == ended["exitCode"] == -1
        await site.swept()
    assert "nowhere/nothing:1" in ended["error"]
    assert site.kinds("nowhere") == ["exit"]


async def test_the_end_of_the_container_decides_while_outputs_are_put(site: ContainerSite) -> None:
    gate = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await gate.wait()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(slow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    up = {"id": "up", "type": "upload", "in": "x", "out": f"http://127.0.0.1:{port}/", "depends": "job"}
    async with server, working(site.lab):
        await site.start("putting", "echo x > x", artifacts=[up])
        assert (await site.until("putting", "completed"))["exitCode"] == 0
        assert (await site.call("DELETE", "/putting")).status == 204
        assert (await site.show("putting"))["status"] == "completed"
        gate.set()
        assert (await site.heard("putting", "artifact"))["status"] == "success"
        await site.swept()


async def test_fifty_containers_at_once_all_send_start_and_exit(site: ContainerSite) -> None:
    async with working(site.lab):
        names = [f"job-{number}" for number in range(50)]
        await asyncio.gather(*(site.start(name, f"echo {name}") for name in names))
        for name in names:
            await site.until(name, "completed", seconds=100)
            await site.heard(name, "exit")
        await site.swept()
    assert {name: (site.kinds(name), site.lines(name)) for name in names} == {
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


async def test_an_image_that_is_missing_fails_its_node_at_once(site: ContainerSite) -> None:
    """It is not tried three times; and it is said how to have it."""
    never = site.lab.settings.section(ContainerSettings).model_copy(update={"pull": "never"})
    site.lab.settings = site.lab.settings.model_copy(update={"containers": never})
    async with working(site.lab):
        job = await site.lab.submit(MISSING)
        await site.lab.ended(job, 30)
        node = (await site.lab.nodes(job))["box"]
    assert (node["status"], node["attempt"], node["error"]["code"]) == ("failed", 1, "image_not_found")
    assert "COGRAIL_CONTAINERS__PULL" in node["error"]["message"]


async def test_a_container_is_a_node_of_any_workflow(site: ContainerSite) -> None:
    async with working(site.lab):
        job = await site.lab.submit(FLOW, {"greeting": "hi {{ there }}"})
        ended = await site.lab.ended(job, 30)
        nodes = await site.lab.nodes(job)
        await site.swept()
        lines = await site.lab.rows("select lines from cograil.task_logs where job_id = %(job)s", job=job)
    assert ended["status"] == "completed", ended["error"]
    assert nodes["box"]["output"]["exitCode"] == 0
    assert nodes["say"]["output"]["echoed_params"] == {"said": "hi {{ there }}\n"}
    assert any("working" in str(line) for line in lines)


async def test_the_example_runs_to_its_end(site: ContainerSite) -> None:
    example = (Path(__file__).parents[3] / "examples" / "container.yaml").read_text("utf-8")
    async with working(site.lab):
        job = await site.lab.submit(example.replace("alpine:latest", IMAGE), {"words": "up"})
        ended = await site.lab.ended(job, 30)
        nodes = await site.lab.nodes(job)
        await site.swept()
    assert ended["status"] == "completed", ended["error"]
    assert nodes["tell"]["output"]["echoed_params"] == {"shouted": "UP"}


async def test_a_node_whose_container_fails_is_tried_again_from_the_beginning(site: ContainerSite) -> None:
    async with working(site.lab):
        job = await site.lab.submit(FAILING)
        ended = await site.lab.ended(job, 30)
        node: dict[str, Any] = (await site.lab.nodes(job))["box"]
        await site.swept()
    assert (ended["status"], node["attempt"]) == ("failed", 2)
    assert node["error"]["code"] == "exit_code"
    assert node["error"]["details"]["exitCode"] == 7


async def test_a_node_that_takes_too_long_leaves_no_container(site: ContainerSite) -> None:
    text = FAILING.replace("echo once >> runs; exit 7", "sleep 60").replace(
        "retry:", "timeout_seconds: 2\n    retry:"
    )
    async with open_file_server(), working(site.lab):
        job = await site.lab.submit(text)
        ended = await site.lab.ended(job, 40)
        await site.swept()
    assert (ended["status"], ended["error"]["code"]) == ("failed", "timeout")
