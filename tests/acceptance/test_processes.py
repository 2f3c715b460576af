"""What whole processes promise: start, live through kills, stop."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from gateway_site import answers, free_port
from instances import Running, Start, lives, open_client_lab
from lab import Lab

from cograil import logs

HELLO = "workflow_id: hello\nnodes:\n  greet: {handler: hello_world, params: {name: Ada}}\n"
LONG = "workflow_id: long\nnodes:\n  rest: {handler: sleep, params: {seconds: 60}}\n"
STEPS = """
workflow_id: steps
nodes:
  walk: {handler: echo, params: {steps: 20, step_delay: 0.1}, retry: {initial_delay_seconds: 0.1}}
"""
CHAIN = """
workflow_id: chain
nodes:
  a: {handler: sleep, params: {seconds: 0.1}, retry: {initial_delay_seconds: 0.1}, next: b}
  b: {handler: sleep, params: {seconds: 0.1}, retry: {initial_delay_seconds: 0.1}}
"""


async def running(lab: Lab, job_id: str, node_id: str) -> bool:
    """Whether a worker has this node in its hands."""
    return (await lab.nodes(job_id))[node_id]["task_state"] == "running"


async def started(start: Start, eventually: Any, *arguments: str, **variables: str) -> Running:
    """`cograil up`, ready."""
    one = start("up", "--port", "0", *arguments, **variables)
    await eventually(one.is_ready, timeout=60)
    return one


async def test_up_answers_the_probes_and_runs_a_job(start: Start, eventually: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    one = await started(start, eventually, COGRAIL_CONTAINERS__METRICS_PORT=str(port))
    assert one.get("/livez") == (200, {"alive": True, "status": "ok"})
    status, body = one.get("/readyz")
    assert (status, body["ready"]) == (200, True)
    without = {name: state for name, state in body["checks"].items() if name != "containers"}
    parts = ("database", "schema", "orchestrator", "worker", "relay", "draining", "clock", "workflows")
    assert without == dict.fromkeys(parts, "ok")
    assert body["status"] == body["checks"]["containers"].partition(":")[0], "some machines have no engine"
    async with one.lab() as lab:
        job = await lab.ended(await lab.submit(HELLO))
    assert job["status"] == "completed"
    assert "Hello, Ada!" in str(job["result"])
    assert "Hello, Ada!" in one.page(f"/ui/jobs/{job['job_id']}")
    counted = one.metrics()
    assert counted['cograil_jobs_ended_total{status="completed"}'] == 1
    await eventually(lambda: one.metrics()['cograil_tasks_reported_total{outcome="completed"}'] == 1)
    assert one.metrics()["cograil_tasks_claimed_total"] == 1
    assert counted['cograil_processes{kind="worker"}'] == 1
    assert counted["process_resident_memory_bytes"] > 0
    assert counted["cograil_tasks_claimed_total"] == 1, "the worker is asked too, which is a child"
    assert counted["jobs_active"] == 0
    assert one.metrics(f"http://127.0.0.1:{port}")["cograil_tasks_claimed_total"] == 1


@pytest.mark.usefixtures("used_data_dir")
async def test_a_second_up_is_told_who_is_there_and_a_taken_port_is_named(
    start: Start, eventually: Any, tmp_path: Path
) -> None:
    one = await started(start, eventually)
    second = start("up", "--port", "0")
    assert second.ended() == 4
    assert f"process {one.process.pid}" in second.said
    port = urlsplit(one.url).port
    third = start("up", "--port", str(port), "--data-dir", str(tmp_path / "other"))
    assert third.ended() == 4
    assert f"port {port}" in third.said
    assert one.get("/readyz")[0] == 200


@pytest.mark.usefixtures("used_data_dir")
async def test_a_killed_up_takes_its_children_along_and_the_next_one_goes_on(
    start: Start, eventually: Any
) -> None:
    one = await started(start, eventually)
    async with one.lab() as lab:
        job_id = await lab.submit(STEPS)
        await eventually(lambda: running(lab, job_id, "walk"))
    children = psutil.Process(one.process.pid).children(recursive=True)
    one.send(signal.SIGKILL)
    one.ended()
    await eventually(lambda: not any(lives(child) for child in children))
    again = await started(start, eventually)
    async with again.lab() as lab:
        assert (await lab.ended(job_id))["status"] == "completed"


@pytest.mark.usefixtures("used_data_dir")
async def test_a_killed_worker_is_replaced_long_before_its_lease_ends(start: Start, eventually: Any) -> None:
    one = await started(start, eventually, COGRAIL_LEASE__SECONDS="60")
    async with one.lab() as lab:
        job_id = await lab.submit(STEPS)
        await eventually(lambda: running(lab, job_id, "walk"))
        worker = one.worker()
        assert worker is not None
        worker.kill()
        assert (await lab.ended(job_id))["status"] == "completed"
        assert (await lab.nodes(job_id))["walk"]["attempt"] == 2
    assert "worker ended, starting another" in one.events()
    assert one.get("/readyz")[0] == 200


@pytest.mark.usefixtures("used_data_dir")
async def test_a_killed_postgres_is_started_again_and_work_goes_on(start: Start, eventually: Any) -> None:
    one = await started(start, eventually)
    server = one.postgres()
    assert server is not None
    server.kill()
    await eventually(lambda: "PostgreSQL had ended and was started again" in one.events())
    await eventually(lambda: one.get("/readyz")[0] == 200)
    async with one.lab() as lab:
        assert (await lab.ended(await lab.submit(HELLO)))["status"] == "completed"


@pytest.mark.usefixtures("used_data_dir")
async def test_sigterm_hands_back_what_runs_and_does_not_count_it(start: Start, eventually: Any) -> None:
    one = await started(start, eventually)
    async with one.lab() as lab:
        job_id = await lab.submit(LONG)
        await eventually(lambda: running(lab, job_id, "rest"))
    began = time.monotonic()
    one.send(signal.SIGTERM)
    assert one.ended() == 0
    assert time.monotonic() - began < 8
    assert "stopped" in one.events()
    again = await started(start, eventually)
    async with again.lab() as lab:
        await eventually(lambda: running(lab, job_id, "rest"))
        assert (await lab.nodes(job_id))["rest"]["attempt"] == 2
        told = [event["data"] for event in await lab.events(job_id)]
        assert [data["attempt"] for data in told if data.get("code") == "released"] == [1]
        assert [data["retry_count"] for data in told if "retry_count" in data] == [0]


@pytest.mark.usefixtures("used_data_dir")
async def test_while_it_drains_up_lives_but_is_not_ready_and_a_second_signal_ends_it(
    start: Start, eventually: Any
) -> None:
    one = await started(start, eventually, COGRAIL_WORKER__GRACE_SECONDS="60")
    async with one.lab() as lab:
        job_id = await lab.submit(LONG)
        await eventually(lambda: running(lab, job_id, "rest"))
    one.send(signal.SIGTERM)
    await eventually(lambda: one.get("/readyz")[0] == 503)
    assert one.get("/readyz")[1]["checks"]["draining"] == "stopping"
    assert one.get("/livez")[0] == 200
    one.send(signal.SIGTERM)
    assert one.ended(5) == 128 + signal.SIGTERM


@pytest.mark.usefixtures("used_data_dir")
async def test_a_client_that_never_finishes_its_request_does_not_hold_the_stop(
    start: Start, eventually: Any
) -> None:
    one = await started(start, eventually)
    address = urlsplit(one.url)
    with socket.create_connection((address.hostname, address.port)) as slow:
        slow.sendall(b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
        one.send(signal.SIGINT)
        assert one.ended() == 0


async def test_any_number_of_parts_share_the_work_and_the_rest_goes_on_when_some_are_killed(
    start: Start, eventually: Any, dsn: str
) -> None:
    at = {"COGRAIL_DATABASE_URL": dsn, "COGRAIL_DATABASE__ALLOW_UNSAFE": "true"}
    parts = [start(kind, **at) for kind in ("orchestrator", "orchestrator", "worker", "worker")]
    for part in parts:
        await eventually(part.is_ready, timeout=30)
    async with open_client_lab(dsn) as lab:
        jobs = [await lab.submit(CHAIN) for _ in range(100)]
        await eventually(lambda: has_started(lab, jobs[-1]))
        parts[0].send(signal.SIGKILL)
        parts[2].send(signal.SIGKILL)
        ends = {(await lab.ended(job_id, timeout=30))["status"] for job_id in jobs}
        assert ends == {"completed"}
    for part in (parts[1], parts[3]):
        part.send(signal.SIGTERM)
        assert part.ended() == 0


async def has_started(lab: Lab, job_id: str) -> bool:
    return (await lab.nodes(job_id))["a"]["task_state"] == "running"


async def test_a_worker_ends_although_a_thread_of_a_handler_does_not(
    start: Start, eventually: Any, dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "stubborn.py").write_text(
        "import time\nfrom cograil import handler\n\n"
        "@handler('stubborn')\ndef stubborn() -> dict:\n    time.sleep(1000)\n"
    )
    at = {"COGRAIL_DATABASE_URL": dsn, "COGRAIL_DATABASE__ALLOW_UNSAFE": "true"}
    orchestrator, worker = start("orchestrator", **at), start("worker", "--app", "stubborn", **at)
    await eventually(orchestrator.is_ready, timeout=30)
    await eventually(worker.is_ready, timeout=30)
    async with open_client_lab(dsn) as lab:
        job_id = await lab.submit("workflow_id: s\nnodes:\n  s: {handler: stubborn}\n")
        await eventually(lambda: running(lab, job_id, "s"))
    worker.send(signal.SIGTERM)
    assert worker.ended(30) == 0


@pytest.mark.usefixtures("used_data_dir")
async def test_the_workflows_of_a_directory_are_published_and_a_bad_file_is_only_reported(
    start: Start, eventually: Any, tmp_path: Path
) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    (flows / "hello.yaml").write_text(HELLO)
    (flows / "bad.yml").write_text("workflow_id: bad\nnodes: 3\n")
    (flows / "unknown.yml").write_text("workflow_id: unknown\nnodes:\n  a: {handler: nobody_knows}\n")
    one = await started(start, eventually, "--workflows", str(flows))
    events = one.events()
    assert events.count("workflow not published") == 1
    assert "bad.yml:2" in one.said
    assert events.count("a handler of a workflow is missing") == 1
    async with one.lab() as lab:
        published = await lab.rows("select workflow_id from cograil.workflows where not is_draft order by 1")
    assert [name for (name,) in published] == ["hello", "unknown"]


@pytest.mark.usefixtures("used_data_dir")
async def test_up_is_ready_once_the_directory_is_published(
    start: Start, eventually: Any, tmp_path: Path
) -> None:
    flows, port = tmp_path / "flows", free_port()
    flows.mkdir()
    for number in range(60):
        (flows / f"{number}.yaml").write_text(HELLO.replace("workflow_id: hello", f"workflow_id: w{number}"))
    start("up", "--workflows", str(flows), COGRAIL_PORT=str(port))
    url = f"http://127.0.0.1:{port}"
    await eventually(lambda: answers(f"{url}/readyz") == 200)
    assert {answers(f"{url}/api/v1/workflows/w{number}") for number in range(60)} == {200}


@pytest.mark.parametrize("command", ["up", "worker"])
async def test_an_app_that_cannot_be_imported_is_shown_as_its_author_wrote_it(
    command: str, start: Start, tmp_path: Path, dsn: str
) -> None:
    (tmp_path / "broken.py").write_text("def half():\n    return 1 / 0\n\nhalf()\n")
    at = {"COGRAIL_DATABASE_URL": dsn, "COGRAIL_DATABASE__ALLOW_UNSAFE": "true", "COGRAIL_PORT": "0"}
    one = start(command, "--app", "broken", **at)
    assert one.ended() == 2
    assert "broken.py" in one.said
    assert "ZeroDivisionError" in one.said
    assert "cograil/processes" not in one.said
    missing = start(command, "--app", "not_there", **at)
    assert missing.ended() == 2
    assert "there is no module 'not_there'" in missing.said


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (["up"], {"COGRAIL_QUEUES__STRICT": "true"}, "no queue is named"),
        (["worker"], {"COGRAIL_QUEUES__STRICT": "true"}, "no queue is named"),
        (["server"], {"COGRAIL_QUEUES__STRICT": "true"}, "no queue is named"),
        (["up", "--host", "0.0.0.0"], {}, "there are no keys yet"),
        (["up", "--workflows", "nowhere"], {}, "there is no such directory"),
    ],
)
def test_what_makes_no_sense_does_not_start(
    arguments: list[str], variables: dict[str, str], said: str, start: Start
) -> None:
    one = start(*arguments, **variables)
    assert one.ended() == 2
    assert said in one.said


def test_a_part_without_an_instance_or_with_an_old_schema_says_what_to_do(
    start: Start, empty_dsn: str
) -> None:
    lonely = start("worker")
    assert lonely.ended() == 3
    assert "cograil up" in lonely.said
    at = {"COGRAIL_DATABASE_URL": empty_dsn, "COGRAIL_DATABASE__ALLOW_UNSAFE": "true"}
    early = start("orchestrator", **at)
    assert early.ended() == 2
    assert "cograil db migrate" in early.said


async def test_a_part_answers_probes_on_its_own_port(start: Start, eventually: Any, dsn: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    at = {"COGRAIL_DATABASE_URL": dsn, "COGRAIL_DATABASE__ALLOW_UNSAFE": "true"}
    one = start("worker", "--health-port", str(port), **at)
    await eventually(one.is_ready, timeout=30)
    status, body = one.get("/readyz", f"http://127.0.0.1:{port}")
    assert (status, set(body["checks"])) == (200, {"database", "schema", "worker", "draining", "clock"})
    assert one.metrics(f"http://127.0.0.1:{port}")["cograil_tasks_held"] == 0


def test_a_log_line_that_cannot_be_written_is_counted_and_forgotten() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream, before = os.fdopen(writer, "w"), logs.dropped
    logs.Lines(stream).msg("nobody reads this")
    assert logs.dropped == before + 1
    with pytest.raises(BrokenPipeError):
        stream.close()
