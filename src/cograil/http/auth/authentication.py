"""Who is calling: the key in the request, looked up and remembered for a few seconds."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import psycopg
from starlette.datastructures import Headers

from cograil.errors import DatabaseUnavailable
from cograil.http.auth.client_address import is_loopback
from cograil.http.server.problem_details import Refusal
from cograil.http.server.single_flight import SingleFlight
from cograil.http.server.timeouts import run_with_timeout
from cograil.model.roles import Caller, Role
from cograil.settings import Settings
from cograil.store import api_keys as store
from cograil.store.api_keys import StoredKey
from cograil.store.database import Database, Transaction
from cograil.verbs.key_management import recognises, split_key

KNOWN_SECONDS = 5.0  # within which a revoked key still works
LOOK_SECONDS = 2.0  # who comes later than this does not wait for the same look
REMEMBERED_SECONDS = 60.0  # for who asks how it is while the database is away
QUICK_SECONDS = 0.5
USE_NOTED_SECONDS = 60.0
MAX_KNOWN = 10_000
MAX_FAILURES, FAILURE_SECONDS = 20, 60.0
MAX_HEADER = 512

FILE = "file"  # the id of the key in the file
ANYBODY = Caller("default", "admin", name="anybody")
T = TypeVar("T")
Find = Callable[[Transaction], Awaitable[T]]


def _caller_of(stored: StoredKey) -> Caller:
    return Caller(stored.tenant, cast(Role, stored.role), stored.key_id, stored.user_id, stored.name)


def is_local(settings: Settings) -> bool:
    """Whether only this machine reaches the port, and nobody brings others to it."""
    return is_loopback(settings.host) and not settings.server.trusted_proxies


class Authenticator(Protocol):
    """How a door knows who is calling."""

    async def caller(self, headers: Headers, address: str, *, allows_stale_auth: bool = False) -> Caller: ...

    async def has_keys(self, allows_stale_auth: bool = False) -> bool: ...


class KeyAuthenticator:
    """Recognises keys. While none was ever made, anybody on this machine is the admin of the default tenant.

    That holds for a door that is `is_local`, and for no other, whatever became of its keys. `file` holds
    one more key, an admin's. Where the database may only be read, nobody notes that a key is in use.
    """

    def __init__(
        self, db: Database, file: Path | None = None, *, is_noting: bool = True, is_local: bool = False
    ) -> None:
        self._db = db
        self._is_local = is_local
        self._is_noting = is_noting
        self._file_key = file.read_bytes().strip() if file is not None else b""
        self._known: OrderedDict[str, tuple[float, StoredKey | None]] = OrderedDict()
        self._has_keys: tuple[float, bool] | None = None
        self._uses: dict[str, float] = {}
        self._failures: dict[str, deque[float]] = {}
        self._single_flight: SingleFlight[Any] = SingleFlight(LOOK_SECONDS)

    async def end(self) -> None:
        """Look up nothing more."""
        await self._single_flight.end()

    async def caller(self, headers: Headers, address: str, *, allows_stale_auth: bool = False) -> Caller:
        """Whoever calls. Raises Refusal: 401, or 429 after too many wrong keys from one address.

        Whoever must be answered quickly is taken for whom it was a minute ago, if the database is away.
        """
        given = headers.getlist("authorization")
        if not given:
            if await self._is_open_to(address, allows_stale_auth):
                return ANYBODY
            raise self._refusal(address, is_failure=False)
        caller = await self._recognised(given, allows_stale_auth)
        if caller is None:
            raise self._refusal(address, is_failure=True)
        return caller

    async def holder(self, key_id: str, *, allows_stale_auth: bool = False) -> tuple[Caller, bytes] | None:
        """Who holds the key of this id and what recognises it, for who was known by it before.

        None when there is no such key, or it has ended.
        """
        if key_id == FILE:
            file = Caller("default", "admin", key_id=FILE, name="API_KEY_FILE")
            return (file, hashlib.sha256(self._file_key).digest()) if self._file_key else None
        stored = await self._find(key_id, allows_stale_auth)
        if stored is None or not stored.is_valid:
            return None
        return _caller_of(stored), stored.hash

    async def has_keys(self, allows_stale_auth: bool = False) -> bool:
        """Whether a key was ever made and not forgotten since."""
        if self._file_key:
            return True
        self._has_keys = await self._looked_up("", store.has_keys, self._has_keys, allows_stale_auth)
        return self._has_keys[1]

    async def _is_open_to(self, address: str, allows_stale_auth: bool) -> bool:
        """Whether no key is asked for."""
        return self._is_local and is_loopback(address) and not await self.has_keys(allows_stale_auth)

    async def _recognised(self, given: list[str], allows_stale_auth: bool) -> Caller | None:
        scheme, _, text = given[0].partition(" ")
        if len(given) > 1 or scheme.lower() != "bearer" or len(text) > MAX_HEADER:
            return None
        text = text.strip()
        if self._file_key and hmac.compare_digest(text.encode("latin-1", "replace"), self._file_key):
            return Caller("default", "admin", key_id=FILE, name="API_KEY_FILE")
        parts = split_key(text)
        if parts is None:
            return None
        stored = await self._find(parts[0], allows_stale_auth)
        if not recognises(stored, parts[1]) or stored is None:
            return None
        if self._is_noting and not allows_stale_auth:
            await self._note_use(stored.key_id)
        return _caller_of(stored)

    async def _find(self, key_id: str, allows_stale_auth: bool) -> StoredKey | None:
        async def find(tx: Transaction) -> StoredKey | None:
            return await store.find_key(tx, key_id)

        found = await self._looked_up(key_id, find, self._known.get(key_id), allows_stale_auth)
        self._known[key_id] = found
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return found[1]

    async def _looked_up(
        self, key_id: str, find: Find[T], known: tuple[float, T] | None, allows_stale_auth: bool
    ) -> tuple[float, T]:
        """What was found, and when. Raises DatabaseUnavailable when nothing was and nothing is remembered."""
        now = time.monotonic()
        if known is not None and now - known[0] < KNOWN_SECONDS:
            return known
        if not allows_stale_auth:
            return await self._shared(key_id, find)
        try:
            return await run_with_timeout(QUICK_SECONDS, self._shared(key_id, find))
        except (TimeoutError, psycopg.Error, DatabaseUnavailable) as error:
            if known is not None and now - known[0] < REMEMBERED_SECONDS:
                return known
            raise DatabaseUnavailable("the database does not answer") from error

    async def _shared(self, key_id: str, find: Find[T]) -> tuple[float, T]:
        """What one look finds for all who want to know it now."""
        found: tuple[float, T]
        found, _ = await self._single_flight.run(key_id, lambda: self._asked(find))
        return found

    async def _asked(self, find: Find[T]) -> tuple[float, T]:
        """It counts from when it was asked: what changed while it was on its way is not in it."""
        asked = time.monotonic()
        async with self._db.single("keys") as tx:
            return asked, await find(tx)

    async def _note_use(self, key_id: str) -> None:
        """Now and then: who asks wants to know whether a key is still in use, not when exactly."""
        now = time.monotonic()
        if now - self._uses.get(key_id, -USE_NOTED_SECONDS) >= USE_NOTED_SECONDS:
            self._uses[key_id] = now
            async with self._db.single("keys") as tx:
                await store.note_key_use(tx, key_id)

    def _refusal(self, address: str, *, is_failure: bool) -> Refusal:
        headers: Mapping[str, str] = {"WWW-Authenticate": 'Bearer realm="cograil"'}
        if is_failure and self._is_guessing(address):
            seconds = str(int(FAILURE_SECONDS))
            return Refusal(429, "too_many_failures", "too many wrong keys", headers={"Retry-After": seconds})
        return Refusal(
            401, "unauthenticated", "a valid key is needed: Authorization: Bearer cog_...", headers=headers
        )

    def _is_guessing(self, address: str) -> bool:
        """Whether this address sent more wrong keys within a minute than a person would."""
        if len(self._failures) > MAX_KNOWN:
            self._failures.clear()
        recent = self._failures.setdefault(address, deque(maxlen=MAX_FAILURES + 1))
        recent.append(time.monotonic())
        return len(recent) > MAX_FAILURES and recent[-1] - recent[0] < FAILURE_SECONDS
