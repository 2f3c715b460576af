"""The readiness of a process for /readyz, and the database samples for /metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

import psycopg

from cograil import clock
from cograil.errors import DatabaseUnavailable
from cograil.metrics import Sample
from cograil.model.readiness_check import DEGRADED, OK
from cograil.store.database import Database, Transaction
from cograil.store.job_queries import sample_metrics
from cograil.store.migrate import SchemaStatus, status

FRESH_SECONDS = 2.0  # the database is queried at most this often, for any number of requests
PATIENCE_SECONDS = 2.0


class ProcessHealth:
    """Readiness of the database, of its schema, and of the parts that run here."""

    def __init__(
        self,
        db: Database,
        parts: Mapping[str, Callable[[], bool]],
        apps: Mapping[str, Callable[[Database], Awaitable[str]]] | None = None,
        conditions: Mapping[str, Callable[[], str]] | None = None,
        samples: Sequence[Callable[[Transaction], Awaitable[list[Sample]]]] = (),
    ) -> None:
        self.is_draining = False
        self._apps = apps or {}
        self._db = db
        self._parts = parts
        self._conditions = conditions or {}  # each returns OK, or what is wrong
        self._found: dict[str, str] = {}
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()
        self._app_samples = samples
        self._samples: list[Sample] = []
        self._sampled_at = float("-inf")
        self._sampling = asyncio.Lock()

    async def checks(self) -> dict[str, str]:
        """Return the state of each dependency: "ok", or what is wrong."""
        results = dict(await self._database())
        results |= {name: OK if is_running() else "not running" for name, is_running in self._parts.items()}
        results |= {name: tell() for name, tell in self._conditions.items()}
        return results | {"draining": "stopping" if self.is_draining else OK}

    async def samples(self) -> list[Sample]:
        """Return the database samples of /metrics; none while the database does not answer."""
        clock = asyncio.get_running_loop().time
        async with self._sampling:
            if clock() - self._sampled_at > FRESH_SECONDS:
                self._samples = await self._sample()
                self._sampled_at = clock()
        return self._samples

    async def _sample(self) -> list[Sample]:
        samples: list[Sample] = []
        with suppress(TimeoutError, psycopg.Error, DatabaseUnavailable):
            async with asyncio.timeout(PATIENCE_SECONDS), self._db.single("metrics") as tx:
                samples += await sample_metrics(tx)
        for sample in self._app_samples:  # one by one, so that a missing schema does not affect the others
            with suppress(TimeoutError, psycopg.Error, DatabaseUnavailable):
                async with asyncio.timeout(PATIENCE_SECONDS), self._db.single("metrics") as tx:
                    samples += await sample(tx)
        return samples

    async def _database(self) -> dict[str, str]:
        clock = asyncio.get_running_loop().time
        async with self._asking:
            if clock() - self._asked_at > FRESH_SECONDS:
                self._found = await self._ask()
                self._asked_at = clock()
        return self._found

    async def _ask(self) -> dict[str, str]:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._db.transaction("probe") as tx:
                results = {"database": OK, "schema": _schema(await status(tx.connection)), "clock": _clock()}
            return results | {name: await ask(self._db) for name, ask in self._apps.items()}
        except TimeoutError:
            return {"database": f"no answer within {PATIENCE_SECONDS:g} s", "schema": "unknown"}
        except (psycopg.Error, DatabaseUnavailable):
            return {"database": "unreachable", "schema": "unknown"}  # the reason may name hosts and users


def _clock() -> str:
    """Compare the clocks. A transaction has just returned the database's time."""
    wrong = clock.describe_offset(clock.offset_seconds())
    return OK if wrong is None else f"{DEGRADED}: {wrong}"


def _schema(schema: SchemaStatus) -> str:
    if schema.problems or schema.pending:
        return f"has {schema.current}, needs {schema.known}"
    return OK
