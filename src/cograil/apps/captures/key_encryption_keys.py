"""The keys that wrap the keys of captures (KEKs), by id: in files or the environment, never in the database.

To rotate, add a key under a new id and let devices use it. An old one is needed until the last capture under
it was sealed. A file is read when it is needed: a new one needs no restart.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap

from cograil.apps.captures.errors import Unsealable
from cograil.apps.captures.settings import KEK_BYTES

DEK_BYTES = 32
WRAPPED_BYTES = DEK_BYTES + 8
IS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}").fullmatch


class KeyRing:
    """The key encryption keys, from files and the environment."""

    def __init__(self, directory: Path, from_environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._from_environment = from_environment

    def unwrap(self, kek_id: str, wrapped_b64: str) -> bytes:
        """The key of a capture. Raises Unsealable: kek_unknown, or dek_unwrap_failed."""
        kek, wrapped = self._kek(kek_id), base64.b64decode(wrapped_b64)
        if len(wrapped) != WRAPPED_BYTES:
            message = (
                f"the wrapped key has {len(wrapped)} bytes; an AES-256 key has {WRAPPED_BYTES} (RFC 3394)"
            )
            raise Unsealable("dek_unwrap_failed", message)
        try:
            return aes_key_unwrap(kek, wrapped)
        except InvalidUnwrap:
            message = f"the KEK {kek_id!r} does not unwrap the key: another one wrapped it, or it was changed"
            raise Unsealable("dek_unwrap_failed", message) from None

    def _kek(self, kek_id: str) -> bytes:
        kek = self._in_file(kek_id) or base64.b64decode(self._from_environment.get(kek_id, ""))
        if not kek:
            raise Unsealable("kek_unknown", f"the KEK {kek_id!r} does not exist")
        if len(kek) != KEK_BYTES:
            raise Unsealable("kek_unknown", f"the KEK {kek_id!r} has {len(kek)} bytes, not {KEK_BYTES}")
        return kek

    def _in_file(self, kek_id: str) -> bytes:
        """The content of the key's file; empty if it does not exist, or if no file can have this name."""
        if not IS_NAME(kek_id):
            return b""
        try:
            return (self._directory / kek_id).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return b""
