"""The request body of a capture, in snake_case or camelCase; every field is validated."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AliasChoices, AliasGenerator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from cograil.apps.captures.fingerprint import Fields
from cograil.http.server.request_parsing import Body, as_model, read_json

UUID4 = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}"
MAX_PLAINTEXT = 2**36 - 32  # what AES-GCM encrypts under one nonce
MAX_OCR = 256 * 1024
IS_UUID4 = re.compile(UUID4).fullmatch
IS_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
).fullmatch

posted_capture_ids: ContextVar[list[str]] = ContextVar(
    "capture_asked"
)  # for the audit log: the id, once it was read


def _base64(min_bytes: int, max_bytes: int) -> Callable[[str], str]:
    """A validator: the text is canonical base64 of `min_bytes` to `max_bytes` bytes."""

    def check(text: str) -> str:
        try:
            raw = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("is not base64") from None
        if not min_bytes <= len(raw) <= max_bytes:
            expected = f"{min_bytes}" if min_bytes == max_bytes else f"{min_bytes} to {max_bytes}"
            raise ValueError(f"has {len(raw)} bytes, not {expected}")
        if base64.b64encode(raw).decode() != text:
            raise ValueError("is not base64 as it is written: bits are left over")
        return text

    return check


def _plain(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds characters that cannot be printed")
    return text


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds NUL")
    return text


def _key_of_object(text: str) -> str:
    if any(step in ("", ".", "..") for step in text.split("/")):
        raise ValueError("has an empty step, `.` or `..` in it")
    return _plain(text)


def _moment(text: str) -> str:
    """A time by RFC 3339; Python would accept more of ISO 8601."""
    try:
        is_moment = IS_RFC3339(text.upper()) and datetime.fromisoformat(text.upper())
    except (ValueError, OverflowError):
        is_moment = None
    if not is_moment:
        raise ValueError("must be a time with an offset, such as 2026-04-03T09:30:00Z")
    return text.upper()


Uuid4 = Annotated[str, Field(pattern=rf"^{UUID4}$")]
Word = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_plain)]
Mime = Annotated[
    str, Field(max_length=127, pattern=r"^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*$")
]


def _camel(name: str) -> str:
    return {"hash_sha3_256": "hashSha3256"}.get(name) or to_camel(name)


class NewCapture(Body):
    """The body of a post."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        hide_input_in_errors=True,
        loc_by_alias=False,
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(name, _camel(name))),
    )

    capture_id: Uuid4
    hash_sha3_256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    aes_gcm_nonce_b64: Annotated[str, Field(min_length=16, max_length=16), AfterValidator(_base64(12, 12))]
    aes_gcm_tag_b64: Annotated[str, Field(min_length=24, max_length=24), AfterValidator(_base64(16, 16))]
    dek_wrapped_b64: Annotated[str, Field(max_length=2048), AfterValidator(_base64(1, 1024))]
    kek_id: Word
    mime_type: Mime
    size_bytes: Annotated[int, Field(ge=0, le=MAX_PLAINTEXT)]
    upload_object_key: Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_key_of_object)]
    device_id: Uuid4
    timestamp_device: Annotated[str, Field(max_length=40), AfterValidator(_moment)]
    ocr_text: Annotated[str, Field(max_length=MAX_OCR), AfterValidator(_without_nul)] | None = None
    ocr_confidence: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    ocr_language: Annotated[str, Field(max_length=35), AfterValidator(_plain)] | None = None

    @classmethod
    def of_bytes(cls, raw: bytes, max_bytes: int) -> Self:
        value = read_json(raw, max_bytes=max_bytes)
        _note_id(value)
        return as_model(value, cls)

    @property
    def fields(self) -> Fields:
        """The fields of its fingerprint."""
        return Fields(
            aes_gcm_nonce_b64=self.aes_gcm_nonce_b64,
            aes_gcm_tag_b64=self.aes_gcm_tag_b64,
            capture_id=self.capture_id.lower(),
            content_hash=self.hash_sha3_256.lower(),
            dek_wrapped_b64=self.dek_wrapped_b64,
            kek_id=self.kek_id,
            mime_type=self.mime_type,
            size_bytes=self.size_bytes,
            upload_object_key=self.upload_object_key,
        )

    @property
    def captured_at(self) -> datetime:
        """The time by the clock of the device."""
        return datetime.fromisoformat(self.timestamp_device)


def _note_id(value: Any) -> None:
    """Remember the posted id, if it is valid, for the audit entry of an error."""
    capture_id = value.get("capture_id", value.get("captureId")) if isinstance(value, dict) else None
    if isinstance(capture_id, str) and IS_UUID4(capture_id):
        posted_capture_ids.get([]).append(capture_id.lower())
