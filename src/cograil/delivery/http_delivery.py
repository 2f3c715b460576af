"""One delivery attempt: sends the request and decides what the response means for the delivery."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import orjson

from cograil import clock, tracing
from cograil.delivery.cloudevents import CONTENT_TYPE
from cograil.delivery.signatures import signed_headers
from cograil.egress import ForbiddenDestination, Headers, KeptConnections, OutboundGuard, UnknownHost
from cograil.settings import RelaySettings
from cograil.store.outbox_queries import Claimed, Tried
from cograil.verbs.callback_targets import ORCHESTRATOR

if TYPE_CHECKING:
    import httpx2

# Seconds before each next attempt; the last value repeats. The first ten attempts take about three days.
BACKOFF = (5, 30, 120, 600, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600)
JITTER = 0.2
MAX_RETRY_AFTER = 3600.0
MAX_BLOCKED_TRIES = 3
MAX_ANSWER_BYTES = 64 * 1024
COMPRESSED = frozenset({"gzip", "x-gzip", "deflate"})
ANY_WINDOW = zlib.MAX_WBITS | 32  # detects gzip or zlib
SHOWN_CHARACTERS = 300
GONE = 410
NOT_FINAL = frozenset({408, 410, 429})


@dataclass(frozen=True, slots=True)
class AttemptResponse:
    """The outcome of a request: a status, or an error without a status.

    `is_blocked`: the outbound guard forbids the destination, so nothing was sent.
    """

    status: int | None = None
    error: str | None = None
    retry_after: float | None = None
    is_blocked: bool = False

    @property
    def is_delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def is_receiver_available(self) -> bool:
        """Whether the receiver is available, even if it rejects this event."""
        return self.is_blocked or (self.status is not None and self.status < 500)


async def post(
    claimed: Claimed, guard: OutboundGuard, connections: KeptConnections, timeout_seconds: float
) -> AttemptResponse:
    """Send this delivery once. Every outcome is a response, including a timeout."""
    options = orjson.loads(claimed.sending)
    job = None if claimed.job_id is None else (claimed.job_id, options.get("trace_parent"))
    kind = options.get("type", "event")
    with tracing.delivery_span(claimed.delivery_id, claimed.tries, kind, claimed.origin, job) as span:
        response = await _post(claimed, span.trace_parent, guard, connections, timeout_seconds)
        span.set_response(
            response.status, None if response.is_delivered else str(response.status or "no response")
        )
    return response


async def _post(
    claimed: Claimed,
    trace_parent: str | None,
    guard: OutboundGuard,
    connections: KeptConnections,
    timeout_seconds: float,
) -> AttemptResponse:
    import httpx2  # noqa: PLC0415  most processes never send a request

    try:
        async with asyncio.timeout(timeout_seconds):
            destination = await guard.check(claimed.url)
            headers = _headers(claimed, trace_parent)
            async with connections.open_request(destination, "POST", headers, claimed.body) as response:
                return _judge_status(response, is_complete=await _read_bounded(response))
    except ForbiddenDestination as error:
        return AttemptResponse(error=f"blocked ({error.reason}): {error}", is_blocked=True)
    except UnknownHost as error:
        return AttemptResponse(error=str(error))
    except TimeoutError:
        return AttemptResponse(error=f"no complete response within {timeout_seconds:g} s")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        return AttemptResponse(error=f"{type(error).__name__}: {error}"[:SHOWN_CHARACTERS])


def _headers(claimed: Claimed, trace_parent: str | None) -> Headers:
    options = orjson.loads(claimed.sending)
    custom = {name.lower(): value for name, value in options["headers"].items()}
    defaults = {
        "content-type": CONTENT_TYPE,
        "user-agent": "cograil",
        "accept": "*/*",
        "accept-encoding": "identity",
        "content-length": str(len(claimed.body)),
    }
    defaults |= {} if trace_parent is None else {"traceparent": trace_parent}
    style, secret, old = options["style"], options["secret"], options.get("old_secrets", ())
    signed = signed_headers(style, secret, claimed.delivery_id, int(clock.seconds()), claimed.body, old)
    extra = _ce_headers(claimed.body) if style == ORCHESTRATOR else {}
    headers = defaults | custom | {"content-type": CONTENT_TYPE} | extra | signed
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _ce_headers(body: bytes) -> dict[str, str]:
    """Return the attributes of the event as headers."""
    event: dict[str, Any] = orjson.loads(body)
    names = ("specversion", "id", "source", "type", "subject", "time")
    return {f"ce-{name}": str(event[name]) for name in names if event.get(name)}


async def _read_bounded(response: httpx2.Response) -> bool:
    """Read and discard the body. Returns whether it ends within MAX_ANSWER_BYTES, decompressed."""
    import httpx2  # noqa: PLC0415

    size, is_compressed = 0, response.headers.get("content-encoding", "identity").lower() in COMPRESSED
    decompressor = zlib.decompressobj(ANY_WINDOW)
    try:
        async for chunk in response.stream:  # type: ignore[union-attr]
            size += (
                len(chunk) if not is_compressed else len(decompressor.decompress(chunk, MAX_ANSWER_BYTES + 1))
            )
            if size > MAX_ANSWER_BYTES:
                return False
    except (httpx2.HTTPError, zlib.error):
        pass  # the status arrived before the error
    return True


def _judge_status(response: httpx2.Response, *, is_complete: bool) -> AttemptResponse:
    status = response.status_code
    if not is_complete:
        return AttemptResponse(error=f"answered {status} with more than {MAX_ANSWER_BYTES // 1024} KiB")
    if 200 <= status < 300:
        return AttemptResponse(status)
    errors = {3: "a redirect, which is not followed", GONE: "gone"}
    error = errors.get(status) or errors.get(status // 100) or f"the receiver answered {status}"
    return AttemptResponse(status, error, _retry_after(response.headers.get("retry-after")))


def _retry_after(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date; bounded."""
    if not text:
        return None
    try:
        seconds = float(text) if text.strip().isdigit() else _seconds_until(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, seconds), MAX_RETRY_AFTER)


