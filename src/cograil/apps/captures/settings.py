"""The settings of the app `captures`."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, PositiveFloat, field_validator

from cograil.plugins import SettingsSection

KEK_BYTES = 32
STORES = ("file", "s3")


def _read_keks(value: object) -> object:
    """`id=base64,id=base64` as a mapping."""
    if not isinstance(value, str):
        return value
    pairs = (pair.strip().partition("=") for pair in value.split(",") if pair.strip())
    return {name: text for name, _, text in pairs}


class CaptureSettings(SettingsSection):
    """Captures: where objects and keys are, and how much one user may send."""

    store_url: str = ""
    """Where the encrypted objects are, file:// or s3://; else `captures/objects` of the data directory."""
    kek_dir: Path | None = None
    """A file for each KEK, 32 raw bytes under its id; else `captures/keks` of the data directory."""
    keks: Annotated[dict[str, str], BeforeValidator(_read_keks)] = Field({}, repr=False)
    """More KEKs, such as `id=base64,id=base64`; one in a file of the same id comes first."""
    signing_key: Path | None = None
    """The Ed25519 key (PEM) that signs proofs; else `captures/signing.pem` is made in the data directory."""
    rate_per_minute: PositiveFloat = 6000
    """How many new captures one user may send, in the long run and at once."""
    tsa_url: str = ""
    """Where a time-stamping authority answers (RFC 3161); without it nobody is asked."""
    tsa_seconds: PositiveFloat = 10
    """How long such an authority may take."""
    tsa_ca_file: Path | None = None
    """The CA certificates of that authority (PEM). Without them the root certificate in its response is trusted."""
    sweep_seconds: PositiveFloat = 30
    """How often a worker looks for captures whose job has ended or is gone without having ended them."""
    retry_seconds: Annotated[float, Field(ge=0)] = 600
    """How long such a job may be retried by hand before its capture fails as it did."""

    @field_validator("store_url")
    @classmethod
    def a_store_is_of_a_kind_we_know(cls, value: str) -> str:
        if value and urlsplit(value).scheme not in STORES:
            raise ValueError("must begin with file:// or s3://")
        return value

    @field_validator("tsa_url")
    @classmethod
    def an_authority_is_asked_over_http(cls, value: str) -> str:
        if value and urlsplit(value).scheme not in ("http", "https"):
            raise ValueError("must begin with http:// or https://")
        return value

    @field_validator("keks")
    @classmethod
    def a_kek_has_32_bytes(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            try:
                size = len(base64.b64decode(text, validate=True))
            except binascii.Error:
                size = -1
            if not name or size != KEK_BYTES:
                raise ValueError(f"COGRAIL_CAPTURES__KEKS: {name[:64]!r} is no {KEK_BYTES} bytes in base64")
        return value
