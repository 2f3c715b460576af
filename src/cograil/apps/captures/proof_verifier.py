"""Verifying a proof, offline: nobody is asked, and nothing is believed but what the signature covers.

Every byte of a proof counts: it is its own canonical JSON, or it is none. So does every byte of the object
and of the audit trail that are held against it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from cograil.apps.captures import audit, manifest
from cograil.apps.captures.fingerprint import Fields, canonical_fingerprint
from cograil.apps.captures.signing import ALGORITHM, is_signed, key_id
from cograil.canonical_json import NotCanonical, canonical

CHUNK = 1024 * 1024
PROOF = {"manifest", "signature_b64"}
STAMP = {"response_b64", "signature_b64"}
MISSHAPEN = (KeyError, IndexError, TypeError, ValueError, AttributeError)
TRAIL = {"capture_id", "chain", "broken_at", "entries"}


class NotProven(Exception):
    """A claim of the proof does not hold; the message says which."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One claim, and whether it holds."""

    claim: str
    problem: str = ""

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.problem


def verify(
    proof: bytes,
    *,
    object: BinaryIO | None = None,
    trail: bytes | Sequence[bytes] | None = None,
    trusted: Collection[bytes] = (),
) -> list[Checked]:
    """Every claim that could be checked, in order; after one that nothing can follow there are no more.

    `object` is the encrypted object or what was in it, `trail` what `GET .../audit` answers, all pages of it
    in their order, `trusted` the public keys of which one must have signed.
    """
    pages = [trail] if isinstance(trail, bytes) else trail
    return list(_checked(_claims(proof, object, pages, trusted)))


Claims = Iterator[tuple[str, Callable[[], None]]]


def _checked(claims: Claims) -> Iterator[Checked]:
    """Each claim; a proof that cannot be read or is not signed claims nothing more."""
    try:
        for claim, check in claims:
            try:
                check()
            except NotProven as error:
                yield Checked(claim, str(error))
            except MISSHAPEN as error:  # somebody signed it, but it is not what we sign
                yield Checked(claim, f"it is not of the shape that it should have: {error!r}")
            else:
                yield Checked(claim)
    except NotProven as error:
        yield Checked("the proof can be read, and is signed", str(error))


def _claims(
    text: bytes, object: BinaryIO | None, trail: Sequence[bytes] | None, trusted: Collection[bytes]
) -> Claims:
    proof = _read(text, "the proof")
    if not isinstance(proof, dict) or proof.keys() - {"timestamp"} != PROOF:
        raise NotProven("it is no proof of a capture")
    made = proof["manifest"]
    try:
        public = _public(made)
        _check_signature(made, proof["signature_b64"], public)
    except MISSHAPEN as error:
        raise NotProven(f"it is no proof of a capture: {error!r}") from None
    yield f"it is signed by the key {key_id(public)}", lambda: None
    if trusted:
        yield "that is the key we trust", lambda: _check_trusted(public, trusted)
    yield "the fingerprint is that of the nine fields", lambda: _check_fingerprint(made)
    yield "the audit entries in it are a chain", lambda: _check_entries(made["audit"])
    if trail is not None:
        yield "the audit trail is the one that was sealed", lambda: _check_trail(made, trail)
    if object is not None:
        yield "the object is the one that was sealed", lambda: _check_object(made, object)
    if "timestamp" in proof:
        yield "the time stamp is of this proof", lambda: _check_stamp(proof, public)


def _read(text: bytes, what: str) -> Any:
    """JSON in its canonical form, and in no other: then there is no byte that means nothing."""
    try:
        value = orjson.loads(text)
        is_canonical = canonical(value) == text
    except (orjson.JSONDecodeError, NotCanonical) as error:
        raise NotProven(f"{what} cannot be read: {error}") from None
    if not is_canonical:
        raise NotProven(f"{what} is not written as it was signed; keep the file as it was served")
    return value


