"""Sealing: what the handlers do of the workflow that every new capture starts.

`seal` examines the object and writes the proof with its own result, in one transaction. What can never be
sealed fails at once, what may come is tried again; when `seal` is given up, `settle` writes down why. Each
may be killed anywhere and begin anew: nothing is written twice, and no state moves back.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

from cograil import clock
from cograil.apps.captures import audit, manifest, queries, states
from cograil.apps.captures.errors import StoreUnreachable, Unsealable
from cograil.apps.captures.failure import facts_of, give_up, note
from cograil.apps.captures.ingest import workflow
from cograil.apps.captures.key_encryption_keys import KeyRing
from cograil.apps.captures.object_check import Examined, examine
from cograil.apps.captures.object_store import Objects, url_of
from cograil.apps.captures.queries import Capture
from cograil.apps.captures.rfc3161 import BadStamp, Unstamped, ask
from cograil.apps.captures.settings import CaptureSettings
from cograil.apps.captures.signing import BadKey, Signer, find_signer
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
    """What seals captures in one worker."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self._settings = settings

    @property
    def _place(self) -> Path:
        return self._settings.data_dir / "captures"

    @cached_property
    def _objects(self) -> Objects:
        return Objects(self._settings.section(CaptureSettings).store_url or url_of(self._place / "objects"))

    @cached_property
    def _keys(self) -> KeyRing:
        captures = self._settings.section(CaptureSettings)
        return KeyRing(captures.kek_dir or self._place / "keks", captures.keks)

    @cached_property
    def _own_signer(self) -> Signer:
        return find_signer(self._settings.section(CaptureSettings), self._settings.data_dir)

    @property
    def signer(self) -> Signer:
        """Who signs here. Raises Retry: a key that is missing may be put there."""
        try:
            return self._own_signer
        except BadKey as error:
            raise Retry(str(error), code=error.code) from error

    async def seal(self, ctx: Context, capture_event_id: str) -> dict[str, Json]:
        """Examine the object of a capture, and sign what was found."""
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
        """The capture, from now on being sealed unless it has ended."""
        async with self._db.transaction("begin_sealing") as tx:
            capture = await _find(tx, ctx, id)
            if capture.state not in states.FINAL and await queries.begin_sealing(tx, capture):
                await note(tx, capture, "SEALING_STARTED", {"attempt": ctx.attempt, "job_id": ctx.job_id})
            return capture

    async def settle(self, ctx: Context, capture_event_id: str) -> None:
        """Write down why a capture was given up, and fail as it did."""
        async with self._db.transaction("settle_capture") as tx:
            capture = await _find(tx, ctx, capture_event_id)
            code, error = await _why(tx, ctx)
            await give_up(tx, capture, code, error)
        raise Fail(error, code=code)

    async def stamp(self, ctx: Context, capture_event_id: str) -> dict[str, Json]:
        """Ask a time-stamping authority about the proof of a capture, and add what it says."""
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
        stamped = manifest.with_stamp(proof, response, self.signer)
        async with ctx.transaction() as joint:
            tx = HandlerSession(joint.connection, "stamp", clock.now())
            if await queries.stamp_capture(tx, capture, stamped):
                digest = hashlib.sha256(response).hexdigest()
                await note(tx, capture, "CAPTURE_TIMESTAMPED", {"response_sha256": digest})
            return {"signature_status": "TIMESTAMPED"}


async def _write_proof(tx: Transaction, capture: Capture, examined: Examined, signer: Signer) -> str:
    """The state that it has now. Somebody else may have sealed it, for another job."""
    # The row before the chain, as whoever else moves a capture: else two of them wait in a circle.
    await queries.lock_left(tx, capture.tenant_id, capture.id)
    found = {"object_sha256": examined.object_sha256, "key_id": signer.facts["key_id"]}
    last = await note(tx, capture, "CAPTURE_SEALED", found | {"state": states.SEALED})
    most = manifest.MAX_ENTRIES
    entries = await audit.list_entries(tx, capture.id, max(0, last.seq - most), most)
    made = manifest.manifest_of(capture, examined, entries, signer.facts)
    if not await queries.seal_capture(tx, capture, manifest.signed(made, signer), made["sealed_at"]):
        raise Retry("somebody else ended this capture meanwhile", code="capture_ended")
    told = facts_of(capture, states.SEALED) | {
        "sealed_at": made["sealed_at"],
        "message": SEALED_MESSAGE,
        "proof": f"/v1/captures/{capture.capture_id}/proof",
    }
    await tell(tx, capture.tenant_id, "captures.sealed", capture.capture_id, told)
    return states.SEALED


async def _find(tx: Transaction, ctx: Context, id: str) -> Capture:
    found = await queries.find_capture(tx, ctx.tenant_id, id)
    if found is None:
        raise Fail(f"there is no capture {id}", code="capture_not_found")
    return found


async def _why(tx: Transaction, ctx: Context) -> tuple[str, str]:
    """What the engine knows of why `seal` failed."""
    nodes = await job_queries.list_nodes(tx, ctx.job_id, workflow())
    error: dict[str, Any] = next((one["error"] or {} for one in nodes if one["node_id"] == "seal"), {})
    return str(error.get("code") or "failed"), str(error.get("message") or "it failed")[:MAX_ERROR]
