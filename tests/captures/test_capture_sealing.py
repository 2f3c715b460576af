"""What becomes of a capture: sealed with a proof, or failed and said why; and who is told."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.webhook_receiver import ALLOW_LOOPBACK, FAST_RELAY, open_receiver, run_relay
from vault import KEK_ID, Sealing, Vault, open_sealing, sample, vault_settings

from cograil.apps.captures import states
from cograil.apps.captures.proof_verifier import verify
from cograil.apps.captures.signing import load_signer
from cograil.settings import Settings

MOVES = """
select event, event_payload->>'state', http_status from vault_secure.capture_audit_log
where capture_id = %(id)s order by seq"""


async def test_a_capture_is_sealed_and_its_proof_holds(house: Sealing) -> None:
    body = house.vault.capture(b"what was on the screen")
    shown = await house.sealed(body)
    assert (shown["state"], shown["signature_status"], shown["error_code"]) == ("SEALED", "SIGNED", None)
    assert (shown["capture_id"], shown["reconciliation_attempts"]) == (body["capture_id"], 0)
    assert "dek_wrapped_b64" not in shown
    replay = await house.vault.post(body)
    assert (replay.status, replay.body["state"]) == (200, "SEALED")
    proof, trail = await house.proof(body["capture_id"]), await house.trail(body["capture_id"])
    with house.vault.object_of(body).open("rb") as file:
        checked = verify(proof, object=file, trail=trail)
    assert [one for one in checked if not one.holds] == []
    assert len(checked) == 5
    rows = await house.vault.lab.rows(MOVES, id=body["capture_id"])
    assert [row[0] for row in rows] == [
        "CAPTURE_RECEIVED",
        "SEALING_STARTED",
        "CAPTURE_SEALED",
        "CAPTURE_REPLAYED",
    ]
    assert (await house.vault.lab.ended(shown["job_id"]))["status"] == "completed"


async def test_a_large_object_is_read_in_pieces(house: Sealing) -> None:
    body = house.vault.capture(os.urandom(5 * 1024 * 1024 + 17))
    assert (await house.sealed(body))["state"] == "SEALED"
    assert (await house.sealed(house.vault.capture(b"")))["state"] == "SEALED"


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def _changed(text: str) -> str:
    raw = bytearray(base64.b64decode(text))
    raw[0] ^= 1
    return base64.b64encode(raw).decode()


def _spoiled(vault: Vault, how: str) -> dict[str, Any]:
    body = vault.capture(b"some evidence")
    place = vault.object_of(body)
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
        vault.add_kek("another")
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
async def test_what_cannot_be_sealed_fails_and_says_why(house: Sealing, how: str) -> None:
    body = _spoiled(house.vault, how)
    shown = await house.sealed(body)
    assert (shown["state"], shown["error_code"]) == ("FAILED", how)
    assert len(shown["error"]) > 20
    refused = await house.vault.get(f"{body['capture_id']}/proof")
    assert (refused.status, refused.body["error"]) == (404, "NOT_FOUND")
    job = await house.vault.lab.ended(shown["job_id"])
    assert (job["status"], how in str(job["error"])) == ("failed", True)
    replay = await house.vault.post(body)
    assert (replay.status, replay.body["state"]) == (200, "FAILED")
    events = [row[0] for row in await house.vault.lab.rows(MOVES, id=body["capture_id"])]
    assert "CAPTURE_FAILED" in events


@pytest.mark.parametrize("name", ["aes_gcm_tag_b64", "aes_gcm_nonce_b64", "dek_wrapped_b64"])
async def test_a_wrong_tag_nonce_or_key_is_found(house: Sealing, name: str) -> None:
    body = house.vault.capture(b"some evidence")
    shown = await house.sealed(body | {name: _changed(body[name])})
    expected = "dek_unwrap_failed" if name == "dek_wrapped_b64" else "tag_mismatch"
    assert (shown["state"], shown["error_code"]) == ("FAILED", expected)


@pytest.mark.parametrize("kek_id", ["../keks/kek", "a/b", ".hidden", "captures"])
async def test_a_kek_is_not_any_file(house: Sealing, kek_id: str) -> None:
    house.vault.add_kek("kek")
    body = house.vault.capture(b"x", "kek")
    assert (await house.sealed(body | {"kek_id": kek_id}))["error_code"] == "kek_unknown"


async def test_a_new_kek_is_known_at_once_and_the_old_one_still(house: Sealing) -> None:
    old = house.vault.capture(b"old", "kek-1")
    assert (await house.sealed(house.vault.capture(b"new", "kek-2")))["state"] == "SEALED"
    assert (await house.sealed(old))["state"] == "SEALED"


async def test_a_store_that_is_away_is_tried_again(vault: Vault) -> None:
    """No state moves back meanwhile, and what was stuck is sealed once it is there."""
    body = vault.capture(b"late")
    async with open_sealing(vault) as house:
        place = vault.object_of(body)
        real = place.read_bytes()
        place.unlink()
        place.symlink_to(place)  # reading it is an error of the system, not a missing file
        await vault.post(body)
        tried = await _until(house, body, lambda shown: shown["reconciliation_attempts"] >= 1)
        assert tried["state"] == "SEALING"
        place.unlink()
        place.write_bytes(real)
        assert (await house.ended(body["capture_id"]))["state"] == "SEALED"


async def test_a_job_that_was_cancelled_is_done_by_its_retry(vault: Vault) -> None:
    body = vault.capture(b"later")
    await vault.post(body)
    job_id = (await vault.get(body["capture_id"])).body["job_id"]
    await vault.lab.cancel(job_id)
    await vault.lab.retry(job_id)
    async with open_sealing(vault) as house:
        assert (await house.ended(body["capture_id"]))["state"] == "SEALED"


async def _until(house: Sealing, body: dict[str, Any], condition: Any) -> dict[str, Any]:
    async with asyncio.timeout(15):
        while True:
            shown: dict[str, Any] = (await house.vault.get(body["capture_id"])).body
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
    async def test_it_unwraps(self, house: Sealing, kek_id: str) -> None:
        house.vault.keks[kek_id] = self.KEK
        assert (await house.sealed(house.vault.capture(b"x", kek_id)))["state"] == "SEALED"


class TestSigningKeyThatIsNotThere:
    """Nothing is signed by another one; once it is there, what waited is sealed."""

    @pytest.fixture
    def capture_settings(self, tmp_path: Path) -> dict[str, Any]:
        return {"signing_key": tmp_path / "named.pem"}

    async def test_it_is_waited_for(self, house: Sealing, tmp_path: Path, eventually: Any) -> None:
        async def is_told() -> bool:
            nodes = "select error->>'code', error->>'message' from cograil.nodes where node_id = 'seal'"
            ((code, message),) = await house.vault.lab.rows(nodes)
            return code == "bad_signing_key" and "COGRAIL_CAPTURES__SIGNING_KEY" in message

        body = house.vault.capture(b"x")
        await house.vault.post(body)
        await eventually(is_told, timeout=20)
        assert (await house.vault.get(body["capture_id"])).body["state"] == "SEALING"
        load_signer(tmp_path / "named.pem")
        assert (await house.ended(body["capture_id"]))["state"] == "SEALED"


class TestTelling:
    """Who subscribed is told once it is sealed, or failed."""

    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        return vault_settings(tmp_path).model_copy(
            update={
                "outbound": Settings(outbound=ALLOW_LOOPBACK).outbound,
                "relay": Settings(relay=FAST_RELAY).relay,
            }
        )

    async def test_subscribers_hear_of_the_seal_and_of_failure(self, house: Sealing, eventually: Any) -> None:
        async with open_receiver() as receiver, run_relay(house.vault.lab):
            types = ["captures.sealed", "captures.failed"]
            made = await house.vault.api.post("/api/v1/subscriptions", {"url": receiver.url, "types": types})
            assert made.status == 201, made.raw
            good, bad = house.vault.capture(b"good"), sample()
            await house.sealed(good)
            await house.sealed(bad)
            await eventually(lambda: len(receiver.requests) >= 2)
        told = {one.event["type"]: one.event for one in receiver.requests}
        sealed = told["captures.sealed"]
        assert sealed["subject"] == good["capture_id"]
        assert sealed["data"]["state"] == "SEALED"
        assert "sealed" in sealed["data"]["message"]
        assert "proof is available" in sealed["data"]["message"]
        assert (await house.vault.api.get(sealed["data"]["proof"])).status == 200
        assert told["captures.failed"]["data"]["error_code"] == "dek_unwrap_failed"


def test_no_move_leads_back() -> None:
    """From a state that was left nobody comes to it again, but a device that defers an upload."""
    order = ["CAPTURED", "UPLOADING", "UPLOADED", "SEALING", "SEALED", "ANCHORED"]
    assert set(states.MOVES) == {*order, "DEFERRED", "FAILED"}
    for source, targets in states.MOVES.items():
        for target in targets - {"FAILED", "DEFERRED"}:
            assert source == "DEFERRED" or order.index(target) == order.index(source) + 1
    assert states.MOVES["FAILED"] == states.MOVES["ANCHORED"] == frozenset()
