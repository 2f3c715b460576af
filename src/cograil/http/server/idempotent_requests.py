"""What is asked twice under one idempotency key is done once, and answered as it was the first time."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Annotated, Any

import orjson
from pydantic import WithJsonSchema

from cograil.errors import CograilError, Conflict
from cograil.http.server.dispatcher import Call, written
from cograil.http.server.idempotency_turns import decided
from cograil.http.server.problem_details import Refusal
from cograil.model.workflow import Json
from cograil.store.database import LOST, Transaction
from cograil.verbs import idempotency
from cograil.verbs.idempotency import Key

IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,128}")
MAX_BYTES = 8 * 1024 * 1024  # a job is told with its input, and numbers may be longer than they were given
ODD_KEY = "an idempotency key is 1 to 128 printable ASCII characters, given once"

# Whatever it is, it is called by its own name: what is no key is refused by `idempotency_key`.
KeyText = Annotated[str, WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 128})]
Make = Callable[[Transaction], Awaitable[Json]]
Ask = Callable[[], Awaitable[tuple[Json, bool]]]


class IdempotencyConflict(Conflict):
    """Another request had this key."""

    code = "idempotency_conflict"

    def __init__(self, key: str) -> None:
        super().__init__(f"the idempotency key {key!r} was used with another request")


def idempotency_key(call: Call[Any], in_body: str | None = None) -> str | None:
    """The key of this request, from its header or its body. Raises Refusal."""
    given = call.headers.getlist("idempotency-key")
    if len(given) > 1 or any(not IDEMPOTENCY_KEY.fullmatch(key) for key in given):
        raise Refusal(400, "invalid_idempotency_key", ODD_KEY)
    if in_body is not None and not IDEMPOTENCY_KEY.fullmatch(in_body):
        raise Refusal(400, "invalid_idempotency_key", ODD_KEY, "/idempotency_key")
    if given and in_body is not None and given[0] != in_body:
        raise Refusal(422, "idempotency_key_differs", "header and body name two keys", "/idempotency_key")
    return given[0] if given else in_body


def name_of(call: Call, key: str, part: str = "") -> Key:
    """Its name in the tenant, where each route has its own keys; `part` is for two kinds in one route."""
    return Key(call.caller.tenant, f"{call.endpoint.method} {call.endpoint.path}{part}", key)


async def once(call: Call, name: Key, asked: str, make: Make, what: str = "submit") -> tuple[Json, bool]:
    """What `make` answers, and whether that is new. Raises IdempotencyConflict, and what `make` raises.

    `asked` is the fingerprint of the request. Those who ask at the same moment share one look and one turn.
    """

    return await in_one_turn(call, (name, asked), partial(_once, call, name, asked, make, what))


async def in_one_turn(call: Call, same: Hashable, ask: Ask) -> tuple[Json, bool]:
    """What `ask` answers to all who ask the same now, and whether that is new to us.

    What it does can be asked for again. Perhaps it was done when the connection was lost: the record knows.
    """

    async def ask_again() -> tuple[Json, bool]:
        try:
            return await ask()
        except LOST:
            return await ask()

    (answer, is_new), is_ours = await call.instance.flights.join(same, ask_again)
    return answer, is_new and is_ours


async def _once(call: Call, name: Key, asked: str, make: Make, what: str) -> tuple[Json, bool]:
    async with call.transaction(what) as tx:
        record = await idempotency.find(tx, name)  # most who ask again need no lock
    if record is not None and record.answer is not None and record.fingerprint == asked:
        return record.answer, False
    async with call.transaction(what) as tx:
        return await once_within(tx, name, asked, make)


async def once_within(tx: Transaction, name: Key, asked: str, make: Make) -> tuple[Json, bool]:
    """The same in a transaction that does more. What was refused has not taken the key."""
    match await decided(tx, name, asked):
        case idempotency.New(fence):
            try:
                answer = orjson.loads(written(await make(tx)))
            except CograilError as error:
                if error.status < 500:  # else there is nothing more to be said in this transaction
                    await idempotency.give_back(tx, name, fence)
                raise
            await idempotency.answer(tx, name, fence, answer, max_bytes=MAX_BYTES)
            return answer, True
        case idempotency.Replay(record):
            return record.answer, False
    raise IdempotencyConflict(name.key)
