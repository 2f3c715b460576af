"""Check the object of a capture: fetch and decrypt it chunk by chunk, and compare it with the announced values.

The plaintext is hashed and discarded; neither it nor the object is ever in memory as a whole.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from cograil.apps.captures.errors import Unsealable
from cograil.apps.captures.key_encryption_keys import KeyRing
from cograil.apps.captures.object_store import ObjectStore
from cograil.apps.captures.queries import Capture


@dataclass(frozen=True, slots=True)
class ObjectCheck:
    """The size and hashes of an object that matches the announced values."""

    size_bytes: int
    object_sha256: str  # of the encrypted object
    content_sha3_256: str  # of the decrypted content


class Reader:
    """Decrypts and hashes an object chunk by chunk."""

    def __init__(self, dek: bytes, nonce: bytes, tag: bytes) -> None:
        self._opened = Cipher(AES(dek), GCM(nonce, tag)).decryptor()
        self._sha256 = hashlib.sha256()
        self._sha3 = hashlib.sha3_256()
        self.size = 0

    def read(self, chunk: bytes) -> None:
        """Process the next bytes of the object."""
        self.size += len(chunk)
        self._sha256.update(chunk)
        self._sha3.update(self._opened.update(chunk))

    def end(self) -> ObjectCheck:
        """Finish. Raises Unsealable when a byte, the key, the nonce or the tag is wrong."""
        try:
            self._sha3.update(self._opened.finalize())
        except InvalidTag:
            message = "the object does not fit its key, nonce and tag: one of them was changed"
            raise Unsealable("tag_mismatch", message) from None
        return ObjectCheck(self.size, self._sha256.hexdigest(), self._sha3.hexdigest())


async def examine(capture: Capture, objects: ObjectStore, keys: KeyRing) -> ObjectCheck:
    """Check the object of this capture. Raises Unsealable or StoreUnreachable."""
    dek = await asyncio.to_thread(keys.unwrap, capture.kek_id, capture.dek_wrapped_b64)
    nonce, tag = base64.b64decode(capture.aes_gcm_nonce_b64), base64.b64decode(capture.aes_gcm_tag_b64)
    reader = Reader(dek, nonce, tag)
    async with objects.open(capture.upload_object_key) as stored:
        _check_size(stored.size, capture)
        async for chunk in stored.chunks:
            await asyncio.to_thread(reader.read, chunk)
    _check_size(reader.size, capture)
    examined = reader.end()
    if examined.content_sha3_256 != capture.content_hash:
        message = f"the content has the SHA3-256 {examined.content_sha3_256}, not the one that was announced"
        raise Unsealable("content_hash_mismatch", message)
    return examined


def _check_size(size: int, capture: Capture) -> None:
    if size != capture.size_bytes:
        message = f"the object has {size} bytes, not the {capture.size_bytes} that were announced"
        raise Unsealable("size_mismatch", message)
