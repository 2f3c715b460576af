"""Submits that come at the same time share a transaction: what gathers while one is under way is the next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from cograil.errors import CograilError, DatabaseUnavailable
from cograil.store.api_keys import AuditEntry
from cograil.store.database import LOST, Database, Transaction
from cograil.store.job_queries import View, new_job_view
from cograil.store.write_batch import NewJobRow
from cograil.verbs.advance import EngineContext
from cograil.verbs.submit import Submission, submit_each

MAX_AT_ONCE = 200
MIN_TO_SHARE = 8  # more than these are shared between the hands
UNKNOWN = (DatabaseUnavailable, *LOST)
HANDS = 2  # while one waits for its commit, the other decides


class Asked(NamedTuple):
    """A submit that waits for its turn."""

    submission: Submission
    entry: AuditEntry
    made: asyncio.Future[View]


class Gatherer:
    """Submits of one process."""

    def __init__(self, db: Database, engine_context: EngineContext) -> None:
        self._db = db
        self._engine_context = engine_context
        self._waiting: dict[str, list[Asked]] = {}
        self._hands: set[asyncio.Task[None]] = set()
        self._at_work = 0  # hands that wait for the database

    async def submit(self, submission: Submission, entry: AuditEntry) -> View:
        """Make this job; the job. Raises what `verbs.submit` raises."""
        made: asyncio.Future[View] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(entry.tenant, []).append(Asked(submission, entry, made))
        self._call_hands()
        return await made

    async def _work(self) -> None:
        await asyncio.sleep(0)  # requests that are read in the same step share a batch
        while self._waiting:
            tenant = next(iter(self._waiting))
            asked = self._waiting.pop(tenant)
            share = self._share_of(len(asked))
            if len(asked) > share:
                self._waiting[tenant] = asked[share:]
                self._call_hands()
            self._at_work += 1
            try:
                await self._make(tenant, asked[:share])
            finally:
                self._at_work -= 1

    def _share_of(self, waiting: int) -> int:
        """How many one hand takes: half of them while the other has nothing to do, for it will wait too."""
        is_worth_it = not self._at_work and waiting > MIN_TO_SHARE
        return min((waiting + 1) // 2 if is_worth_it else waiting, MAX_AT_ONCE)

    def _call_hands(self) -> None:
        if len(self._hands) < HANDS:
            hand = asyncio.create_task(self._work(), name="submitting")
            self._hands.add(hand)
            hand.add_done_callback(self._hands.discard)

    async def _make(self, tenant: str, asked: Sequence[Asked]) -> None:
        try:
            made = await submit_and_show(
                self._db, self._engine_context, tenant, [(one.submission, one.entry) for one in asked]
            )
        except UNKNOWN as error:  # perhaps they were made: only whoever asked may decide to ask again
            for one in asked:
                _settle(one, error)
        except Exception as error:
            if len(asked) == 1:
                _settle(asked[0], error)
                return
            for one in asked:  # what is wrong with one must not be the fault of the others
                await self._make(tenant, [one])
        else:
            for one, outcome in zip(asked, made, strict=True):
                _settle(one, outcome)


def _settle(asked: Asked, outcome: View | Exception) -> None:
    if asked.made.done():  # whoever asked has gone
        return
    if isinstance(outcome, Exception):
        asked.made.set_exception(outcome)
    else:
        asked.made.set_result(outcome)


async def submit_and_show(
    db: Database, engine_context: EngineContext, tenant: str, asked: Sequence[tuple[Submission, AuditEntry]]
) -> list[View | CograilError]:
    """Make these jobs in one transaction; each as it is shown, or what is wrong with it."""
    async with db.transaction("submit", tenant=tenant) as tx:
        return await submit_and_show_within(tx, engine_context, tenant, asked)


async def submit_and_show_within(
    tx: Transaction,
    engine_context: EngineContext,
    tenant: str,
    asked: Sequence[tuple[Submission, AuditEntry]],
) -> list[View | CograilError]:
    """The same in a transaction that does more."""
    submissions, entries = [one[0] for one in asked], [one[1] for one in asked]
    made = await submit_each(tx, engine_context, submissions, tenant, entries=entries)
    return [new_job_view(one) if isinstance(one, NewJobRow) else one for one in made]