def _seconds_until(text: str) -> float:
    moment = parsedate_to_datetime(text)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - clock.now()).total_seconds()


# --- the decision


def judge(
    claimed: Claimed,
    response: AttemptResponse,
    settings: RelaySettings,
    random_fraction: Callable[[], float] = random.random,
) -> Tried:
    """Return the next state of the delivery: delivered, pending with a pause, or dead."""
    delivery_id, fence, status = claimed.delivery_id, claimed.fence, response.status
    if response.is_delivered:
        return Tried(delivery_id, fence, "delivered", status=status)
    wait = pause(claimed.tries, response, settings.pace, random_fraction)
    is_over = claimed.age + wait > settings.give_up_hours * 3600
    if is_over or _is_final(claimed, response):
        return Tried(delivery_id, fence, "dead", 0.0, status, response.error)
    return Tried(delivery_id, fence, "pending", wait, status, response.error)


def pause(tries: int, response: AttemptResponse, pace: float, random_fraction: Callable[[], float]) -> float:
    """Return the seconds until the next attempt, at least the Retry-After of the receiver."""
    usual = BACKOFF[min(tries, len(BACKOFF)) - 1] * (1 - JITTER + 2 * JITTER * random_fraction())
    return max(usual * pace, response.retry_after or 0.0)


def _is_final(claimed: Claimed, response: AttemptResponse) -> bool:
    if response.status == GONE:
        return True
    if response.is_blocked:
        return claimed.tries >= MAX_BLOCKED_TRIES
    is_refused = (
        response.status is not None and 400 <= response.status < 500 and response.status not in NOT_FINAL
    )
    return is_refused and is_of_container_job(claimed)


def is_of_container_job(claimed: Claimed) -> bool:
    """Return whether the delivery has the format of the legacy /v1/jobs API."""
    return bool(orjson.loads(claimed.sending)["style"] == ORCHESTRATOR)
