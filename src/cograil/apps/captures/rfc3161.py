"""Time stamps by RFC 3161: an authority that we do not own says when a proof was there.

It is sent a hash and sees nothing else. Its answer is kept as it came, so that anybody can check it with
`openssl ts -verify` against the authority's certificate; here it is checked that it is about this proof and
that whoever's certificate is in it signed it.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from datetime import UTC, datetime
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from cograil.apps.captures import der
from cograil.apps.captures.der import BadDer, Value
from cograil.apps.captures.settings import CaptureSettings
from cograil.egress import ForbiddenDestination, PublicOnly, UnknownHost, open_request
from cograil.settings import OutboundSettings

SHA256_OID = bytes.fromhex("608648016503040201")
SIGNED_DATA = bytes.fromhex("2a864886f70d010702")
TST_INFO = bytes.fromhex("2a864886f70d0109100104")
MESSAGE_DIGEST = bytes.fromhex("2a864886f70d010904")
HASHES: dict[bytes, hashes.HashAlgorithm] = {
    SHA256_OID: hashes.SHA256(),
    bytes.fromhex("608648016503040202"): hashes.SHA384(),
    bytes.fromhex("608648016503040203"): hashes.SHA512(),
}
GRANTED = (0, 1)
MAX_BYTES = 256 * 1024
HEADERS = [
    (b"content-type", b"application/timestamp-query"),
    (b"accept", b"application/timestamp-reply"),
    (b"user-agent", b"cograil"),
]


class BadStamp(Exception):
    """What the authority said is no time stamp of this proof."""


class Unstamped(Exception):
    """The authority does not answer, or refuses; later it may not."""


async def ask(text: bytes, captures: CaptureSettings, outbound: OutboundSettings) -> bytes:
    """The authority's answer about this text, checked. Raises Unstamped, or BadStamp.

    Its host is allowed though it may not be public: whoever runs this place named it.
    """
    import httpx2  # noqa: PLC0415  few workers ever ask

    nonce = secrets.randbits(63)
    host = urlsplit(captures.tsa_url).hostname or ""
    guard = PublicOnly(outbound.model_copy(update={"allow": (*outbound.allow, host)}))
    try:
        async with asyncio.timeout(captures.tsa_seconds):
            destination = await guard.check(captures.tsa_url)
            async with open_request(destination, "POST", HEADERS, query(text, nonce)) as response:
                if response.status_code != 200:
                    raise Unstamped(f"{host} answered {response.status_code}")
                answer = await _read(response)
    except (ForbiddenDestination, UnknownHost, httpx2.RequestError, TimeoutError) as error:
        raise Unstamped(f"{host}: {str(error) or type(error).__name__}") from error
    check_response(answer, text, nonce)
    return answer


async def _read(response: object) -> bytes:
    parts, size = [], 0
    async for part in response.aiter_bytes():  # type: ignore[attr-defined]
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise BadStamp(f"the answer has more than {MAX_BYTES:,} bytes")
    return b"".join(parts)


def query(text: bytes, nonce: int) -> bytes:
    """A TimeStampReq for the SHA-256 of this text, that asks for the certificate too."""
    return der.write(
        der.SEQUENCE,
        der.write_integer(1),
        _imprint(text),
        der.write_integer(nonce),
        der.write(der.BOOLEAN, b"\xff"),
    )


def _imprint(text: bytes) -> bytes:
    algorithm = der.write(der.SEQUENCE, der.write(der.OID, SHA256_OID), der.write(der.NULL))
    return der.write(der.SEQUENCE, algorithm, der.write(der.OCTETS, hashlib.sha256(text).digest()))


def check_response(answer: bytes, text: bytes, nonce: int | None = None) -> datetime:
    """When this text was stamped. Raises BadStamp when it was not, or not by whose certificate is in it."""
    try:
        whole = der.read(answer)
        status = whole.part(0, der.SEQUENCE).part(0, der.INTEGER).integer()
        if status not in GRANTED:
            raise BadStamp(f"the authority refused, with the status {status}")
        signed = _signed_data(whole.part(1, der.SEQUENCE))
        return _check_token(signed, text, nonce)
    except (BadDer, ValueError, IndexError, x509.InvalidVersion, UnsupportedAlgorithm) as error:
        raise BadStamp(f"it is no time stamp: {error}") from None


def _signed_data(token: Value) -> Value:
    if token.part(0, der.OID).body != SIGNED_DATA:
        raise BadStamp("it is not signed data")
    return token.part(1, der.CONTEXT_0).part(0, der.SEQUENCE)


def _check_token(signed: Value, text: bytes, nonce: int | None) -> datetime:
    content = signed.part(2, der.SEQUENCE)
    if content.part(0, der.OID).body != TST_INFO:
        raise BadStamp("it is signed, but no time stamp")
    info_text = content.part(1, der.CONTEXT_0).part(0, der.OCTETS).body
    info = der.read(info_text)
    algorithm, digest = info.part(2, der.SEQUENCE).parts()
    is_this = digest.body == hashlib.sha256(text).digest()
    if algorithm.part(0, der.OID).body != SHA256_OID or not is_this:
        raise BadStamp("it is about something else")
    if nonce is not None and nonce not in [
        one.integer() for one in info.parts()[5:] if one.tag == der.INTEGER
    ]:
        raise BadStamp("it answers another question")
    _check_signature(signed, info_text)
    return _moment(info.part(4, der.TIME).body.decode("ascii"))


def _check_signature(signed: Value, info_text: bytes) -> None:
    """Of the one who signs, with the certificate that is in it."""
    signer = signed.parts()[-1].part(0, der.SEQUENCE)
    _, sid, algorithm, attributes, _, signature, *_ = signer.parts()
    hash_algorithm = HASHES.get(algorithm.part(0, der.OID).body)
    if hash_algorithm is None or attributes.tag != der.CONTEXT_0:
        raise BadStamp("it is signed in a way that we do not know")
    digest = hashes.Hash(hash_algorithm)
    digest.update(info_text)
    if _attribute(attributes, MESSAGE_DIGEST) != digest.finalize():
        raise BadStamp("what was signed is not what is in it")
    covered = der.write(der.SET, attributes.body)
    serial = sid.part(1, der.INTEGER).integer() if sid.tag == der.SEQUENCE else None
    for certificate in _certificates(signed):
        if serial in (None, certificate.serial_number):
            _check_by(certificate, signature.body, covered, hash_algorithm)
            return
    raise BadStamp("the certificate of the authority is not in it")


def _certificates(signed: Value) -> list[x509.Certificate]:
    inside = [part for part in signed.parts() if part.tag == der.CONTEXT_0]
    return [x509.load_der_x509_certificate(one.raw) for part in inside for one in part.parts()]


def _attribute(attributes: Value, name: bytes) -> bytes:
    for one in attributes.parts():
        if one.part(0, der.OID).body == name:
            return one.part(1, der.SET).part(0, der.OCTETS).body
    return b""


def _check_by(
    certificate: x509.Certificate, signature: bytes, covered: bytes, algorithm: hashes.HashAlgorithm
) -> None:
    key = certificate.public_key()
    try:
        if isinstance(key, RSAPublicKey):
            key.verify(signature, covered, PKCS1v15(), algorithm)
        elif isinstance(key, EllipticCurvePublicKey):
            key.verify(signature, covered, ECDSA(algorithm))
        else:
            raise BadStamp("it is signed with a key of a kind that we do not know")
    except InvalidSignature:
        raise BadStamp("the signature of the authority does not hold: it was changed") from None


def _moment(text: str) -> datetime:
    """A GeneralizedTime, in UTC; it may have fractions."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    moment = datetime.strptime(whole, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return moment.replace(microsecond=int((fraction + "000000")[:6])) if fraction else moment
