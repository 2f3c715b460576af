"""The API of /v1/requests, its workers, and the registers that they ask."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.apps.companies.registers import DANONE, Registers, serving_registers
from tests.support.api_client import ApiClient, ApiResponse, serve_api
from tests.support.harness import Harness, open_harness, quick_settings
from tests.support.webhook_receiver import (
    ALLOW_LOOPBACK,
    FAST_RELAY,
    WebhookReceiver,
    open_receiver,
    run_relay,
)

from cograil.apps.companies.worker_lifespan import companies_on_worker
from cograil.setting_sections import OutboundSettings
from cograil.settings import Settings
from cograil.verbs.callback_targets import Receiver as Destination
from cograil.verbs.outbox import subscribe

ENDED = ("SUCCESS", "PARTIAL", "FAILED")
ENVELOPE = {"error", "code", "message", "details", "correlation_id", "request_id", "timestamp"}


def company_site_settings(registers: Registers, **companies: Any) -> Settings:
    return quick_settings(
        outbound=ALLOW_LOOPBACK, relay=FAST_RELAY, companies=registers.settings(**companies)
    )


@dataclass
class CompanySite:
    """Callers of /v1/requests."""

    lab: Harness
    api: ApiClient
    registers: Registers

    async def ask(self, siren: str | None = DANONE, **more: Any) -> ApiResponse:
        headers, key = more.pop("headers", None), more.pop("key", None)
        body = ({"siren": siren} if siren is not None else {}) | more
        return await self.api.post("/v1/requests", body, headers=headers, key=key)

    async def request_company(self, siren: str | None = DANONE, **more: Any) -> str:
        """The id of a new request."""
        answer = await self.ask(siren, **more)
        assert answer.status in (201, 202), answer.raw
        return str(answer.body["request"]["id"])

    async def look(self, id: str, **more: Any) -> dict[str, Any]:
        answer = await self.api.get(f"/v1/requests/{id}", **more)
        assert answer.status == 200, answer.raw
        return dict(answer.body)

    async def refresh(self, id: str, **more: Any) -> ApiResponse:
        return await self.api.post(f"/v1/requests/{id}:refresh-company", **more)

    async def ended(self, id: str, seconds: float = 30.0) -> dict[str, Any]:
        """The request once nothing is under way."""
        await self.over(id, seconds)
        return await self.look(id)

    async def over(self, id: str, seconds: float = 30.0) -> None:
        """Returns when nothing is under way; the rows are read, as a look might begin something."""
        until = time.monotonic() + seconds
        while True:
            ((job_id, status),) = await self.lab.rows(
                "select e.job_id, e.status from cograil_companies.company_requests r"
                " join cograil_companies.company_enrichments e on e.tenant_id = r.tenant_id and e.siren = r.siren"
                " where r.id = %(id)s::uuid",
                id=id,
            )
            if job_id is None and status in ENDED:
                return
            assert time.monotonic() < until, (job_id, status)
            await asyncio.sleep(0.01)

    async def age(self, days: float, siren: str = DANONE) -> None:
        """As if everything that is known had been found so long ago."""
        params = {"days": days, "siren": siren}
        past = "- %(days)s * interval '1 day'"
        for query in (
            f"update cograil.idempotency set answered_at = answered_at {past} where key = %(siren)s",
            "update cograil_companies.company_enrichments"
            f" set fresh_until = fresh_until {past} where siren = %(siren)s",
            f"update cograil_companies.companies set updated_at = updated_at {past} where siren = %(siren)s",
        ):
            await self.lab.rows(query, **params)

    async def expire(self) -> None:
        """As if no lock had had a heartbeat for as long as it lasts; who holds one must be gone or stopped."""
        over = (
            "update cograil.leases set lease_until = clock_timestamp() where holder is not null returning 1"
        )
        assert await self.lab.rows(over)

    async def state(self, siren: str = DANONE) -> str:
        rows = await self.lab.rows(
            "select status from cograil_companies.company_enrichments where siren = %(siren)s", siren=siren
        )
        return str(rows[0][0])

    @contextlib.asynccontextmanager
    async def hearing(self, tenant: str = "default", *types: str) -> AsyncIterator[WebhookReceiver]:
        """A subscriber to all events of companies, and a relay that tells it."""
        async with open_receiver() as receiver:
            async with self.lab.db.transaction("subscribe") as tx:
                policy = OutboundSettings(**ALLOW_LOOPBACK)
                await subscribe(tx, tenant, Destination(receiver.url), policy, types=types)
            async with run_relay(self.lab):
                yield receiver


async def until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What the condition gives once that is something; it may be a coroutine."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        value = await value if inspect.isawaitable(value) else value
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s"
        await asyncio.sleep(0.01)


def company_events(receiver: WebhookReceiver, name: str | None = None) -> list[dict[str, Any]]:
    """The data of the events of companies, each once, in the order in which they came."""
    events = {request.event["id"]: request.event for request in receiver.requests}
    company_events = [event["data"] for event in events.values() if event["type"].startswith("companies.")]
    return [data for data in company_events if name in (None, data["event_type"])]


def envelope(answer: ApiResponse) -> Mapping[str, Any]:
    """A refusal; it has the seven fields and no others."""
    assert answer.headers["content-type"] == "application/json", answer.raw
    assert answer.body.keys() == ENVELOPE
    assert answer.headers["x-correlation-id"] == answer.body["correlation_id"]
    return dict(answer.body)


@contextlib.asynccontextmanager
async def working(site: CompanySite) -> AsyncIterator[None]:
    """An orchestrator, and a worker that asks the registers."""
    lab = site.lab
    async with lab.orchestrator(), companies_on_worker(lab.registry, lab.db, lab.settings), lab.worker():
        yield


@contextlib.asynccontextmanager
async def open_company_site(
    dsn: str, *, is_enabled: bool = True, **companies: Any
) -> AsyncIterator[CompanySite]:
    """A server without workers."""
    async with serving_registers() as registers:
        settings = company_site_settings(registers, **companies)
        if not is_enabled:
            settings = settings.model_copy(update={"apps": ()})
        async with open_harness(dsn, settings) as lab, serve_api(lab, dsn, settings) as api:
            yield CompanySite(lab, api, registers)
