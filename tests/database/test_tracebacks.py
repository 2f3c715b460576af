"""Where a handler broke: kept once, in the event, and shown with the node."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest
from browsing import Browser
from doors import Api
from lab import Lab

from cograil.runners.context import Fail
from cograil.store.reading import find_traceback

ONCE = "workflow_id: w\nnodes:\n  a: {handler: breaks, retry: {max_attempts: 1}}\n"


@pytest.fixture
def browser(api: Api) -> Browser:
    return Browser(api)


async def run_command(dsn: str, *words: str) -> tuple[int, str]:
    """The exit code of a command, and what it printed on one line."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COGRAIL_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "cograil.intake.cli", *words),
        env=kept | {"COGRAIL_DATABASE_URL": dsn},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, " ".join(output.decode().split())


async def breaks() -> dict[str, int]:
    raise ValueError("here it breaks")


async def test_the_traceback_of_the_last_failed_attempt_is_found(lab: Lab) -> None:
    lab.registry.register(breaks, "breaks")
    async with lab.running():
        job = await lab.ended(await lab.submit(ONCE))
    assert job["status"] == "failed"
    async with lab.db.single("test") as tx:
        traceback = await find_traceback(tx, job["job_id"], "a")
        assert traceback is not None
        assert "in breaks" in traceback.text
        assert "ValueError: here it breaks" in traceback.text
        assert (traceback.job_id, traceback.node_id) == (job["job_id"], "a")
        assert await find_traceback(tx, job["job_id"], "nobody") is None


CHILD = "workflow_id: child\nversion: 1\nnodes:\n  inner: {handler: breaks, retry: {max_attempts: 1}}\n"
MIDDLE = """
workflow_id: middle
version: 1
nodes:
  deeper: {type: subworkflow, retry: {max_attempts: 1}, subworkflow: {workflow_id: child}}
"""
PARENT = MIDDLE.replace("middle", "parent").replace("deeper", "sub")


async def fail_in_child(lab: Lab, text: str) -> tuple[str, list[str]]:
    """Run a job of this workflow to its failure; its id, and those of the jobs inside, the innermost last."""
    lab.registry.register(breaks, "breaks")
    await lab.publish(CHILD)
    await lab.publish(MIDDLE)
    async with lab.running():
        job = (await lab.ended(await lab.submit(text)))["job_id"]
    query = "select id::text from cograil.jobs where parent_job is not null order by created_at, id"
    return job, [row[0] for row in await lab.rows(query)]


async def test_the_error_of_a_subworkflow_names_the_child_job(lab: Lab) -> None:
    job, (child,) = await fail_in_child(lab, PARENT)
    message = f"child job {child} failed: ValueError: here it breaks"
    assert (await lab.job(job))["error"]["message"] == message
    assert (await lab.nodes(job))["sub"]["error"]["message"] == message


async def test_the_traceback_of_a_subworkflow_is_that_of_its_child_job(lab: Lab) -> None:
    job, (child,) = await fail_in_child(lab, PARENT)
    async with lab.db.single("test") as tx:
        traceback = await find_traceback(tx, job, "sub")
    assert traceback is not None
    assert "ValueError: here it breaks" in traceback.text
    assert (traceback.job_id, traceback.node_id) == (child, "inner")


async def test_the_traceback_is_found_in_the_innermost_job(lab: Lab) -> None:
    job, (_, innermost) = await fail_in_child(lab, PARENT.replace("child", "middle"))
    async with lab.db.single("test") as tx:
        traceback = await find_traceback(tx, job, "sub")
    assert traceback is not None
    assert (traceback.job_id, traceback.node_id) == (innermost, "inner")


async def test_a_job_that_a_handler_names_in_its_error_is_not_looked_into(lab: Lab) -> None:
    """It may belong to another tenant."""
    other, _ = await fail_in_child(lab, ONCE)

    async def names_another() -> None:
        details = {"job_id": other, "error": {"node_id": "a"}}
        raise Fail("no", code="child_failed", details=details)

    lab.registry.register(names_another, "names_another")
    async with lab.running():
        job = await lab.ended(await lab.submit(ONCE.replace("breaks", "names_another")))
    async with lab.db.single("test") as tx:
        traceback = await find_traceback(tx, job["job_id"], "a")
    assert traceback is None or traceback.job_id == job["job_id"]


async def test_commands_name_the_child_job_of_a_traceback(lab: Lab, dsn: str) -> None:
    job, (child,) = await fail_in_child(lab, PARENT)
    for words in (("show", job, "--node", "sub"), ("show", job)):
        code, output = await run_command(dsn, *words)
        assert code == 0
        assert f"child job {child}" in output
    _, output = await run_command(dsn, "show", job, "--node", "sub")
    assert f"traceback of the last failed attempt of node inner of child job {child}" in output
    assert "in breaks" in output


async def test_the_page_of_a_job_names_the_child_job_of_a_traceback(lab: Lab, browser: Browser) -> None:
    job, (child,) = await fail_in_child(lab, PARENT)
    page = (await browser.get(f"/ui/jobs/{job}")).raw.decode()
    assert "Traceback in the child job" in page
    assert f'href="/ui/jobs/{child}/nodes/inner"' in page
    assert "in breaks" in page
    page = (await browser.get(f"/ui/jobs/{job}/nodes/sub")).raw.decode()
    assert f'href="/ui/jobs/{child}/nodes/inner"' in page
    assert "in breaks" in page
