"""What becomes of a capture: sealed with a proof, or failed and said why; and who is told."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import pytest
from tests.apps.captures.capture_api import (
    KEK_ID,
    CaptureApi,
    SealingSite,
    open_sealing_site,
    sample,
    settings_with_captures,
)
from tests.support.webhook_receiver import ALLOW_LOOPBACK, FAST_RELAY, open_receiver, run_relay

from cograil.apps.captures import states
from cograil.apps.captures.proof_verifier import verify
from cograil.apps.captures.signing import load_signer
from cograil.settings import Settings

MOVES = """
select event, event_payload->>'state', http_status from vault_secure.capture_audit_log
where capture_id = %(id)s order by seq"""


async def test_a_capture_is_sealed_and_its_proof_holds(sealing_site: SealingSite) -> None:
    body = sealing_site.capture_api.capture(b"what was on the screen")
    shown = await sealing_site.sealed(body)
    assert (shown["state"], shown["signature_status"], shown["error_code"]) == ("SEALED", "SIGNED", None)
    assert (shown["capture_id"], shown["reconciliation_attempts"]) == (body["capture_id"], 0)
    assert "dek_wrapped_b64" not in shown
    replay = await sealing_site.capture_api.post(body)
    assert (replay.status, replay.body["state"]) == (200, "SEALED")
    proof, trail = await sealing_site.proof(body["capture_id"]), await sealing_site.trail(body["capture_id"])
    with sealing_site.capture_api.object_of(body).open("rb") as file:
        checked = verify(proof, object=file, trail=trail)
    assert [claim for claim in checked if not claim.holds] == []
    assert len(checked) == 5
    rows = await sealing_site.capture_api.lab.rows(MOVES, id=body["capture_id"])
    assert [event for event, *_ in rows] == [
        "CAPTURE_RECEIVED",
        "SEALING_STARTED",
        "CAPTURE_SEALED",
        "CAPTURE_REPLAYED",
    ]
    assert (await sealing_site.capture_api.lab.ended(shown["job_id"]))["status"] == "completed"


async def test_a_large_object_is_read_in_pieces(sealing_site: SealingSite) -> None:
    body = sealing_site.capture_api.capture(os.urandom(5 * 1024 * 1024 + 17))
    assert (await sealing_site.sealed(body))["state"] == "SEALED"
    assert (await sealing_site.sealed(sealing_site.capture_api.capture(b"")))["state"] == "SEALED"


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def _changed(text: str) -> str:
    raw = bytearray(base64.b64decode(text))
    raw[0] ^= 1
    return base64.b64encode(raw).decode()


def _spoiled(capture_api: CaptureApi, how: str) -> dict[str, Any]:
    body = capture_api.capture(b"some evidence")
    place = capture_api.object_of(body)
    if how == "object_missing":
        place.unlink()
    elif how == "size_mismatch":
        place.write_bytes(place.read_bytes()[:-1])
    elif how == "tag_mismatch":
        _flip(place)
    elif how == "kek_unknown":
        body["kek_id"] = "never-heard-of"
    elif how == "dek_unwrap_failed":
        body["kek_id"] = "another"
        capture_api.add_kek("another")
    elif how == "content_hash_mismatch":
        body["hash_sha3_256"] = "0" * 64
    return body


SPOILED = (
    "object_missing",
    "size_mismatch",
    "tag_mismatch",
    "kek_unknown",
    "dek_unwrap_failed",
    "content_hash_mismatch",
)


@pytest.mark.parametrize("how", SPOILED)
async def test_a_capture_that_cannot_be_sealed_fails_and_says_why(
    sealing_site: SealingSite, how: str
) -> None:
    body = _spoiled(sealing_site.capture_api, how)
    shown = await sealing_site.sealed(body)
    assert (shown["state"], shown["error_code"]) == ("FAILED", how)
    assert len(shown["error"]) > 20
    refused = await sealing_site.capture_api.get(f"{body['capture_id']}/proof")
    assert (refused.status, refused.body["error"]) == (404, "NOT_FOUND")
    job = await sealing_site.capture_api.lab.ended(shown["job_id"])
    assert (job["status"], how in str(job["error"])) == ("failed", True)
    replay = await sealing_site.capture_api.post(body)
    assert (replay.status, replay.body["state"]) == (200, "FAILED")
    events = [event for event, *_ in await sealing_site.capture_api.lab.rows(MOVES, id=body["capture_id"])]
    assert "CAPTURE_FAILED" in events


@pytest.mark.parametrize("name", ["aes_gcm_tag_b64", "aes_gcm_nonce_b64", "dek_wrapped_b64"])
async def test_a_wrong_tag_nonce_or_key_is_found(sealing_site: SealingSite, name: str) -> None:
    body = sealing_site.capture_api.capture(b"some evidence")
    shown = await sealing_site.sealed(body | {name: _changed(body[name])})
    expected = "dek_unwrap_failed" if name == "dek_wrapped_b64" else "tag_mismatch"
    assert (shown["state"], shown["error_code"]) == ("FAILED", expected)


@pytest.mark.parametrize("kek_id", ["../keks/kek", "a/b", ".hidden", "captures"])
async def test_a_kek_is_not_any_file(sealing_site: SealingSite, kek_id: str) -> None:
    sealing_site.capture_api.add_kek("kek")
    body = sealing_site.capture_api.capture(b"x", "kek")
    assert (await sealing_site.sealed(body | {"kek_id": kek_id}))["error_code"] == "kek_unknown"


async def test_a_new_kek_is_known_at_once_and_the_old_one_still(sealing_site: SealingSite) -> None:
    old = sealing_site.capture_api.capture(b"old", "kek-1")
    assert (await sealing_site.sealed(sealing_site.capture_api.capture(b"new", "kek-2")))["state"] == "SEALED"
    assert (await sealing_site.sealed(old))["state"] == "SEALED"


async def test_a_store_that_is_away_is_tried_again(capture_api: CaptureApi) -> None:
    """No state moves back meanwhile, and what was stuck is sealed once it is there."""
    body = capture_api.capture(b"late")
    async with open_sealing_site(capture_api) as sealing_site:
        place = capture_api.object_of(body)
        real = place.read_bytes()
        place.unlink()
        place.symlink_to(place)  # reading it is an error of the system, not a missing file
        await capture_api.post(body)
        tried = await _until(sealing_site, body, lambda shown: shown["reconciliation_attempts"] >= 1)
        assert tried["state"] == "SEALING"
        place.unlink()
        place.write_bytes(real)
        assert (await sealing_site.ended(body["capture_id"]))["state"] == "SEALED"


async def test_a_job_that_was_cancelled_is_done_by_its_retry(capture_api: CaptureApi) -> None:
    body = capture_api.capture(b"later")
    await capture_api.post(body)
    job_id = (await capture_api.get(body["capture_id"])).body["job_id"]
    await capture_api.lab.cancel(job_id)
    await capture_api.lab.retry(job_id)
    async with open_sealing_site(capture_api) as sealing_site:
        assert (await sealing_site.ended(body["capture_id"]))["state"] == "SEALED"


async def _until(sealing_site: SealingSite, body: dict[str, Any], condition: Any) -> dict[str, Any]:
    async with asyncio.timeout(15):
        while True:
            shown: dict[str, Any] = (await sealing_site.capture_api.get(body["capture_id"])).body
            if condition(shown):
                return shown
            await asyncio.sleep(0.02)


class TestKeksOfTheEnvironment:
    """A KEK may come by a setting, in place of a file."""

    KEK = os.urandom(32)
    ELSEWHERE = "arn:aws:kms:eu-west-3:123456789012:key/a1b2"  # no name of a file

    @pytest.fixture
    def capture_settings(self) -> dict[str, Any]:
        return {"keks": dict.fromkeys((KEK_ID, self.ELSEWHERE), base64.b64encode(self.KEK).decode())}

    @pytest.mark.parametrize("kek_id", [KEK_ID, ELSEWHERE])
    async def test_a_kek_of_the_environment_unwraps(self, sealing_site: SealingSite, kek_id: str) -> None:
        sealing_site.capture_api.keks[kek_id] = self.KEK
        assert (await sealing_site.sealed(sealing_site.capture_api.capture(b"x", kek_id)))[
            "state"
        ] == "SEALED"


class TestSigningKeyThatIsNotThere:
    """Nothing is signed by another one; once it is there, what waited is sealed."""

    @pytest.fixture
    def capture_settings(self, tmp_path: Path) -> dict[str, Any]:
        return {"signing_key": tmp_path / "named.pem"}

    async def test_a_late_object_is_waited_for(
        self, sealing_site: SealingSite, tmp_path: Path, eventually: Any
    ) -> None:
        async def is_told() -> bool:
            nodes = "select error->>'code', error->>'message' from cograil.nodes where node_id = 'seal'"
            ((code, message),) = await sealing_site.capture_api.lab.rows(nodes)
            return code == "bad_signing_key" and "COGRAIL_CAPTURES__SIGNING_KEY" in message

        body = sealing_site.capture_api.capture(b"x")
        await sealing_site.capture_api.post(body)
        await eventually(is_told, timeout=20)
        assert (await sealing_site.capture_api.get(body["capture_id"])).body["state"] == "SEALING"
        load_signer(tmp_path / "named.pem")
        assert (await sealing_site.ended(body["capture_id"]))["state"] == "SEALED"


class TestTelling:
    """Who subscribed is told once it is sealed, or failed."""

    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        return settings_with_captures(tmp_path).model_copy(
            update={
                "outbound": Settings(outbound=ALLOW_LOOPBACK).outbound,
                "relay": Settings(relay=FAST_RELAY).relay,
            }
        )

    async def test_subscribers_hear_of_the_seal_and_of_failure(
        self, sealing_site: SealingSite, eventually: Any
    ) -> None:
        async with open_receiver() as receiver, run_relay(sealing_site.capture_api.lab):
            types = ["captures.sealed", "captures.failed"]
            made = await sealing_site.capture_api.api.post(
                "/api/v1/subscriptions", {"url": receiver.url, "types": types}
            )
            assert made.status == 201, made.raw
            good, bad = sealing_site.capture_api.capture(b"good"), sample()
            await sealing_site.sealed(good)
            await sealing_site.sealed(bad)
            await eventually(lambda: len(receiver.requests) >= 2)
        events = {request.event["type"]: request.event for request in receiver.requests}
        sealed = events["captures.sealed"]
        assert sealed["subject"] == good["capture_id"]
        assert sealed["data"]["state"] == "SEALED"
        assert "sealed" in sealed["data"]["message"]
        assert "proof is available" in sealed["data"]["message"]
        assert (await sealing_site.capture_api.api.get(sealed["data"]["proof"])).status == 200
        assert events["captures.failed"]["data"]["error_code"] == "dek_unwrap_failed"


def test_no_move_of_a_capture_leads_back() -> None:
    """From a state that was left nobody comes to it again, but a device that defers an upload."""
    order = ["CAPTURED", "UPLOADING", "UPLOADED", "SEALING", "SEALED", "ANCHORED"]
    assert set(states.MOVES) == {*order, "DEFERRED", "FAILED"}
    for source, targets in states.MOVES.items():
        for target in targets - {"FAILED", "DEFERRED"}:
            assert source == "DEFERRED" or order.index(target) == order.index(source) + 1
    assert states.MOVES["FAILED"] == states.MOVES["ANCHORED"] == frozenset()
