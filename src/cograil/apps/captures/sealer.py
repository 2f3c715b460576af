"""The sealer: the work of the handlers of the captures workflow.

`seal` checks the object and writes the proof with its own result, in one transaction. A permanent error fails at once,
a temporary one is retried; when `seal` fails for good, `settle` records why. Each may be killed anywhere and begin
anew: nothing is written twice, and no state moves back.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

from cograil import clock
from cograil.apps.captures import audit, manifest, queries, states
from cograil.apps.captures.errors import StoreUnreachable, Unsealable
from cograil.apps.captures.failure import append_entry, event_data_of, give_up
from cograil.apps.captures.ingest import workflow
from cograil.apps.captures.key_encryption_keys import KeyRing
from cograil.apps.captures.object_check import ObjectCheck, examine
from cograil.apps.captures.object_store import ObjectStore, url_of
from cograil.apps.captures.queries import Capture
from cograil.apps.captures.rfc3161 import BadAuthority, BadStamp, Unstamped, ask
from cograil.apps.captures.settings import CaptureSettings
from cograil.apps.captures.signing import BadKey, Signer, load_configured_signer
from cograil.model.workflow import Json
from cograil.runners.context import Context, Fail, Retry
from cograil.settings import Settings
from cograil.store import job_queries
from cograil.store.database import Database, Transaction
from cograil.store.handler_transactions import HandlerSession
from cograil.verbs.outbox import tell

SEALED_MESSAGE = "The capture was sealed; a verifiable proof is available."
MAX_ERROR = 1_000


class Sealer:
    """Seals captures in one worker."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self._settings = settings

    @property
    def _data_dir(self) -> Path:
        return self._settings.data_dir / "captures"

    @cached_property
    def _objects(self) -> ObjectStore:
        return ObjectStore(
            self._settings.section(CaptureSettings).store_url or url_of(self._data_dir / "objects")
        )

    @cached_property
    def _keys(self) -> KeyRing:
        captures = self._settings.section(CaptureSettings)
        return KeyRing(captures.kek_dir or self._data_dir / "keks", captures.keks)

    @cached_property
    def _own_signer(self) -> Signer:
        return load_configured_signer(self._settings.section(CaptureSettings), self._settings.data_dir)

    @property
    def signer(self) -> Signer:
        """The configured signer. Raises Retry: a missing key may be added."""
        try:
            return self._own_signer
        except BadKey as error:
            raise Retry(str(error), code=error.code) from error

    async def seal(self, ctx: Context, capture_event_id: str) -> dict[str, Json]:
        """Check the object of a capture, and sign the result."""
        capture = await self._begin(ctx, capture_event_id)
        if capture.state == states.FAILED:
            raise Fail(capture.error or "", code=capture.error_code or "failed")
        if capture.state in states.FINAL:
            return {"state": capture.state}
        try:
            examined = await examine(capture, self._objects, self._keys)
        except Unsealable as error:
            raise Fail(str(error), code=error.code) from error
        except StoreUnreachable as error:
            raise Retry(f"the object storage: {error}", code="store_unreachable") from error
        signer = self.signer
        async with ctx.transaction() as joint:
            tx = HandlerSession(joint.connection, "seal", clock.now())
            return {"state": await _write_proof(tx, capture, examined, signer)}

    async def _begin(self, ctx: Context, id: str) -> Capture:
        """Set the capture to SEALING unless it has ended; return it."""
        async with self._db.transaction("begin_sealing") as tx:
            capture = await _find(tx, ctx, id)
            if capture.state not in states.FINAL and await queries.begin_sealing(tx, capture):
                await append_entry(
                    tx, capture, "SEALING_STARTED", {"attempt": ctx.attempt, "job_id": ctx.job_id}
                )
            return capture

    async def settle(self, ctx: Context, capture_event_id: str) -> None:
        """Mark a capture as failed, and fail with the same error."""
        async with self._db.transaction("settle_capture") as tx:
            capture = await _find(tx, ctx, capture_event_id)
            code, error = await _why(tx, ctx)
            await give_up(tx, capture, code, error)
        raise Fail(error, code=code)

    async def stamp(self, ctx: Context, capture_event_id: str) -> dict[str, Json]:
        """Add a time stamp of a time-stamping authority to the proof of a capture."""
        async with self._db.transaction("look_at_proof") as tx:
            capture = await _find(tx, ctx, capture_event_id)
            text = await queries.find_proof(tx, capture)
        if (
            text is None
            or not self._settings.section(CaptureSettings).tsa_url
            or capture.signature_status != "SIGNED"
        ):
            return {"signature_status": capture.signature_status}
        proof = manifest.read(text)
        if proof["manifest"]["signer"] != self.signer.facts:
            raise Fail("another key signed the proof than the one here", code="signer_changed")
        try:
            response = await ask(
                manifest.stamped_text(proof), self._settings.section(CaptureSettings), self._settings.outbound
            )
        except (Unstamped, BadStamp) as error:
            raise Retry(f"the time-stamping authority: {error}", code="not_stamped") from error
        except BadAuthority as error:
            raise Retry(str(error), code=error.code) from error
        stamped = manifest.with_stamp(proof, response, self.signer)
        async with ctx.transaction() as joint:
            tx = HandlerSession(joint.connection, "stamp", clock.now())
            if await queries.stamp_capture(tx, capture, stamped):
                digest = hashlib.sha256(response).hexdigest()
                await append_entry(tx, capture, "CAPTURE_TIMESTAMPED", {"response_sha256": digest})
            return {"signature_status": "TIMESTAMPED"}


async def _write_proof(tx: Transaction, capture: Capture, examined: ObjectCheck, signer: Signer) -> str:
    """Write the proof; return the new state. Raises Retry when another job has sealed the capture."""
    # Lock the row before the chain, like every other writer: another order could deadlock.
    await queries.lock_left(tx, capture.tenant_id, capture.id)
    payload = {"object_sha256": examined.object_sha256, "key_id": signer.facts["key_id"]}
    last = await append_entry(tx, capture, "CAPTURE_SEALED", payload | {"state": states.SEALED})
    limit = manifest.MAX_ENTRIES
    entries = await audit.list_entries(tx, capture.id, max(0, last.seq - limit), limit)
    sealed_manifest = manifest.manifest_of(capture, examined, entries, signer.facts)
    if not await queries.seal_capture(
        tx, capture, manifest.signed(sealed_manifest, signer), sealed_manifest["sealed_at"]
    ):
        raise Retry("another job ended this capture", code="capture_ended")
    data = event_data_of(capture, states.SEALED) | {
        "sealed_at": sealed_manifest["sealed_at"],
        "message": SEALED_MESSAGE,
        "proof": f"/v1/captures/{capture.capture_id}/proof",
    }
    await tell(tx, capture.tenant_id, "captures.sealed", capture.capture_id, data)
    return states.SEALED


async def _find(tx: Transaction, ctx: Context, id: str) -> Capture:
    capture = await queries.find_capture(tx, ctx.tenant_id, id)
    if capture is None:
        raise Fail(f"capture {id} does not exist", code="capture_not_found")
    return capture


async def _why(tx: Transaction, ctx: Context) -> tuple[str, str]:
    """The error code and message of the failed `seal` node."""
    nodes = await job_queries.list_nodes(tx, ctx.job_id, workflow())
    error: dict[str, Any] = next((node["error"] or {} for node in nodes if node["node_id"] == "seal"), {})
    return str(error.get("code") or "failed"), str(error.get("message") or "it failed")[:MAX_ERROR]
