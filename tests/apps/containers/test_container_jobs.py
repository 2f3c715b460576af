"""Container jobs from their POST to their last event: real HTTP, a real engine, a real database."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.apps.containers.container_site import (
    ContainerSite,
    is_signed,
    open_container_site,
    site_settings,
    working,
)
from tests.support.webhook_receiver import OK, http_response

from cograil.apps.containers.runtime.container_runtime import Runtime


@pytest.fixture
async def anywhere(
    dsn: str, runtime: Runtime, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ContainerSite]:
    """A site on each runtime."""
    is_engine = where.startswith("unix:")
    monkeypatch.setenv("DOCKER_HOST", where if is_engine else "unix:///nowhere.sock")
    place = tmp_path / "data" if is_engine else Path(where)
    settings = site_settings(place, runtime="docker" if is_engine else "sandbox")
    async with open_container_site(dsn, runtime, settings) as site:
        yield site
        assert [str(finding) for finding in await site.lab.findings()] == []


async def test_a_container_job_from_its_post_to_its_last_event(anywhere: ContainerSite) -> None:
    site = anywhere
    async with working(site.lab):
        await site.start("my-job-123", "echo hello; echo oops >&2; exit 3", meta={"userId": "user-456"})
        assert await site.until("my-job-123", "failed") == {
            "id": "my-job-123",
            "status": "failed",
            "exitCode": 3,
        }
        assert await site.heard("my-job-123", "exit") == {
            "jobId": "my-job-123",
            "exitCode": 3,
            "meta": {"userId": "user-456"},
        }
        assert site.kinds("my-job-123")[0] == "start"
        assert site.kinds("my-job-123")[-1] == "exit"
        assert (site.lines("my-job-123"), site.lines("my-job-123", "stderr")) == (["hello"], ["oops"])
        for request in site.requests("my-job-123"):
            assert is_signed(request)
            assert request.headers["ce-source"] == request.event["source"] == "orchestrator/supervisor"
            assert request.headers["ce-id"] == request.event["id"]
            assert re.fullmatch(r"my-job-123-\d{19}", request.headers["ce-id"])
            assert request.headers["ce-subject"] == "my-job-123"
            assert request.headers["content-type"] == "application/cloudevents+json"
            assert request.event.keys() == {
                "specversion", "type", "source", "subject", "id", "time", "datacontenttype", "data",
            }  # fmt: skip
        await site.swept()


async def test_a_receiver_that_is_down_gets_each_event_later_and_as_it_was(site: ContainerSite) -> None:
    down = iter(range(3))
    site.receiver.script = lambda _: http_response(503) if next(down, None) is not None else OK
    async with working(site.lab):
        await site.start("told", "echo one; echo two >&2")
        await site.heard("told", "exit", seconds=60)
    sent: dict[str, set[tuple[bytes, str]]] = {}
    for request in site.receiver.requests:
        sent.setdefault(request.headers["ce-id"], set()).add(
            (request.body, request.headers["x-signature-256"])
        )
    assert len(site.receiver.requests) == len(sent) + 3
    assert all(len(bodies) == 1 for bodies in sent.values())
    assert site.kinds("told")[0] == "start"
    assert sorted(site.kinds("told")) == ["exit", "log", "log", "start"]
