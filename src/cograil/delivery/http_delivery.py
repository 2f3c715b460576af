"""One try: a request, and what its answer means for the delivery."""

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

# Seconds before each next try; the last one again and again. About three days with the first ten.
BACKOFF = (5, 30, 120, 600, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600)
JITTER = 0.2
MAX_RETRY_AFTER = 3600.0
MAX_BLOCKED_TRIES = 3
MAX_ANSWER_BYTES = 64 * 1024
PACKED = frozenset({"gzip", "x-gzip", "deflate"})
ANY_WINDOW = zlib.MAX_WBITS | 32  # of gzip or zlib, whichever it is
SHOWN_CHARACTERS = 300
GONE = 410
NOT_FINAL = frozenset({408, 410, 429})


@dataclass(frozen=True, slots=True)
class DeliveryResponse:
    """How a request ended: with a status, or with an error and none.

    `is_blocked`: it was not sent, for it must not go there.
    """

    status: int | None = None
    error: str | None = None
    retry_after: float | None = None
    is_blocked: bool = False

    @property
    def is_delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def is_of_somebody_well(self) -> bool:
        """Whether the receiver is there and works, be it that it refuses this event."""
        return self.is_blocked or (self.status is not None and self.status < 500)


async def post(
    claimed: Claimed, guard: OutboundGuard, connections: KeptConnections, timeout_seconds: float
) -> DeliveryResponse:
    """Send it once. Whatever happens is an answer, within this time."""
    sending = orjson.loads(claimed.sending)
    job = None if claimed.job_id is None else (claimed.job_id, sending.get("trace_parent"))
    kind = sending.get("type", "event")
    with tracing.delivery_span(claimed.delivery_id, claimed.tries, kind, claimed.origin, job) as asked:
        answer = await _post(claimed, asked.trace_parent, guard, connections, timeout_seconds)
        asked.set_response(answer.status, None if answer.is_delivered else str(answer.status or "no answer"))
    return answer


async def _post(
    claimed: Claimed,
    trace_parent: str | None,
    guard: OutboundGuard,
    connections: KeptConnections,
    timeout_seconds: float,
) -> DeliveryResponse:
    import httpx2  # noqa: PLC0415  most processes never send a request

    try:
        async with asyncio.timeout(timeout_seconds):
            destination = await guard.check(claimed.url)
            headers = _headers(claimed, trace_parent)
            async with connections.open_request(destination, "POST", headers, claimed.body) as response:
                return _answer(response, has_end=await _read_some(response))
    except ForbiddenDestination as error:
        return DeliveryResponse(error=f"blocked ({error.reason}): {error}", is_blocked=True)
    except UnknownHost as error:
        return DeliveryResponse(error=str(error))
    except TimeoutError:
        return DeliveryResponse(error=f"no whole answer within {timeout_seconds:g} s")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        return DeliveryResponse(error=f"{type(error).__name__}: {error}"[:SHOWN_CHARACTERS])


def _headers(claimed: Claimed, trace_parent: str | None) -> Headers:
    sending = orjson.loads(claimed.sending)
    given = {name.lower(): value for name, value in sending["headers"].items()}
    ours = {
        "content-type": CONTENT_TYPE,
        "user-agent": "cograil",
        "accept": "*/*",
        "accept-encoding": "identity",
        "content-length": str(len(claimed.body)),
    }
    ours |= {} if trace_parent is None else {"traceparent": trace_parent}
    style, secret, old = sending["style"], sending["secret"], sending.get("old_secrets", ())
    signed = signed_headers(style, secret, claimed.delivery_id, int(clock.seconds()), claimed.body, old)
    extra = _ce_headers(claimed.body) if style == ORCHESTRATOR else {}
    every = ours | given | {"content-type": CONTENT_TYPE} | extra | signed
    return [(name.encode(), value.encode()) for name, value in every.items()]


def _ce_headers(body: bytes) -> dict[str, str]:
    """What the body says, once more as headers."""
    event: dict[str, Any] = orjson.loads(body)
    names = ("specversion", "id", "source", "type", "subject", "time")
    return {f"ce-{name}": str(event[name]) for name in names if event.get(name)}


async def _read_some(response: httpx2.Response) -> bool:
    """Whether it has an end that is not too far away, as it comes and unpacked; no more of it is kept."""
    import httpx2  # noqa: PLC0415

    size, is_packed = 0, response.headers.get("content-encoding", "identity").lower() in PACKED
    unpacker = zlib.decompressobj(ANY_WINDOW)
    try:
        async for chunk in response.stream:  # type: ignore[union-attr]
            size += len(chunk) if not is_packed else len(unpacker.decompress(chunk, MAX_ANSWER_BYTES + 1))
            if size > MAX_ANSWER_BYTES:
                return False
    except (httpx2.HTTPError, zlib.error):
        pass  # the status was there before it broke
    return True


def _answer(response: httpx2.Response, *, has_end: bool) -> DeliveryResponse:
    status = response.status_code
    if not has_end:
        return DeliveryResponse(error=f"answered {status} with more than {MAX_ANSWER_BYTES // 1024} KiB")
    if 200 <= status < 300:
        return DeliveryResponse(status)
    said = {3: "a redirect, which is not followed", GONE: "gone"}
    error = said.get(status) or said.get(status // 100) or f"the receiver answered {status}"
    return DeliveryResponse(status, error, _retry_after(response.headers.get("retry-after")))


def _retry_after(text: str | None) -> float | None:
    """Seconds, from a number or a date; bounded."""
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


# --- what it means


def judge(
    claimed: Claimed,
    answer: DeliveryResponse,
    settings: RelaySettings,
    dice: Callable[[], float] = random.random,
) -> Tried:
    """What becomes of the delivery: delivered, to be tried again, or dead."""
    delivery_id, fence, status = claimed.delivery_id, claimed.fence, answer.status
    if answer.is_delivered:
        return Tried(delivery_id, fence, "delivered", status=status)
    wait = pause(claimed.tries, answer, settings.pace, dice)
    is_over = claimed.age + wait > settings.give_up_hours * 3600
    if is_over or _is_final(claimed, answer):
        return Tried(delivery_id, fence, "dead", 0.0, status, answer.error)
    return Tried(delivery_id, fence, "pending", wait, status, answer.error)


def pause(tries: int, answer: DeliveryResponse, pace: float, dice: Callable[[], float]) -> float:
    """Seconds until the next try; what the receiver asked for is the least."""
    usual = BACKOFF[min(tries, len(BACKOFF)) - 1] * (1 - JITTER + 2 * JITTER * dice())
    return max(usual * pace, answer.retry_after or 0.0)


def _is_final(claimed: Claimed, answer: DeliveryResponse) -> bool:
    if answer.status == GONE:
        return True
    if answer.is_blocked:
        return claimed.tries >= MAX_BLOCKED_TRIES
    is_refused = answer.status is not None and 400 <= answer.status < 500 and answer.status not in NOT_FINAL
    return is_refused and is_of_container_job(claimed)


def is_of_container_job(claimed: Claimed) -> bool:
    """Whether it goes out in the words of /v1/jobs."""
    return bool(orjson.loads(claimed.sending)["style"] == ORCHESTRATOR)