def _bytes(text: str) -> bytes:
    """Of base64, in the one way to write it."""
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NotProven("what should be base64 is not") from None
    if base64.b64encode(found).decode() != text:
        raise NotProven("what should be base64 is not as it is written")
    return found


def _public(made: dict[str, Any]) -> bytes:
    if made["format"] != manifest.FORMAT:
        raise NotProven(f"it has the format {str(made['format'])[:80]!r}, not {manifest.FORMAT}")
    public = _bytes(made["signer"]["public_key_b64"])
    if made["signer"]["algorithm"] != ALGORITHM or made["signer"]["key_id"] != key_id(public):
        raise NotProven("it does not say rightly who signed it")
    return public


def _check_signature(made: dict[str, Any], signature: str, public: bytes) -> None:
    if not is_signed(public, _bytes(signature), canonical(made)):
        raise NotProven("the signature is not of this manifest: one of them was changed")


def _check_trusted(public: bytes, trusted: Collection[bytes]) -> None:
    if public not in trusted:
        raise NotProven(f"we trust the key {' or '.join(map(key_id, trusted))}")


def _check_fingerprint(made: dict[str, Any]) -> None:
    if canonical_fingerprint(Fields(**made["payload"])) != made["payload_canonical_sha256"]:
        raise NotProven("they have another one")


def _check_entries(sealed: dict[str, Any]) -> None:
    entries = sealed["entries"]
    first = entries[0]
    broken = audit.first_broken(entries, first["previous_hash"], first["seq"])
    if broken is not None:
        raise NotProven(f"entry {broken} is not as it was written")
    if (entries[-1]["seq"], entries[-1]["hash"]) != (sealed["seq"], sealed["head"]):
        raise NotProven("its last entry is not the one that was signed")


def _check_trail(made: dict[str, Any], texts: Sequence[bytes]) -> None:
    """The chain from its first entry on, and that it is the one whose head was signed."""
    sealed, entries, next_after = made["audit"], [], None
    for text in texts:
        page = _read_page(made, text)
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


def _read_page(made: dict[str, Any], text: bytes) -> dict[str, Any]:
    page = _read(text, "the audit trail")
    is_trail = isinstance(page, dict) and page.keys() - {"next_after"} == TRAIL
    if not is_trail or not isinstance(page["entries"], list):
        raise NotProven("it is no audit trail")
    is_same = page["chain"] == made["audit"]["chain"] and page["capture_id"] == made["payload"]["capture_id"]
    if not is_same or page["broken_at"] is not None:
        raise NotProven("it is that of another capture, or it says itself that it is broken")
    found: dict[str, Any] = page
    return found


def _check_object(made: dict[str, Any], file: BinaryIO) -> None:
    """It may be encrypted or not: both hashes were signed."""
    encrypted, content, size = hashlib.sha256(), hashlib.sha3_256(), 0
    while chunk := file.read(CHUNK):
        encrypted.update(chunk)
        content.update(chunk)
        size += len(chunk)
    sealed = made["object"]
    if size != sealed["size_bytes"]:
        raise NotProven(f"it has {size} bytes, not {sealed['size_bytes']}")
    is_object = encrypted.hexdigest() == sealed["object_sha256"]
    if not is_object and content.hexdigest() != sealed["content_sha3_256"]:
        raise NotProven("it is neither the encrypted object nor what was in it")


def _check_stamp(proof: dict[str, Any], public: bytes) -> None:
    from cograil.apps.captures.rfc3161 import BadStamp, check_response  # noqa: PLC0415  for few proofs

    stamp = proof["timestamp"]
    if not isinstance(stamp, dict) or stamp.keys() != STAMP:
        raise NotProven("it is no time stamp")
    response = _bytes(stamp["response_b64"])
    if not is_signed(public, _bytes(stamp["signature_b64"]), manifest.stamp_text(proof, response)):
        raise NotProven("it is not the one that was added to this proof: one of them was changed")
    try:
        check_response(response, manifest.stamped_text(proof))
    except BadStamp as error:
        raise NotProven(str(error)) from None
