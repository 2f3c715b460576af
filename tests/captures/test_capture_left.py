"""Captures whose job ended without ending them, or is gone: each ends, once, and says why."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nest import open_nest
from test_capture_crashes import COUNT, Site, gone
from vault import Sealing, Vault, open_sealing, vault_settings

from cograil.apps.captures.proof_verifier import verify
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


async def cancelled(vault: Vault, reason: str = "by mistake") -> dict[str, Any]:
    """A capture whose job was cancelled before anybody could seal it."""
    body = vault.capture(b"left")
    assert (await vault.post(body)).status == 202
    await vault.lab.cancel(await job_of(vault, body), reason=reason)
    return body


async def job_of(vault: Vault, body: dict[str, Any]) -> str:
    return str((await vault.get(body["capture_id"])).body["job_id"])


async def forget_jobs(vault: Vault) -> None:
    """As retention does, long after."""
    for statement in FORGET:
        await vault.lab.rows(statement)


async def events_of(vault: Vault, body: dict[str, Any]) -> list[str]:
    trail = (await vault.get(f"{body['capture_id']}/audit")).body
    assert trail["broken_at"] is None
    return [entry["event"] for entry in trail["entries"]]


async def test_one_whose_job_was_cancelled_fails_and_says_so(vault: Vault) -> None:
    body = await cancelled(vault)
    async with open_sealing(vault) as house:
        shown = await house.ended(body["capture_id"])
        assert (shown["state"], shown["error_code"]) == ("FAILED", "cancelled")
        assert "was cancelled: by mistake" in shown["error"]
        assert (await vault.post(body)).body["state"] == "FAILED"
        assert await events_of(vault, body) == ["CAPTURE_RECEIVED", "CAPTURE_FAILED", "CAPTURE_REPLAYED"]
        retried = await vault.lab.ended(await vault.lab.retry(shown["job_id"]))
        assert retried["status"] == "failed"
    assert (await vault.get(body["capture_id"])).body["state"] == "FAILED", "no state moves back"


async def test_one_whose_job_failed_outside_its_handlers_fails_with_it(vault: Vault) -> None:
    async def broken(capture_event_id: str) -> None:
        raise Fail("nobody could write it down", code="disk_full")

    body = vault.capture(b"left")
    vault.object_of(body).unlink()
    async with open_sealing(vault) as house:
        vault.lab.registry._specs.pop("captures.settle")
        vault.lab.registry.register(broken, "captures.settle")
        shown = await house.sealed(body)
    assert shown["state"] == "FAILED"
    assert "its job" in shown["error"]
    assert "failed" in shown["error"]
    assert shown["error_code"] == (await vault.lab.job(shown["job_id"]))["error"]["code"]


async def test_one_whose_job_is_gone_is_sealed_by_another(vault: Vault) -> None:
    body = await cancelled(vault)
    before = await job_of(vault, body)
    await forget_jobs(vault)
    async with open_sealing(vault) as house:
        shown = await house.ended(body["capture_id"])
        assert (shown["state"], shown["reconciliation_attempts"]) == ("SEALED", 1)
        assert shown["job_id"] != before
        assert (await vault.lab.ended(shown["job_id"]))["status"] == "completed"
        claims = verify(await house.proof(body["capture_id"]), trail=await house.trail(body["capture_id"]))
        assert [claim.problem for claim in claims if not claim.holds] == []
    assert "SEALING_BEGUN_AGAIN" in await events_of(vault, body)


async def test_one_that_is_under_way_is_left_alone(vault: Vault, settings: Settings) -> None:
    """By its job, or by the retry of a retry of that."""
    waiting = vault.capture(b"waiting")
    await vault.post(waiting)
    assert await sweep(vault.lab.db, settings) == 0
    body = await cancelled(vault)
    again = await vault.lab.retry(await job_of(vault, body))
    await vault.lab.cancel(again)
    last = await vault.lab.retry(again)
    assert await sweep(vault.lab.db, settings) == 0
    await vault.lab.cancel(last, reason="for good")
    assert await sweep(vault.lab.db, settings) == 1
    shown = (await vault.get(body["capture_id"])).body
    assert (shown["state"], "for good" in shown["error"]) == ("FAILED", True)
    assert (await vault.get(waiting["capture_id"])).body["state"] == "UPLOADED"


async def test_who_cancelled_by_mistake_has_some_time_to_retry(vault: Vault, settings: Settings) -> None:
    patient = settings.model_copy(update={"captures": Settings().captures})
    body = await cancelled(vault)
    assert await sweep(vault.lab.db, patient) == 0
    assert (await vault.get(body["capture_id"])).body["state"] == "UPLOADED"
    assert await sweep(vault.lab.db, settings) == 1


class TestKills:
    """Workers are killed while they reconcile; the next one does it, once."""

    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        return vault_settings(tmp_path, **AT_ONCE)

    @pytest.fixture
    async def site(self, vault: Vault, dsn: str, settings: Settings, tmp_path: Path) -> AsyncIterator[Site]:
        made = await vault.api.post("/api/v1/subscriptions", {"url": "https://example.org/"})
        assert made.status == 201
        async with open_nest() as nest:
            yield Site(vault, nest, dsn, settings.model_dump(mode="json"), tmp_path / "points")

    async def _points(self, site: Site, body: dict[str, Any]) -> list[str]:
        """What a worker passes that finds this capture, in order, each once."""
        order = {"log": str(site.log), "is_early": True}
        child = await site.nest.fork("worker", site.dsn, site.settings, **order)
        await Sealing(site.vault).ended(body["capture_id"])
        os.kill(child["pid"], signal.SIGKILL)
        await gone(child["pid"])
        passed = site.log.read_text().splitlines()
        return list(dict.fromkeys(point for point in passed if point.startswith("reconcile_capture.")))

    async def _ended(self, site: Site, point: str, body: dict[str, Any]) -> dict[str, Any]:
        """The capture, after a worker died of it there and another one took over."""
        order = {"fault": f"{point}:1:kill9", "is_early": True}
        child = await site.nest.fork("worker", site.dsn, site.settings, **order)
        await gone(child["pid"])
        async with open_sealing(site.vault) as house:
            shown = await house.ended(body["capture_id"])
            await site.vault.lab.ended(shown["job_id"])
        return shown

    async def test_it_fails_once(self, site: Site) -> None:
        points = await self._points(site, await cancelled(site.vault))
        assert {"reconcile_capture.lock_left", "reconcile_capture.insert_outbox"} <= set(points)
        for point in points:
            body = await cancelled(site.vault)
            shown = await self._ended(site, point, body)
            assert (shown["state"], shown["error_code"]) == ("FAILED", "cancelled"), point
            event = "CAPTURE_FAILED"
            assert await site.vault.lab.rows(COUNT, id=body["capture_id"], event=event) == [(1,)], point

    async def test_it_is_begun_again_once(self, site: Site) -> None:
        body = await cancelled(site.vault)
        await forget_jobs(site.vault)
        points = await self._points(site, body)
        assert {"reconcile_capture.give_job", "reconcile_capture.add_entry"} <= set(points)
        for point in points:
            body = await cancelled(site.vault)
            await forget_jobs(site.vault)
            shown = await self._ended(site, point, body)
            assert shown["state"] == "SEALED", point
            event = "SEALING_BEGUN_AGAIN"
            assert await site.vault.lab.rows(COUNT, id=body["capture_id"], event=event) == [(1,)], point
            assert await site.vault.lab.rows("select count(*) from cograil.jobs") == [(1,)], point
