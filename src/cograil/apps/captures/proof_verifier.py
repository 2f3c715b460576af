"""Verify a proof offline: only the data that the signature covers is trusted.

Every byte of a proof counts: it must be its own canonical JSON. So does every byte of the object and of the audit
trail that are checked against it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from cograil.apps.captures import audit, manifest
from cograil.apps.captures.fingerprint import Fields, canonical_fingerprint
from cograil.apps.captures.signing import ALGORITHM, is_signed, key_id
from cograil.canonical_json import NotCanonical, canonical

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

CHUNK = 1024 * 1024
PROOF = {"manifest", "signature_b64"}
STAMP = {"response_b64", "signature_b64"}
MISSHAPEN = (KeyError, IndexError, TypeError, ValueError, AttributeError)
STAMPED_BY_TRUSTED = "the time stamp is of this proof, and by an authority with a trusted CA"
STAMPED_BY_UNKNOWN = "the time stamp is of this proof, and by an authority whose CA was not checked"
TRAIL = {"capture_id", "chain", "broken_at", "entries"}


class NotProven(Exception):
    """A claim of the proof does not hold; the message says which."""


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """One claim, and whether it holds."""

    claim: str
    problem: str = ""

    @property
    def holds(self) -> bool:
        """Whether the claim holds."""
        return not self.problem


def verify(
    proof: bytes,
    *,
    object: BinaryIO | None = None,
    trail: bytes | Sequence[bytes] | None = None,
    trusted: Collection[bytes] = (),
    authorities: Sequence[Certificate] = (),
) -> list[ClaimResult]:
    """The results of all claims that could be checked, in order; an unreadable proof has only one.

    `object` is the encrypted object or its decrypted content, `trail` the response of `GET .../audit`, all pages in
    order, `trusted` the public keys of which one must have signed, `authorities` the CA certificates of which one must
    have issued that of the time-stamping authority.
    """
    pages = [trail] if isinstance(trail, bytes) else trail
    return list(_checked(_claims(proof, object, pages, trusted, authorities)))


Claims = Iterator[tuple[str, Callable[[], None]]]


def _checked(claims: Claims) -> Iterator[ClaimResult]:
    """Check each claim; an unreadable or unsigned proof yields one failed claim."""
    try:
        for claim, check in claims:
            try:
                check()
            except NotProven as error:
                yield ClaimResult(claim, str(error))
            except MISSHAPEN as error:  # somebody signed it, but it is not what we sign
                yield ClaimResult(claim, f"it is not of the shape that it should have: {error!r}")
            else:
                yield ClaimResult(claim)
    except NotProven as error:
        yield ClaimResult("the proof can be read, and is signed", str(error))


def _claims(
    text: bytes,
    object: BinaryIO | None,
    trail: Sequence[bytes] | None,
    trusted: Collection[bytes],
    authorities: Sequence[Certificate],
) -> Claims:
    proof = _read(text, "the proof")
    if not isinstance(proof, dict) or proof.keys() - {"timestamp"} != PROOF:
        raise NotProven("it is not a proof of a capture")
    sealed_manifest = proof["manifest"]
    try:
        public = _public(sealed_manifest)
        _check_signature(sealed_manifest, proof["signature_b64"], public)
    except MISSHAPEN as error:
        raise NotProven(f"it is not a proof of a capture: {error!r}") from None
    yield f"it is signed by the key {key_id(public)}", lambda: None
    if trusted:
        yield "that is the key we trust", lambda: _check_trusted(public, trusted)
    yield "the fingerprint is that of the nine fields", lambda: _check_fingerprint(sealed_manifest)
    yield "the audit entries in it are a chain", lambda: _check_entries(sealed_manifest["audit"])
    if trail is not None:
        yield "the audit trail is the one that was sealed", lambda: _check_trail(sealed_manifest, trail)
    if object is not None:
        yield "the object is the one that was sealed", lambda: _check_object(sealed_manifest, object)
    if "timestamp" in proof:
        claim = STAMPED_BY_TRUSTED if authorities else STAMPED_BY_UNKNOWN
        yield claim, lambda: _check_stamp(proof, public, authorities)


def _read(text: bytes, what: str) -> Any:
    """Parse JSON that must be in canonical form, so that every byte counts."""
    try:
        value = orjson.loads(text)
        is_canonical = canonical(value) == text
    except (orjson.JSONDecodeError, NotCanonical) as error:
        raise NotProven(f"{what} cannot be read: {error}") from None
    if not is_canonical:
        raise NotProven(f"{what} is not written as it was signed; keep the file as it was served")
    return value


def _bytes(text: str) -> bytes:
    """Decode base64 that must be in its canonical form."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NotProven("what should be base64 is not") from None
    if base64.b64encode(raw).decode() != text:
        raise NotProven("what should be base64 is not as it is written")
    return raw


