"""Validate the receiver of a job's callback or of a subscription before it is stored.

A callback is `{url, secret?, events?, headers?, style?}`. The URL is validated without a DNS lookup; the
address is checked before every request.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cograil.egress import ForbiddenDestination, PublicOnly
from cograil.errors import InvalidInput, Problem
from cograil.model.workflow import Json
from cograil.setting_sections import OutboundSettings
from cograil.store.write_batch import OUTBOX_TYPES

CLOUDEVENTS = "cloudevents"  # CloudEvents, and both signatures
ORCHESTRATOR = "orchestrator"  # with Ce-* headers and X-Signature-256 only; a 4xx ends the delivery
PLATFORM = "platform"  # identifies jobs by the id that the caller chose
STYLES = (CLOUDEVENTS, ORCHESTRATOR, PLATFORM)

SECRET_PREFIX = "whsec_"
MAX_URL = 2048
MAX_HEADERS = 20
MAX_HEADER_VALUE = 1024
MAX_SECRET = 1024
MAX_TYPES = 64
MIN_KEY_BYTES, MAX_KEY_BYTES = 24, 64

_FIELDS = frozenset({"url", "secret", "events", "headers", "style"})
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_OURS = re.compile(
    r"(?:host|connection|content-.*|transfer-encoding|te|trailer|upgrade|expect|keep-alive|proxy-.*"
    r"|accept-encoding|x-signature-256|webhook-.*|ce-.*|cograil-.*)",
    re.IGNORECASE,
)
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")
_TYPES = frozenset(OUTBOX_TYPES.values())


def check_callback(callback: Json, policy: OutboundSettings) -> None:
    """Raise InvalidInput with every problem of a job's callback."""
    if problems := list(_callback_problems(callback, policy)):
        raise InvalidInput(problems)


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver of events. Without a secret, one is generated."""

    url: str
    secret: str | None = None
    style: str = CLOUDEVENTS
    headers: Mapping[str, str] = field(default_factory=dict)


def check_receiver(receiver: Receiver, policy: OutboundSettings) -> None:
    """Raise InvalidInput with every problem of a subscription's receiver."""
    problems = [
        *_url_problems(receiver.url, policy, "/url"),
        *_style_problems(receiver.style, "/style"),
        *_secret_problems(receiver.secret, receiver.style, "/secret"),
        *_header_problems(receiver.headers, "/headers"),
    ]
    if problems:
        raise InvalidInput(problems)


def check_secret(secret: str, style: str) -> None:
    """Raise InvalidInput for a secret that receivers of this style cannot verify."""
    if problems := list(_secret_problems(secret, style, "/secret")):
        raise InvalidInput(problems)


def check_types(types: Json, pointer: str = "/types") -> list[str]:
    """Return the types by their full names. Raises InvalidInput for an invalid type."""
    if problems := list(_type_problems(types, pointer)):
        raise InvalidInput(problems)
    return [full_type(name) for name in types or ()]


def full_type(name: str) -> str:
    """Return the full name: `job.completed` and `job_completed` become `cograil.job.completed`; other names
    stay.
    """
    if name in OUTBOX_TYPES:
        return OUTBOX_TYPES[name]
    return f"cograil.{name}" if f"cograil.{name}" in _TYPES else name


def key_of(secret: str) -> bytes:
    """Return the key of Standard Webhooks: the part after `whsec_`, decoded. Raises ValueError."""
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _callback_problems(callback: Json, policy: OutboundSettings) -> Iterator[Problem]:
    if not isinstance(callback, dict) or not isinstance(callback.get("url"), str):
        yield Problem("callback_invalid_url", "a callback must be an object with a url", "/callback/url")
        return
    for name in callback.keys() - _FIELDS:
        yield Problem("unknown_field", f"a callback has no field {name[:64]!r}", f"/callback/{name[:64]}")
    style = callback.get("style") or CLOUDEVENTS
    yield from _url_problems(callback["url"], policy, "/callback/url")
    yield from _style_problems(style, "/callback/style")
    yield from _secret_problems(callback.get("secret"), style, "/callback/secret")
    yield from _header_problems(callback.get("headers") or {}, "/callback/headers")
    yield from _type_problems(callback.get("events"), "/callback/events")


def _url_problems(url: str, policy: OutboundSettings, pointer: str) -> Iterator[Problem]:
    if len(url) > MAX_URL or "#" in url:
        message = f"a url must have at most {MAX_URL:,} characters and no fragment"
        yield Problem("callback_invalid_url", message, pointer)
        return
    try:
        place = PublicOnly(policy).inspect(url)
    except ForbiddenDestination as error:
        yield Problem(f"callback_{error.reason}", str(error), pointer)
        return
    if policy.require_https and place.scheme != "https":
        yield Problem("callback_scheme", "a url must begin with https://", pointer)


def _style_problems(style: Json, pointer: str) -> Iterator[Problem]:
    if style not in STYLES:
        yield Problem("callback_style", f"a style must be one of {', '.join(STYLES)}", pointer)


def _secret_problems(secret: Json, style: Json, pointer: str) -> Iterator[Problem]:
    if secret is None:
        return
    if not isinstance(secret, str) or not 0 < len(secret) <= MAX_SECRET or "\0" in secret:
        yield Problem("callback_secret", f"a secret must be text of 1 to {MAX_SECRET} characters", pointer)
    elif style != ORCHESTRATOR and not _is_key(secret):
        message = f"a secret must be {SECRET_PREFIX} and base64 of {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes"
        yield Problem("callback_secret", message, pointer)


def _is_key(secret: str) -> bool:
    try:
        return MIN_KEY_BYTES <= len(key_of(secret)) <= MAX_KEY_BYTES
    except ValueError:
        return False


def _header_problems(headers: Json, pointer: str) -> Iterator[Problem]:
    if not isinstance(headers, dict) or len(headers) > MAX_HEADERS:
        yield Problem(
            "callback_header", f"headers must be an object with at most {MAX_HEADERS} names", pointer
        )
        return
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or _OURS.fullmatch(name):
            yield Problem("callback_header", f"the header {name[:64]!r} cannot be set", pointer)
        elif not isinstance(value, str) or not _is_header_value(value):
            message = f"the value of the header {name} must be a line of at most {MAX_HEADER_VALUE} plain characters"
            yield Problem("callback_header", message, pointer)


def _is_header_value(value: str) -> bool:
    return len(value) <= MAX_HEADER_VALUE and bool(_HEADER_VALUE.fullmatch(value))


def _type_problems(types: Json, pointer: str) -> Iterator[Problem]:
    if types is None:
        return
    is_list = isinstance(types, list | tuple) and len(types) <= MAX_TYPES
    if not is_list or not all(isinstance(name, str) and _TYPE.fullmatch(name) for name in types):
        message = (
            f"must be a list of at most {MAX_TYPES} types such as job.completed; an empty list means all"
        )
        yield Problem("callback_event", message, pointer)
