"""What two posts must have in common to be the same one: nine fields, in one text, in one hash.

`content_hash` is the SHA3-256 of the plaintext, and like the id it is written in lower case; nothing else is
folded or trimmed. What OCR read in a picture, and when, is not part of it.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass

from cograil import canonical_json


@dataclass(frozen=True, slots=True)
class Fields:
    """The nine."""

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
    """The one text of these fields: sorted, without white space, escaped as JavaScript does."""
    lowered = {"capture_id": fields.capture_id.lower(), "content_hash": fields.content_hash.lower()}
    return canonical_json.canonical(asdict(fields) | lowered)


def canonical_fingerprint(fields: Fields) -> str:
    """SHA-256 of that text, in lower-case hexadecimal."""
    return hashlib.sha256(fingerprint_bytes(fields)).hexdigest()
