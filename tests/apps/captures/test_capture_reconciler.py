"""Captures whose job ended without ending them, or is gone: each ends, once, and says why."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.apps.captures.capture_api import CaptureApi, SealingSite, open_sealing_site, settings_with_captures
from tests.apps.captures.capture_processes import open_fork_server
from tests.apps.captures.crash_site import COUNT, Site, gone

from cograil.apps.captures.proof_verifier import verify
from cograil.apps.captures.settings import CaptureSettings
from cograil.apps.captures.sweeper import sweep
from cograil.runners.context import Fail
from cograil.settings import Settings

FORGET = (
    "delete from cograil.tasks",
    "delete from cograil.inbox",
    "delete from cograil.events",
    "delete from cograil.nodes",
    "delete from cograil.jobs",
)
AT_ONCE = {"retry_seconds": 0, "sweep_seconds": 0.1}


@pytest.fixture
def capture_settings() -> dict[str, Any]:
    return dict(AT_ONCE)


async def cancelled(capture_api: CaptureApi, reason: str = "by mistake") -> dict[str, Any]:
    """A capture whose job was cancelled before anybody could seal it."""
    body = capture_api.capture(b"left")
    assert (await capture_api.post(body)).status == 202
    await capture_api.lab.cancel(await job_of(capture_api, body), reason=reason)
    return body


async def job_of(capture_api: CaptureApi, body: dict[str, Any]) -> str:
    return str((await capture_api.get(body["capture_id"])).body["job_id"])


async def forget_jobs(capture_api: CaptureApi) -> None:
    """As retention does, long after."""
    for statement in FORGET:
        await capture_api.lab.rows(statement)


async def events_of(capture_api: CaptureApi, body: dict[str, Any]) -> list[str]:
    trail = (await capture_api.get(f"{body['capture_id']}/audit")).body
    assert trail["broken_at"] is None
    return [entry["event"] for entry in trail["entries"]]


async def test_a_capture_whose_job_was_cancelled_fails_and_says_so(capture_api: CaptureApi) -> None:
    body = await cancelled(capture_api)
    async with open_sealing_site(capture_api) as sealing_site:
        shown = await sealing_site.ended(body["capture_id"])
        assert (shown["state"], shown["error_code"]) == ("FAILED", "cancelled")
        assert "was cancelled: by mistake" in shown["error"]
        assert (await capture_api.post(body)).body["state"] == "FAILED"
        assert await events_of(capture_api, body) == [
            "CAPTURE_RECEIVED",
            "CAPTURE_FAILED",
            "CAPTURE_REPLAYED",
        ]
        retried = await capture_api.lab.ended(await capture_api.lab.retry(shown["job_id"]))
        assert retried["status"] == "failed"
    assert (await capture_api.get(body["capture_id"])).body["state"] == "FAILED", "no state moves back"


async def test_a_capture_whose_job_failed_outside_its_handlers_fails_with_it(capture_api: CaptureApi) -> None:
    async def broken(capture_event_id: str) -> None:
        raise Fail("nobody could write it down", code="disk_full")

    body = capture_api.capture(b"left")
    capture_api.object_of(body).unlink()
    async with open_sealing_site(capture_api) as sealing_site:
        capture_api.lab.registry._specs.pop("captures.settle")
        capture_api.lab.registry.register(broken, "captures.settle")
        shown = await sealing_site.sealed(body)
    assert shown["state"] == "FAILED"
    assert "its job" in shown["error"]
    assert "failed" in shown["error"]
    assert shown["error_code"] == (await capture_api.lab.job(shown["job_id"]))["error"]["code"]


async def test_a_capture_whose_job_is_gone_is_sealed_by_another(capture_api: CaptureApi) -> None:
    body = await cancelled(capture_api)
    before = await job_of(capture_api, body)
    await forget_jobs(capture_api)
    async with open_sealing_site(capture_api) as sealing_site:
        shown = await sealing_site.ended(body["capture_id"])
        assert (shown["state"], shown["reconciliation_attempts"]) == ("SEALED", 1)
        assert shown["job_id"] != before
        assert (await capture_api.lab.ended(shown["job_id"]))["status"] == "completed"
        claims = verify(
            await sealing_site.proof(body["capture_id"]), trail=await sealing_site.trail(body["capture_id"])
        )
        assert [claim.problem for claim in claims if not claim.holds] == []
    assert "SEALING_BEGUN_AGAIN" in await events_of(capture_api, body)


async def test_a_capture_that_is_under_way_is_left_alone(capture_api: CaptureApi, settings: Settings) -> None:
    """By its job, or by the retry of a retry of that."""
    waiting = capture_api.capture(b"waiting")
    await capture_api.post(waiting)
    assert await sweep(capture_api.lab.db, settings) == 0
    body = await cancelled(capture_api)
    again = await capture_api.lab.retry(await job_of(capture_api, body))
    await capture_api.lab.cancel(again)
    last = await capture_api.lab.retry(again)
    assert await sweep(capture_api.lab.db, settings) == 0
    await capture_api.lab.cancel(last, reason="for good")
    assert await sweep(capture_api.lab.db, settings) == 1
    shown = (await capture_api.get(body["capture_id"])).body
    assert (shown["state"], "for good" in shown["error"]) == ("FAILED", True)
    assert (await capture_api.get(waiting["capture_id"])).body["state"] == "UPLOADED"


async def test_a_cancelled_capture_can_be_retried_for_some_time(
    capture_api: CaptureApi, settings: Settings
) -> None:
    patient = settings.model_copy(update={"captures": CaptureSettings()})
    body = await cancelled(capture_api)
    assert await sweep(capture_api.lab.db, patient) == 0
    assert (await capture_api.get(body["capture_id"])).body["state"] == "UPLOADED"
    assert await sweep(capture_api.lab.db, settings) == 1


class TestKills:
    """Workers are killed while they reconcile; the next one does it, once."""

    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        return settings_with_captures(tmp_path, **AT_ONCE)

    @pytest.fixture
    async def site(
        self, capture_api: CaptureApi, dsn: str, settings: Settings, tmp_path: Path
    ) -> AsyncIterator[Site]:
        made = await capture_api.api.post("/api/v1/subscriptions", {"url": "https://example.org/"})
        assert made.status == 201
        async with open_fork_server() as fork_server:
            yield Site(capture_api, fork_server, dsn, settings.model_dump(mode="json"), tmp_path / "points")

    async def _points(self, site: Site, body: dict[str, Any]) -> list[str]:
        """What a worker passes that finds this capture, in order, each once."""
        order = {"log": str(site.log), "is_early": True}
        child = await site.fork_server.fork("worker", site.dsn, site.settings, **order)
        await SealingSite(site.capture_api).ended(body["capture_id"])
        os.kill(child["pid"], signal.SIGKILL)
        await gone(child["pid"])
        passed = site.log.read_text().splitlines()
        return list(dict.fromkeys(point for point in passed if point.startswith("reconcile_capture.")))

    async def _ended(self, site: Site, point: str, body: dict[str, Any]) -> dict[str, Any]:
        """The capture, after a worker died of it there and another one took over."""
        order = {"fault": f"{point}:1:kill9", "is_early": True}
        child = await site.fork_server.fork("worker", site.dsn, site.settings, **order)
        await gone(child["pid"])
        async with open_sealing_site(site.capture_api) as sealing_site:
            shown = await sealing_site.ended(body["capture_id"])
            await site.capture_api.lab.ended(shown["job_id"])
        return shown

    async def test_an_abandoned_capture_fails_once_after_a_kill(self, site: Site) -> None:
        points = await self._points(site, await cancelled(site.capture_api))
        assert {"reconcile_capture.lock_left", "reconcile_capture.insert_outbox"} <= set(points)
        for point in points:
            body = await cancelled(site.capture_api)
            shown = await self._ended(site, point, body)
            assert (shown["state"], shown["error_code"]) == ("FAILED", "cancelled"), point
            event = "CAPTURE_FAILED"
            assert await site.capture_api.lab.rows(COUNT, id=body["capture_id"], event=event) == [(1,)], point

    async def test_an_abandoned_capture_is_begun_again_once_after_a_kill(self, site: Site) -> None:
        body = await cancelled(site.capture_api)
        await forget_jobs(site.capture_api)
        points = await self._points(site, body)
        assert {"reconcile_capture.give_job", "reconcile_capture.add_entry"} <= set(points)
        for point in points:
            body = await cancelled(site.capture_api)
            await forget_jobs(site.capture_api)
            shown = await self._ended(site, point, body)
            assert shown["state"] == "SEALED", point
            event = "SEALING_BEGUN_AGAIN"
            assert await site.capture_api.lab.rows(COUNT, id=body["capture_id"], event=event) == [(1,)], point
            assert await site.capture_api.lab.rows("select count(*) from cograil.jobs") == [(1,)], point
