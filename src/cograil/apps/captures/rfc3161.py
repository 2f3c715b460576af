"""Time stamps by RFC 3161: an independent authority certifies when a proof existed.

The authority receives a hash and nothing else. Its response is stored unchanged, so that `openssl ts -verify` can check
it too. `rfc3161-client` builds requests, and checks what is stamped, the signature and the chain of certificates.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.x509 import Certificate, load_der_x509_certificate, load_pem_x509_certificates
from rfc3161_client import HashAlgorithm, TimestampRequestBuilder, VerifierBuilder, decode_timestamp_response
from rfc3161_client.tsp import PKIStatus, TimeStampRequest

from cograil.apps.captures.settings import CaptureSettings
from cograil.egress import ForbiddenDestination, PublicOnly, UnknownHost, open_request
from cograil.errors import UsageError
from cograil.settings import OutboundSettings

MAX_BYTES = 256 * 1024
MAX_MESSAGE = 300
CERTIFICATES = 0xA0
SHORT_LENGTH = 0x80
OPENSSL_MESSAGE = re.compile(r'(?:reason|data): "([^"]+)"')
HEADERS = [
    (b"content-type", b"application/timestamp-query"),
    (b"accept", b"application/timestamp-reply"),
    (b"user-agent", b"cograil"),
]


class BadStamp(Exception):
    """The response is not a valid time stamp of this text."""


class Unstamped(Exception):
    """The authority is unreachable or refuses; a retry may succeed."""


class BadAuthority(UsageError):
    """A file does not hold certificates in PEM."""

    code = "bad_tsa_ca_file"


def load_authorities(path: Path | None) -> list[Certificate]:
    """Load the trusted CA certificates in this PEM file; without a path, none. Raises BadAuthority."""
    if path is None:
        return []
    try:
        return load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadAuthority(f"{path} holds no certificate in PEM: {error}") from error


async def ask(text: bytes, captures: CaptureSettings, outbound: OutboundSettings) -> bytes:
    """Request a time stamp of this text; return the verified response. Raises Unstamped, BadStamp or BadAuthority.

    The host may be private: the operator has configured it.
    """
    import httpx2  # noqa: PLC0415  few workers need it

    authorities = load_authorities(captures.tsa_ca_file)
    request = request_for(text)
    host = urlsplit(captures.tsa_url).hostname or ""
    guard = PublicOnly(outbound.model_copy(update={"allow": (*outbound.allow, host)}))
    try:
        async with asyncio.timeout(captures.tsa_seconds):
            destination = await guard.check(captures.tsa_url)
            async with open_request(destination, "POST", HEADERS, request.as_bytes()) as response:
                if response.status_code != 200:
                    raise Unstamped(f"{host} answered {response.status_code}")
                answer = await _read(response)
    except (ForbiddenDestination, UnknownHost, httpx2.RequestError, TimeoutError) as error:
        raise Unstamped(f"{host}: {str(error) or type(error).__name__}") from error
    check_response(answer, text, authorities, request.nonce)
    return answer


async def _read(response: object) -> bytes:
    parts, size = [], 0
    async for part in response.aiter_bytes():  # type: ignore[attr-defined]
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise BadStamp(f"the answer has more than {MAX_BYTES:,} bytes")
    return b"".join(parts)


def request_for(text: bytes) -> TimeStampRequest:
    """A request with a nonce for the SHA-256 of this text; the response shall carry the certificates."""
    return TimestampRequestBuilder(text, HashAlgorithm.SHA256).build()


def check_response(
    answer: bytes, text: bytes, authorities: Sequence[Certificate] = (), nonce: int | None = None
) -> datetime:
    """When this text was stamped. Raises BadStamp unless the response is valid.

    Its certificate must be issued by one of `authorities`. Without authorities the self-signed certificates in the
    response are the roots, so the signature is checked but not who made it.
    """
    try:
        return _checked(answer, text, authorities, nonce)
    except BadStamp:
        raise
    except Exception as error:  # the libraries raise errors of many types for hostile bytes
        message = ": ".join(OPENSSL_MESSAGE.findall(str(error))) or str(error) or type(error).__name__
        raise BadStamp(f"it is not a valid time stamp of this text: {message[:MAX_MESSAGE]}") from None


def _checked(answer: bytes, text: bytes, authorities: Sequence[Certificate], nonce: int | None) -> datetime:
    response = decode_timestamp_response(_with_sorted_certificates(answer))
    if response.status != PKIStatus.GRANTED:
        raise BadStamp(f"the authority refused, with the status {response.status}")
    roots = list(authorities)
    if not roots:
        carried = [load_der_x509_certificate(raw) for raw in response.signed_data.certificates]
        roots = [certificate for certificate in carried if certificate.issuer == certificate.subject]
    if not roots:
        raise BadStamp(
            "it carries no self-signed certificate, so it can only be checked against a CA certificate of the "
            "authority: set COGRAIL_CAPTURES__TSA_CA_FILE, or --tsa-ca of `cograil captures verify`"
        )
    VerifierBuilder(roots=roots, nonce=nonce).build().verify_message(response, text)
    return response.tst_info.gen_time


def _with_sorted_certificates(answer: bytes) -> bytes:
    """The response with its certificates in the order of DER, which the library insists on.

    CMS allows any order, and no signature covers it.
    """
    begin, end = 0, len(answer)
    try:
        for index in (0, 1, 1, 0):  # the response, its token, the content of that, the signed data
            _, _, begin, end = list(_values(answer, begin, end))[index]
        for tag, _, first, last in _values(answer, begin, end):
            if tag == CERTIFICATES:
                certificates = [answer[start:stop] for _, start, _, stop in _values(answer, first, last)]
                return answer[:first] + b"".join(sorted(certificates)) + answer[last:]
    except IndexError:  # no token, or not DER: the library says so
        pass
    return answer


def _values(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Tag, start, start of the content and end of each DER value in this range. Raises IndexError."""
    while start < end:
        length, begin = data[start + 1], start + 2
        if length >= SHORT_LENGTH:
            size = length - SHORT_LENGTH
            length, begin = int.from_bytes(data[begin : begin + size], "big"), begin + size
        if begin + length > end:
            raise IndexError("a value ends after the value that contains it")
        yield data[start], start, begin, begin + length
        start = begin + length
