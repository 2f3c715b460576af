"""The worked examples of docs/how-to/client.md run, and its list of methods is whole."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_client import ApiClient
from tests.support.client_methods import METHODS

PAGE = (Path(__file__).parents[2] / "docs/how-to/client.md").read_text("utf-8")


@pytest.fixture
def shown() -> dict[str, Any]:
    """Everything the page defines."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(block, names)
    return names


async def test_an_order_is_billed_once_and_its_job_is_followed_to_the_end(
    api: ApiClient, shown: dict[str, Any]
) -> None:
    url, key = f"http://127.0.0.1:{api.port}", await api.make_key("admin")
    async with api.harness.running():
        bills = [await asyncio.to_thread(shown["bill"], url, key, "Ada", "order-7") for _ in range(2)]
    assert bills[0] == bills[1]
    assert bills[0]["send"] == {"message": "Hello, Ada!"}
    jobs = (await api.get("/api/v1/jobs", key=key)).body["jobs"]
    assert len(jobs) == 1
    assert await asyncio.to_thread(shown["why"], url, key, jobs[0]["job_id"]) == "nothing"
    assert (await asyncio.to_thread(shown["why"], url, key, "x")).startswith("404 not_found")


async def test_a_failure_is_told_with_the_place_to_go_on_from(api: ApiClient, shown: dict[str, Any]) -> None:
    url, key = f"http://127.0.0.1:{api.port}", await api.make_key("admin")
    doomed = "workflow_id: doomed\nnodes: {a: {handler: fail, retry: {max_attempts: 1}}}"
    await api.post("/api/v1/workflows", {"source": doomed}, key=key)
    places: list[str] = []
    async with api.harness.running():
        while len(places) < 2:
            watching = asyncio.create_task(shown["watch"](url, key, places[-1] if places else None))
            while not watching.done():  # it begins with what is committed once it listens
                await api.post("/api/v1/jobs", {"workflow_id": "doomed"}, key=key)
                await asyncio.wait({watching}, timeout=0.2)
            places.append(await watching)
    assert places[0] != places[1]


def test_every_method_is_on_the_page() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert set(METHODS.values()) <= named
