"""The proof of a capture: a manifest of the checked values, and the signature over it.

A proof is the canonical JSON (RFC 8785) of `{"manifest": ..., "signature_b64": ...}`, byte for byte; the
signature is over the canonical JSON of the manifest. A response of a time-stamping authority is added as
`timestamp`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import orjson

from cograil.apps.captures.audit import ChainEntry, moment
from cograil.apps.captures.object_check import ObjectCheck
from cograil.apps.captures.queries import Capture
from cograil.apps.captures.signing import Signer
from cograil.canonical_json import canonical

FORMAT = "cograil.captures.manifest/1"
STAMP_FORMAT = "cograil.captures.timestamp/1"
MAX_ENTRIES = 1_000  # of the audit log, the last before the seal


def manifest_of(
    capture: Capture, examined: ObjectCheck, entries: Sequence[ChainEntry], signer: dict[str, str]
) -> dict[str, Any]:
    """The manifest to sign. The last of the entries is the sealing."""
    return {
        "format": FORMAT,
        "capture_event_id": capture.id,
        "tenant_id": capture.tenant_id,
        "user_id": capture.user_id,
        "device_id": capture.device_id,
        "received_at": moment(capture.created_at),
        "timestamp_device": moment(capture.timestamp_device),
        "skew_ms": capture.skew_ms,
        "sealed_at": entries[-1].at,
        "payload": asdict(capture.fields),
        "payload_canonical_sha256": capture.payload_canonical_sha256,
        "object": asdict(examined),
        "audit": {
            "chain": entries[-1].chain,
            "seq": entries[-1].seq,
            "head": entries[-1].hash,
            "entries": [asdict(entry) for entry in entries],
        },
        "signer": signer,
    }


def signed(manifest: dict[str, Any], signer: Signer) -> bytes:
    """The proof: manifest and signature."""
    return canonical({"manifest": manifest, "signature_b64": signer.sign(canonical(manifest))})


def stamped_text(proof: dict[str, Any]) -> bytes:
    """The bytes that an authority stamps: the proof without its time stamp."""
    return canonical({name: value for name, value in proof.items() if name != "timestamp"})


def stamp_text(proof: dict[str, Any], response: bytes) -> bytes:
    """The bytes that we sign of a time stamp, so that every change of it is noticed."""
    digests = {
        "format": STAMP_FORMAT,
        "proof_sha256": hashlib.sha256(stamped_text(proof)).hexdigest(),
        "response_sha256": hashlib.sha256(response).hexdigest(),
    }
    return canonical(digests)


def with_stamp(proof: dict[str, Any], response: bytes, signer: Signer) -> bytes:
    """The proof with the response of a time-stamping authority."""
    signature = signer.sign(stamp_text(proof, response))
    stamp = {"response_b64": base64.b64encode(response).decode(), "signature_b64": signature}
    return canonical(proof | {"timestamp": stamp})


def read(text: bytes | str) -> dict[str, Any]:
    """Parse a proof of ours."""
    proof: dict[str, Any] = orjson.loads(text)
    return proof
