"""The fingerprint that makes two posts the same one: the hash of nine fields.

`content_hash` is the SHA3-256 of the plaintext; it and the id are lower-cased, nothing else is normalised. OCR text and
timestamps are not part of it.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass

from cograil import canonical_json


@dataclass(frozen=True, slots=True)
class Fields:
    """The nine fields of the fingerprint."""

    aes_gcm_nonce_b64: str
    aes_gcm_tag_b64: str
    capture_id: str
    content_hash: str
    dek_wrapped_b64: str
    kek_id: str
    mime_type: str
    size_bytes: int
    upload_object_key: str


def fingerprint_bytes(fields: Fields) -> bytes:
    """The canonical JSON of these fields."""
    lowered = {"capture_id": fields.capture_id.lower(), "content_hash": fields.content_hash.lower()}
    return canonical_json.canonical(asdict(fields) | lowered)


def canonical_fingerprint(fields: Fields) -> str:
    """The SHA-256 of the canonical JSON, in lower-case hexadecimal."""
    return hashlib.sha256(fingerprint_bytes(fields)).hexdigest()
