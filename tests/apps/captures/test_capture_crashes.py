"""Servers and workers are killed at each statement and commit: who asks again finds all as it should be."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from tests.apps.captures.authority import Authority, running_authority
from tests.apps.captures.capture_api import CaptureApi, SealingSite, open_sealing_site, settings_with_captures
from tests.apps.captures.capture_processes import open_fork_server
from tests.apps.captures.crash_site import COUNT, Site, gone
from tests.support.api_client import ApiClient, ApiResponse

from cograil.apps.captures.proof_verifier import STAMPED_BY_UNKNOWN, verify
from cograil.settings import Settings

TOLD = "select count(*) from cograil.outbox where subject = %(id)s and type = 'captures.sealed'"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return quick(settings_with_captures(tmp_path))


def quick(base: Settings) -> Settings:
    """Whose lease is over is soon known."""
    lease = {"seconds": 1.0, "heartbeat_seconds": 0.3, "scan_seconds": 0.2}
    return base.model_copy(update={"lease": Settings(lease=lease).lease})


@pytest.fixture
async def site(capture_api: CaptureApi, dsn: str, settings: Settings, tmp_path: Path) -> AsyncIterator[Site]:
    async with open_fork_server() as fork_server:
        yield Site(capture_api, fork_server, dsn, settings.model_dump(mode="json"), tmp_path / "points")


async def killed(api: ApiClient, pid: int, body: dict[str, Any]) -> None:
    """Post to a server that dies of it."""
    with contextlib.suppress(ConnectionError, IndexError, ValueError):
        answer: ApiResponse = await api.post("/v1/captures", body)
        raise AssertionError(f"it lived, and said {answer.status}")
    await gone(pid)


async def test_a_post_that_was_killed_anywhere_is_made_once_when_it_is_sent_again(site: Site) -> None:
    def another() -> dict[str, Any]:
        return site.capture_api.capture(b"x")

    points = await site.points({"capture"}, lambda api: api.post("/v1/captures", another()))
    assert {"capture.add_capture", "capture.open_record", "capture.take_tokens"} <= set(points)
    seen = []
    for point in points:
        body = another()
        api, pid = await site.server(fault=f"{point}:1:kill9")
        await killed(api, pid, body)
        again = await site.capture_api.post(body)
        assert again.status == (200 if point == "capture.commit.after" else 202), point
        assert (await site.capture_api.post(body)).status == 200
        assert (await site.capture_api.post(body | {"size_bytes": 2})).status == 409
        await site.survivors(body)
        seen.append(point)
    assert seen[-2:] == ["capture.commit.before", "capture.commit.after"]


async def test_a_replay_or_a_refusal_that_was_killed_can_be_sent_again(site: Site) -> None:
    """What one of them passed like the one before is not done again: up to the look-up they are the same."""
    body = site.capture_api.capture(b"x")
    await site.capture_api.post(body)
    done: set[str] = set()
    for changed, status in (({}, 200), ({"size_bytes": 2}, 409), ({"size_bytes": -1}, 400)):
        request = body | changed
        post = methodcaller("post", "/v1/captures", request)
        points = await site.points({"capture", "refuse_capture"}, post)
        assert len(points) > 5
        for point in (point for point in points if point not in done):
            api, pid = await site.server(fault=f"{point}:1:kill9")
            await killed(api, pid, request)
            assert (await site.capture_api.post(request)).status == status, point
        done |= set(points)
    assert {"capture.commit.after", "refuse_capture.commit.after"} <= done
    await site.survivors(body)


async def sealed_after_a_kill(site: Site, point: str, body: dict[str, Any], state: str) -> None:
    """A worker dies there, and another one takes over."""
    child = await site.fork_server.fork("worker", site.dsn, site.settings, fault=f"{point}:1:kill9")
    assert (await site.capture_api.post(body)).status == 202
    await gone(child["pid"])
    async with open_sealing_site(site.capture_api) as sealing_site:
        shown = await sealing_site.ended(body["capture_id"])
        assert shown["state"] == state, point
        await _check_end(sealing_site, site, body, state)
        await site.capture_api.lab.ended(shown["job_id"])
    await site.survivors(body)


async def _check_end(sealing_site: SealingSite, site: Site, body: dict[str, Any], state: str) -> None:
    id = body["capture_id"]
    event = "CAPTURE_SEALED" if state == "SEALED" else "CAPTURE_FAILED"
    assert await site.capture_api.lab.rows(COUNT, id=id, event=event) == [(1,)]
    if state == "SEALED":
        claims = verify(await sealing_site.proof(id), trail=await sealing_site.trail(id))
        assert [claim.problem for claim in claims if not claim.holds] == []
        assert await site.capture_api.lab.rows(TOLD, id=id) == [(1,)]


async def passed_by_a_worker(site: Site, transactions: set[str], body: dict[str, Any]) -> list[str]:
    """What a worker passes until this capture has ended, in order, each once."""
    site.log.write_text("")
    child = await site.fork_server.fork("worker", site.dsn, site.settings, log=str(site.log), is_early=True)
    await site.capture_api.post(body)
    shown = await SealingSite(site.capture_api).ended(body["capture_id"])
    await site.capture_api.lab.ended(shown["job_id"])
    os.kill(child["pid"], signal.SIGKILL)
    await gone(child["pid"])
    passed = site.log.read_text().splitlines()
    return list(dict.fromkeys(point for point in passed if point.split(".")[0] in transactions))


async def test_a_worker_that_is_killed_anywhere_seals_once(site: Site) -> None:
    made = await site.capture_api.api.post("/api/v1/subscriptions", {"url": "https://example.org/"})
    assert made.status == 201
    points = await passed_by_a_worker(
        site, {"begin_sealing", "seal", "handler"}, site.capture_api.capture(b"first")
    )
    assert {"begin_sealing.commit.after", "seal.lock_left", "seal.insert_outbox"} <= set(points)
    assert points[-2:] == ["handler.commit.before", "handler.commit.after"]
    for point in points:
        await sealed_after_a_kill(site, point, site.capture_api.capture(b"x"), "SEALED")


async def test_a_worker_that_is_killed_while_it_gives_up_writes_down_why_once(site: Site) -> None:
    def missing() -> dict[str, Any]:
        body = site.capture_api.capture(b"x")
        site.capture_api.object_of(body).unlink()
        return body

    points = await passed_by_a_worker(site, {"settle_capture"}, missing())
    assert {"settle_capture.fail_capture", "settle_capture.add_entry"} <= set(points)
    for point in points:
        body = missing()
        await sealed_after_a_kill(site, point, body, "FAILED")
        (row,) = await site.capture_api.lab.rows(
            "select error_code from vault_secure.capture_events where capture_id = %(id)s",
            id=body["capture_id"],
        )
        assert row == ("object_missing",)


class TestStamps:
    """The same with an authority that stamps: once, whichever process is killed."""

    @pytest.fixture
    def authority(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
        with running_authority(tmp_path_factory.mktemp("authority"), "ec") as running:
            yield running

    @pytest.fixture
    def settings(self, tmp_path: Path, authority: Authority) -> Settings:
        return quick(settings_with_captures(tmp_path, tsa_url=authority.url))

    async def test_a_proof_is_stamped_once(self, site: Site) -> None:
        for point in (
            "look_at_proof.find_proof:1",
            "look_at_proof.commit.after:1",
            "stamp.stamp_capture:1",
            "stamp.add_entry:1",
            "handler.commit.before:2",  # the first is that of the seal
            "handler.commit.after:2",
        ):
            body = site.capture_api.capture(b"x")
            child = await site.fork_server.fork("worker", site.dsn, site.settings, fault=f"{point}:kill9")
            await site.capture_api.post(body)
            await gone(child["pid"])
            async with open_sealing_site(site.capture_api) as sealing_site:
                job_id = (await site.capture_api.get(body["capture_id"])).body["job_id"]
                assert (await site.capture_api.lab.ended(job_id))["status"] == "completed", point
                shown = (await site.capture_api.get(body["capture_id"])).body
                assert (shown["state"], shown["signature_status"]) == ("SEALED", "TIMESTAMPED")
                claims = verify(await sealing_site.proof(body["capture_id"]))
                assert claims[-1].claim == STAMPED_BY_UNKNOWN
                assert all(claim.holds for claim in claims)
            stamped = await site.capture_api.lab.rows(
                COUNT, id=body["capture_id"], event="CAPTURE_TIMESTAMPED"
            )
            assert stamped == [(1,)]
            await site.survivors(body)
