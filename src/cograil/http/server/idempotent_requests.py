"""Idempotent requests: a repeated request with the same idempotency key gets the first response again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Annotated, Any

import orjson
from pydantic import WithJsonSchema

from cograil.errors import CograilError, Conflict
from cograil.http.server.dispatcher import Call, encode_json
from cograil.http.server.problem_details import Refusal
from cograil.model.workflow import Json
from cograil.store.database import LOST, Transaction
from cograil.verbs import idempotency
from cograil.verbs.idempotency import Key

IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,128}")
KEEP_SECONDS = 30 * 86_400.0
IN_PROGRESS_SECONDS = 5.0
# A job response includes the input of the job, and canonical numbers may be longer than the received ones.
MAX_BYTES = 8 * 1024 * 1024
INVALID_KEY = "an idempotency key is 1 to 128 printable ASCII characters, given once"

# Any text is valid here: `idempotency_key` rejects invalid keys with their own error code.
KeyText = Annotated[str, WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 128})]
Make = Callable[[Transaction], Awaitable[Json]]
Ask = Callable[[], Awaitable[tuple[Json, bool]]]


class IdempotencyConflict(Conflict):
    """The idempotency key was used with a different request."""

    code = "idempotency_conflict"

    def __init__(self, key: str) -> None:
        super().__init__(f"the idempotency key {key!r} was used with another request")


def idempotency_key(call: Call[Any], in_body: str | None = None) -> str | None:
    """Return the key of this request, from its header or its body. Raises Refusal for an invalid key."""
    headers = call.headers.getlist("idempotency-key")
    if len(headers) > 1 or any(not IDEMPOTENCY_KEY.fullmatch(key) for key in headers):
        raise Refusal(400, "invalid_idempotency_key", INVALID_KEY)
    if in_body is not None and not IDEMPOTENCY_KEY.fullmatch(in_body):
        raise Refusal(400, "invalid_idempotency_key", INVALID_KEY, "/idempotency_key")
    if headers and in_body is not None and headers[0] != in_body:
        message = "the header and the body have different idempotency keys"
        raise Refusal(422, "idempotency_key_differs", message, "/idempotency_key")
    return headers[0] if headers else in_body


def request_key(call: Call, key: str, part: str = "") -> Key:
    """Return the key in the scope of the tenant and the route; `part` separates two kinds in one route."""
    return Key(call.caller.tenant, f"{call.endpoint.method} {call.endpoint.path}{part}", key)


async def run_idempotent(
    call: Call, name: Key, fingerprint: str, make: Make, transaction: str = "submit"
) -> tuple[Json, bool]:
    """Return the answer of `make` and whether it is new. Raises IdempotencyConflict and what `make` raises.

    `fingerprint` identifies the content of the request. Concurrent equal requests share one execution.
    """
    return await run_shared(
        call, (name, fingerprint), partial(_find_or_make, call, name, fingerprint, make, transaction)
    )


async def run_shared(call: Call, same: Hashable, ask: Ask) -> tuple[Json, bool]:
    """Return the answer of `ask`, shared by all concurrent calls with an equal `same`, and whether it is new.

    `ask` runs a second time when the connection is lost: the idempotency record tells whether the first
    run was committed.
    """

    async def ask_with_retry() -> tuple[Json, bool]:
        try:
            return await ask()
        except LOST:
            return await ask()

    (answer, is_new), is_leader = await call.context.single_flight.run(same, ask_with_retry)
    return answer, is_new and is_leader


async def _find_or_make(
    call: Call, name: Key, fingerprint: str, make: Make, transaction: str
) -> tuple[Json, bool]:
    async with call.transaction(transaction) as tx:
        record = await idempotency.find(tx, name)  # most repeated requests need no lock
    if record is not None and record.answer is not None and record.fingerprint == fingerprint:
        return record.answer, False
    async with call.transaction(transaction) as tx:
        return await run_idempotent_in(tx, name, fingerprint, make)


async def run_idempotent_in(tx: Transaction, name: Key, fingerprint: str, make: Make) -> tuple[Json, bool]:
    """Do the same in the transaction of the caller. A rejected request does not consume its key."""
    match await decide_request(tx, name, fingerprint):
        case idempotency.New(fence):
            try:
                answer = orjson.loads(encode_json(await make(tx)))
            except CograilError as error:
                if error.status < 500:  # after a server error this transaction may be unusable
                    await idempotency.give_back(tx, name, fence)
                raise
            await idempotency.answer(tx, name, fence, answer, max_bytes=MAX_BYTES)
            return answer, True
        case idempotency.Replay(record):
            return record.answer, False
    raise IdempotencyConflict(name.key)


async def decide_request(tx: Transaction, name: Key, fingerprint: str) -> idempotency.Decision:
    """Lock the key and decide: new, replay or conflict.

    Raises Refusal (409 `in_progress`) when another request has held the key for IN_PROGRESS_SECONDS.
    """
    try:
        async with asyncio.timeout(IN_PROGRESS_SECONDS):
            return await idempotency.decide(tx, name, fingerprint, idempotency.replay(KEEP_SECONDS))
    except TimeoutError:
        message = "the first request with this idempotency key is still in progress; retry later"
        raise Refusal(409, "in_progress", message, headers={"Retry-After": "1"}) from None
