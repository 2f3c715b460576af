"""Processes that are forked and killed around runs of companies, and what must hold afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.apps.companies.company_site import CompanySite, open_company_site, until
from tests.apps.companies.registers import INPI, RCS, RECHERCHE, http_response
from tests.support.webhook_receiver import ALLOW_LOOPBACK, WebhookReceiver, open_receiver
from tests.torture.forked_processes import Child, ForkServer, open_fork_server

from cograil.setting_sections import OutboundSettings
from cograil.verbs.callback_targets import Receiver as Destination
from cograil.verbs.outbox import subscribe

PATIENCE_SECONDS = 30.0
SLACK_SECONDS = 0.3  # how long a point may still come once the run is over
TO_TELL = "select 1 from cograil.outbox union all select 1 from cograil.deliveries where state = 'pending'"
TYPES = [
    f"companies.CompanyEnrichment{name}" for name in ("Requested", "Started", "SourceFetched", "Completed")
]
EACH_ONCE = Counter(
    {
        "Requested": 1,
        "Started": 1,
        f"SourceFetched{RECHERCHE}": 1,
        f"SourceFetched{INPI}": 1,
        f"SourceFetched{RCS}": 1,
        "Completed": 1,
    }
)


@dataclass(frozen=True)
class Ending:
    """How a run ends. One that fails is of a company that was known before, and stays so."""

    status: str
    unknown_to: str | None = None
    error: str | None = None


ENDINGS = {
    "SUCCESS": Ending("SUCCESS"),
    "PARTIAL": Ending("PARTIAL", INPI, f"{INPI}:404:NOT_FOUND"),
    "FAILED": Ending("FAILED", RECHERCHE, f"{RECHERCHE}:404:NOT_FOUND"),
}


@dataclass(frozen=True)
class Case:
    """A company, a request for it, and how much was told before."""

    siren: str
    id: str
    mark: int = 0


class ForkedSite:
    """A server here, all other processes forked, and a subscriber to all events."""

    def __init__(
        self,
        site: CompanySite,
        fork_server: ForkServer,
        dsn: str,
        own: dict[str, Any],
        receiver: WebhookReceiver,
    ) -> None:
        self.site = site
        self.fork_server = fork_server
        self.dsn = dsn
        self.own = own
        self.receiver = receiver
        self._sirens = iter(range(100_000_001, 999_999_999))

    async def fork(self, role: str = "worker", fault: str | None = None) -> Child:
        return await self.fork_server.fork(
            role, self.dsn, fault=fault, settings={"companies": self.own, "apps": ("companies",)}
        )

    def siren(self) -> str:
        return str(next(self._sirens))

    async def expire_leases(self, worker: Child | None = None) -> None:
        """Nobody who is dead holds anything any longer: their leases end now, and not in 20 seconds."""
        if worker is None or worker.role == "worker":
            await self.site.lab.rows(
                "update cograil.processes set lease_until = now() - interval '1 s' where kind = 'worker'"
            )

    async def count_events(self, siren: str, mark: int = 0) -> Counter[str]:
        """How often each event is in the outbox."""
        rows = await self.site.lab.rows(
            "select data ->> 'event_type', coalesce(data ->> 'source_api', '') from cograil.outbox"
            " where type like 'companies.%%' and subject = %(siren)s and id > %(mark)s",
            siren=siren,
            mark=mark,
        )
        return Counter(kind.removeprefix("CompanyEnrichment") + source for kind, source in rows)

    async def begin(self, ending: Ending, known: Case | None) -> Case:
        """A run that is to end like this: of a new company, or of the known one again."""
        self.site.registers.heal()
        self.site.registers.requests.clear()
        if known is None or ending.unknown_to is None:
            siren = self.siren()
            return Case(siren, await self.site.request_company(siren))
        self.site.registers.answer(ending.unknown_to, http_response(404))
        case = await self.since_now(known)
        answer = await self.site.refresh(case.id)
        assert answer.status == 202, answer.raw
        return case

    async def since_now(self, case: Case) -> Case:
        """The same, and what was told of it so far does not count."""
        ((mark,),) = await self.site.lab.rows("select coalesce(max(id), 0) from cograil.outbox")
        return replace(case, mark=mark)

    async def is_struck(self, victim: Child, case: Case) -> bool:
        """Whether it was killed by its fault; if the run is over before that, it is now."""
        over = asyncio.create_task(self.site.over(case.id, PATIENCE_SECONDS))
        died = asyncio.create_task(victim.ended.wait())
        await asyncio.wait({over, died}, return_when=asyncio.FIRST_COMPLETED)
        if not died.done():
            over.result()
            await victim.struck_within(SLACK_SECONDS)
        for task in (over, died):
            task.cancel()
        was_hit = victim.ended.is_set()
        if not was_hit:
            await victim.kill()
        await self.expire_leases(victim)
        return was_hit

    async def is_all_told(self) -> bool:
        """Whether nothing is left to be told."""
        return not await self.site.lab.rows(TO_TELL)

    async def is_right(self, case: Case, ending: Ending, where: str, calls: int) -> None:
        """The run came to its end: all is told once, nothing that was known is lost."""
        shown = await self.site.look(case.id)
        request = shown["request"]
        assert request["enrichment_status"] == ending.status, (where, shown)
        assert request["enrichment_error"] == ending.error, (where, shown)
        assert not shown["enrichment_running"], where
        assert shown["company"]["legal_name"] == "DANONE", (where, shown)
        assert shown["company"]["registry"]["city"] == "PARIS", (where, shown)
        assert len(shown["documents"]) == 3, (where, shown)
        assert await self.count_events(case.siren, case.mark) == EACH_ONCE, where
        assert max(self.site.registers.calls().values()) <= calls, where


@contextlib.asynccontextmanager
async def open_forked_site(dsn: str, directory: Path, companies: dict[str, Any]) -> AsyncIterator[ForkedSite]:
    """A site without workers; in the end all invariants hold."""
    async with (
        open_company_site(dsn, **companies) as site,
        open_fork_server(directory) as fork_server,
        open_receiver() as receiver,
    ):
        async with site.lab.db.transaction("subscribe") as tx:
            policy = OutboundSettings(**ALLOW_LOOPBACK)
            await subscribe(tx, "default", Destination(receiver.url), policy, types=TYPES)
        yield ForkedSite(site, fork_server, dsn, site.registers.settings(**companies), receiver)
        assert [str(finding) for finding in await site.lab.findings()] == []


async def port_of(server: Child) -> int:
    """Where it listens, once it does."""
    await until(Path(server.answer).exists)
    return int(json.loads(Path(server.answer).read_text()))
