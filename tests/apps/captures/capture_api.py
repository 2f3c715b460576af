"""Captures as a device makes them, and the API that takes them in."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import aes_key_wrap
from tests.support.api_client import ApiClient, ApiResponse, serve_api
from tests.support.harness import Harness, quick_settings

from cograil.apps.captures.handlers import captures_on_worker
from cograil.settings import Settings

KEK_ID = "kek-2026-04-01"
SAMPLE = {
    "capture_id": "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d",
    "hash_sha3_256": "abcdef0123456789" * 4,
    "aes_gcm_nonce_b64": "dGVzdG5vbmNlMTIz",
    "aes_gcm_tag_b64": "dGVzdHRhZzEyMzQ1Njc4OQ==",
    "dek_wrapped_b64": "ZGVrd3JhcHBlZGI2NA==",
    "kek_id": KEK_ID,
    "mime_type": "image/png",
    "size_bytes": 524288,
    "upload_object_key": "captures/a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d.enc",
    "device_id": "0f0e0d0c-0b0a-4908-8706-050403020100",
}
GOLDEN = "dd8c3a4df0bc14a3d676b45fd997fcc79802ce343029c3f75738fd0fba652a3f"
KEYS = {"capture_event_id", "capture_id", "state", "payload_canonical_sha256"}


def sample(**changed: Any) -> dict[str, Any]:
    """The seed's payload, from a device whose clock is right."""
    return SAMPLE | {"timestamp_device": now()} | changed


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def settings_with_captures(data_dir: Path, **captures: Any) -> Settings:
    return quick_settings(data_dir=data_dir, captures=captures)


@dataclass
class CaptureApi:
    """The API of captures, and where their objects and keys are."""

    lab: Harness
    api: ApiClient
    data_dir: Path
    keks: dict[str, bytes] = field(default_factory=dict)

    @property
    def objects(self) -> Path:
        return self.data_dir / "captures" / "objects"

    async def post(self, body: Any, path: str = "/v1/captures", **more: Any) -> ApiResponse:
        return await self.api.post(path, body, **more)

    async def get(self, path: str, **more: Any) -> ApiResponse:
        return await self.api.get(f"/v1/captures/{path}", **more)

    def add_kek(self, kek_id: str = KEK_ID) -> bytes:
        """A new KEK, in a file."""
        directory = self.data_dir / "captures" / "keks"
        directory.mkdir(parents=True, exist_ok=True)
        self.keks[kek_id] = os.urandom(32)
        (directory / kek_id).write_bytes(self.keks[kek_id])
        return self.keks[kek_id]

    def capture(self, content: bytes = b"evidence", kek_id: str = KEK_ID, **changed: Any) -> dict[str, Any]:
        """Encrypt and upload this as a device does; what it posts then."""
        if kek_id not in self.keks:
            self.add_kek(kek_id)
        body, encrypted = encrypt(content, kek_id, self.keks[kek_id])
        place = self.objects / body["upload_object_key"]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(encrypted)
        return body | changed

    def object_of(self, body: dict[str, Any]) -> Path:
        return self.objects / str(body["upload_object_key"])


def encrypt(content: bytes, kek_id: str, kek: bytes) -> tuple[dict[str, Any], bytes]:
    """What a device posts of this content, and what it uploads."""
    dek, nonce, capture_id = os.urandom(32), os.urandom(12), str(uuid.uuid4())
    sealed = AESGCM(dek).encrypt(nonce, content, None)
    encrypted, tag = sealed[:-16], sealed[-16:]
    body = {
        "capture_id": capture_id,
        "hash_sha3_256": hashlib.sha3_256(content).hexdigest(),
        "aes_gcm_nonce_b64": base64.b64encode(nonce).decode(),
        "aes_gcm_tag_b64": base64.b64encode(tag).decode(),
        "dek_wrapped_b64": base64.b64encode(aes_key_wrap(kek, dek)).decode(),
        "kek_id": kek_id,
        "mime_type": "image/png",
        "size_bytes": len(encrypted),
        "upload_object_key": f"captures/{capture_id}.enc",
        "device_id": str(uuid.uuid4()),
        "timestamp_device": now(),
    }
    return body, encrypted


@asynccontextmanager
async def open_capture_api(lab: Harness, dsn: str, settings: Settings) -> AsyncIterator[CaptureApi]:
    async with serve_api(lab, dsn, settings) as api:
        yield CaptureApi(lab, api, settings.data_dir)


class SealingSite:
    """A capture API with an orchestrator and a worker that seals."""

    def __init__(self, capture_api: CaptureApi) -> None:
        self.capture_api = capture_api

    async def sealed(self, body: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Post it, and wait for its end; the capture then."""
        posted = await self.capture_api.post(body, **more)
        assert posted.status in (200, 202), posted.raw
        return await self.ended(body["capture_id"], **more)

    async def ended(self, capture_id: str, timeout: float = 20.0, **more: Any) -> dict[str, Any]:
        async with asyncio.timeout(timeout):
            while True:
                shown: dict[str, Any] = (await self.capture_api.get(capture_id, **more)).body
                if shown["state"] in ("SEALED", "FAILED"):
                    return shown
                await asyncio.sleep(0.02)

    async def proof(self, capture_id: str) -> bytes:
        answer = await self.capture_api.get(f"{capture_id}/proof")
        assert answer.status == 200, answer.raw
        return answer.raw

    async def trail(self, capture_id: str) -> bytes:
        return (await self.capture_api.get(f"{capture_id}/audit")).raw


@asynccontextmanager
async def open_sealing_site(capture_api: CaptureApi) -> AsyncIterator[SealingSite]:
    lab = capture_api.lab
    async with captures_on_worker(lab.registry, lab.db, capture_api.api.context.settings), lab.running():
        yield SealingSite(capture_api)