def _public(sealed_manifest: dict[str, Any]) -> bytes:
    if sealed_manifest["format"] != manifest.FORMAT:
        raise NotProven(f"it has the format {str(sealed_manifest['format'])[:80]!r}, not {manifest.FORMAT}")
    public = _bytes(sealed_manifest["signer"]["public_key_b64"])
    if sealed_manifest["signer"]["algorithm"] != ALGORITHM or sealed_manifest["signer"]["key_id"] != key_id(
        public
    ):
        raise NotProven("it does not say rightly who signed it")
    return public


def _check_signature(sealed_manifest: dict[str, Any], signature: str, public: bytes) -> None:
    if not is_signed(public, _bytes(signature), canonical(sealed_manifest)):
        raise NotProven("the signature is not of this manifest: one of them was changed")


def _check_trusted(public: bytes, trusted: Collection[bytes]) -> None:
    if public not in trusted:
        raise NotProven(f"we trust the key {' or '.join(map(key_id, trusted))}")


def _check_fingerprint(sealed_manifest: dict[str, Any]) -> None:
    if (
        canonical_fingerprint(Fields(**sealed_manifest["payload"]))
        != sealed_manifest["payload_canonical_sha256"]
    ):
        raise NotProven("they have another one")


def _check_entries(sealed: dict[str, Any]) -> None:
    entries = sealed["entries"]
    first = entries[0]
    broken = audit.first_broken(entries, first["previous_hash"], first["seq"])
    if broken is not None:
        raise NotProven(f"entry {broken} is not as it was written")
    if (entries[-1]["seq"], entries[-1]["hash"]) != (sealed["seq"], sealed["head"]):
        raise NotProven("its last entry is not the one that was signed")


def _check_trail(sealed_manifest: dict[str, Any], texts: Sequence[bytes]) -> None:
    """Check the chain from its first entry on, and that its head is the signed one."""
    sealed, entries, next_after = sealed_manifest["audit"], [], None
    for text in texts:
        page = _read_page(sealed_manifest, text)
        entries += page["entries"]
        next_after = page.get("next_after")
        if next_after is not None and next_after != len(entries):
            raise NotProven("a page does not end where it says")
    broken = audit.first_broken(entries)
    if broken is not None:
        raise NotProven(f"entry {broken} is not as it was written, or is missing")
    if {entry["chain"] for entry in entries} != {sealed["chain"]}:
        raise NotProven("an entry is of another chain")
    if next_after is not None:
        raise NotProven(f"there is more of it after entry {next_after}: the next page is missing")
    if len(entries) < sealed["seq"] or entries[sealed["seq"] - 1]["hash"] != sealed["head"]:
        raise NotProven(f"entry {sealed['seq']} is not the one that was signed")


def _read_page(sealed_manifest: dict[str, Any], text: bytes) -> dict[str, Any]:
    page = _read(text, "the audit trail")
    is_trail = isinstance(page, dict) and page.keys() - {"next_after"} == TRAIL
    if not is_trail or not isinstance(page["entries"], list):
        raise NotProven("it is not an audit trail")
    is_same = (
        page["chain"] == sealed_manifest["audit"]["chain"]
        and page["capture_id"] == sealed_manifest["payload"]["capture_id"]
    )
    if not is_same or page["broken_at"] is not None:
        raise NotProven("it is that of another capture, or it says itself that it is broken")
    trail: dict[str, Any] = page
    return trail


def _check_object(sealed_manifest: dict[str, Any], file: BinaryIO) -> None:
    """Check the object, encrypted or not: both hashes were signed."""
    encrypted, content, size = hashlib.sha256(), hashlib.sha3_256(), 0
    while chunk := file.read(CHUNK):
        encrypted.update(chunk)
        content.update(chunk)
        size += len(chunk)
    sealed = sealed_manifest["object"]
    if size != sealed["size_bytes"]:
        raise NotProven(f"it has {size} bytes, not {sealed['size_bytes']}")
    is_object = encrypted.hexdigest() == sealed["object_sha256"]
    if not is_object and content.hexdigest() != sealed["content_sha3_256"]:
        raise NotProven("it is neither the encrypted object nor what was in it")


def _check_stamp(proof: dict[str, Any], public: bytes, authorities: Sequence[Certificate]) -> None:
    from cograil.apps.captures.rfc3161 import BadStamp, check_response  # noqa: PLC0415  for few proofs

    stamp = proof["timestamp"]
    if not isinstance(stamp, dict) or stamp.keys() != STAMP:
        raise NotProven("it is not a time stamp")
    response = _bytes(stamp["response_b64"])
    if not is_signed(public, _bytes(stamp["signature_b64"]), manifest.stamp_text(proof, response)):
        raise NotProven("it is not the one that was added to this proof: one of them was changed")
    try:
        check_response(response, manifest.stamped_text(proof), authorities)
    except BadStamp as error:
        raise NotProven(str(error)) from None
