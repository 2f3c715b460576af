"""Authentication: looks up the key of a request and caches it for a few seconds."""

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

KNOWN_SECONDS = 5.0  # a revoked key works for this long
LOOKUP_SECONDS = 2.0  # requests do not join a lookup that is older
REMEMBERED_SECONDS = 60.0  # for health checks while the database is unavailable
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
    """Return whether the port accepts only local connections and no proxy forwards others to it."""
    return is_loopback(settings.host) and not settings.server.trusted_proxies


class Authenticator(Protocol):
    """Authenticates the callers of a dispatcher."""

    async def caller(self, headers: Headers, address: str, *, allows_stale_auth: bool = False) -> Caller: ...

    async def has_keys(self, allows_stale_auth: bool = False) -> bool: ...


class KeyAuthenticator:
    """Authenticates by API keys. While no key exists, local callers are the admin of the default tenant.

    That applies only to a server that is `is_local`. `file` contains one more admin key. `is_noting` is false
    where the database is read-only: then the use of keys is not recorded.
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
        self._single_flight: SingleFlight[Any] = SingleFlight(LOOKUP_SECONDS)

    async def end(self) -> None:
        """Cancel all lookups."""
        await self._single_flight.end()

    async def caller(self, headers: Headers, address: str, *, allows_stale_auth: bool = False) -> Caller:
        """Return the caller. Raises Refusal: 401, or 429 after too many wrong keys from one address.

        `allows_stale_auth` accepts a key cached within the last minute while the database is unavailable.
        """
        authorization = headers.getlist("authorization")
        if not authorization:
            if await self._is_open_to(address, allows_stale_auth):
                return ANYBODY
            raise self._refusal(address, is_failure=False)
        caller = await self._authenticate(authorization, allows_stale_auth)
        if caller is None:
            raise self._refusal(address, is_failure=True)
        return caller

    async def holder(self, key_id: str, *, allows_stale_auth: bool = False) -> tuple[Caller, bytes] | None:
        """Return the caller of the key with this id, and the hash of the key, to resume a session.

        None when the key does not exist or is no longer valid.
        """
        if key_id == FILE:
            file = Caller("default", "admin", key_id=FILE, name="API_KEY_FILE")
            return (file, hashlib.sha256(self._file_key).digest()) if self._file_key else None
        stored = await self._find(key_id, allows_stale_auth)
        if stored is None or not stored.is_valid:
            return None
        return _caller_of(stored), stored.hash

    async def has_keys(self, allows_stale_auth: bool = False) -> bool:
        """Return whether any key exists."""
        if self._file_key:
            return True
        self._has_keys = await self._cached_lookup("", store.has_keys, self._has_keys, allows_stale_auth)
        return self._has_keys[1]

    async def _is_open_to(self, address: str, allows_stale_auth: bool) -> bool:
        """Return whether this address needs no key."""
        return self._is_local and is_loopback(address) and not await self.has_keys(allows_stale_auth)

    async def _authenticate(self, authorization: list[str], allows_stale_auth: bool) -> Caller | None:
        scheme, _, text = authorization[0].partition(" ")
        if len(authorization) > 1 or scheme.lower() != "bearer" or len(text) > MAX_HEADER:
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

        cached = await self._cached_lookup(key_id, find, self._known.get(key_id), allows_stale_auth)
        self._known[key_id] = cached
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return cached[1]

    async def _cached_lookup(
        self, key_id: str, find: Find[T], cached: tuple[float, T] | None, allows_stale_auth: bool
    ) -> tuple[float, T]:
        """Return the result and its time. Raises DatabaseUnavailable when the lookup fails and nothing is cached."""
        now = time.monotonic()
        if cached is not None and now - cached[0] < KNOWN_SECONDS:
            return cached
        if not allows_stale_auth:
            return await self._shared_lookup(key_id, find)
        try:
            return await run_with_timeout(QUICK_SECONDS, self._shared_lookup(key_id, find))
        except (TimeoutError, psycopg.Error, DatabaseUnavailable) as error:
            if cached is not None and now - cached[0] < REMEMBERED_SECONDS:
                return cached
            raise DatabaseUnavailable("the database does not answer") from error

    async def _shared_lookup(self, key_id: str, find: Find[T]) -> tuple[float, T]:
        """Return the result of one lookup that all concurrent requests share."""
        result: tuple[float, T]
        result, _ = await self._single_flight.run(key_id, lambda: self._lookup(find))
        return result

    async def _lookup(self, find: Find[T]) -> tuple[float, T]:
        """Run a lookup. Its age counts from its start: it may miss changes that were made meanwhile."""
        asked_at = time.monotonic()
        async with self._db.single("keys") as tx:
            return asked_at, await find(tx)

    async def _note_use(self, key_id: str) -> None:
        """Record that a key is in use, at most once a minute: the exact time does not matter."""
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
        """Return whether this address sent more than MAX_FAILURES wrong keys within a minute."""
        if len(self._failures) > MAX_KNOWN:
            self._failures.clear()
        recent = self._failures.setdefault(address, deque(maxlen=MAX_FAILURES + 1))
        recent.append(time.monotonic())
        return len(recent) > MAX_FAILURES and recent[-1] - recent[0] < FAILURE_SECONDS
