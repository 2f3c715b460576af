"""The key that signs proofs: Ed25519, in a PEM file that is created if it does not exist."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from cograil.apps.captures.settings import CaptureSettings
from cograil.errors import UsageError

ALGORITHM = "Ed25519"


class BadKey(UsageError):
    """A file does not hold an Ed25519 key."""

    code = "bad_signing_key"


class Signer:
    """A private key with the id of its public key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @property
    def facts(self) -> dict[str, str]:
        """The signer section of a manifest."""
        return {
            "algorithm": ALGORITHM,
            "key_id": key_id(self.public),
            "public_key_b64": base64.b64encode(self.public).decode(),
        }

    def sign(self, text: bytes) -> str:
        """The signature, in base64."""
        return base64.b64encode(self._key.sign(text)).decode()

    def public_pem(self) -> bytes:
        """The public key, for verifiers."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def key_id(public: bytes) -> str:
    """The id of a public key: a prefix of its SHA-256."""
    return hashlib.sha256(public).hexdigest()[:32]


def is_signed(public: bytes, signature: bytes, text: bytes) -> bool:
    """Whether the holder of this key signed this text."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def load_signer(path: Path) -> Signer:
    """Load the key in this file, creating it if it does not exist; of concurrent creators one wins.

    Raises BadKey for a file that does not hold such a key.
    """
    if not path.exists():
        _make(path)
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise BadKey(f"{path} holds no private key in PEM without a password: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise BadKey(f"{path} holds a key, but not of {ALGORITHM}")
    return Signer(key)


def load_configured_signer(captures: CaptureSettings, data_dir: Path) -> Signer:
    """Load the configured signer. Raises BadKey.

    A configured key file is never created: nobody would trust a new key in its place.
    """
    if captures.signing_key is None:
        return load_signer(data_dir / "captures" / "signing.pem")
    if not captures.signing_key.exists():
        raise BadKey(
            f"COGRAIL_CAPTURES__SIGNING_KEY: the file {captures.signing_key} does not exist; "
            f"create it with `openssl genpkey -algorithm ed25519 -out {captures.signing_key}`"
        )
    return load_signer(captures.signing_key)


def load_public(path: Path) -> bytes:
    """Load the public key in this PEM file, also from a private key. Raises BadKey."""
    text = path.read_bytes()
    try:
        if b"PRIVATE KEY" in text:
            return load_signer(path).public
        key = load_pem_public_key(text)
    except ValueError as error:
        raise BadKey(f"{path} holds no public key in PEM: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise BadKey(f"{path} holds a key, but not of {ALGORITHM}")
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    text = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass  # another process was quicker
    finally:
        temporary.unlink()
