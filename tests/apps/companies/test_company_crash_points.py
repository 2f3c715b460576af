"""kill -9 at each point that a process passes, whatever a run comes to: a few here, all by the torture."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.apps.companies.company_site import until
from tests.apps.companies.forked_site import (
    EACH_ONCE,
    ENDINGS,
    Case,
    Ending,
    ForkedSite,
    open_forked_site,
    port_of,
)
from tests.apps.companies.registers import RECHERCHE
from tests.support.api_client import ApiClient
from tests.torture.forked_processes import Child

LOOKS = 5
TRIES = 3  # how often a process looks around, and so comes by a point, is a matter of luck
OTHERS = {"orchestrator": ["worker"], "worker": ["orchestrator"], "relay": ["orchestrator", "worker"]}
OF_A_RUN = ("admit.", "advance.", "companies.", "handler.", "report.", "progress.")
SUCCESS, PARTIAL, FAILED = ENDINGS["SUCCESS"], ENDINGS["PARTIAL"], ENDINGS["FAILED"]

Strike = Callable[[ForkedSite, str, Ending, Case, str], Awaitable[bool]]


@pytest.fixture
def companies() -> dict[str, Any]:
    return {"sync_seconds": 0, "sweep_seconds": 0.5, "cooldown_seconds": 0}


@asynccontextmanager
async def staged(
    dsn: str, directory: Path, companies: dict[str, Any], role: str
) -> AsyncIterator[tuple[ForkedSite, Case]]:
    """A company that is known, and everybody but this role at work."""
    async with open_forked_site(dsn, directory, companies) as forked:
        others = [await forked.fork(other) for other in OTHERS[role]]
        child = await forked.fork(role)
        known = await forked.begin(SUCCESS, None)
        await forked.site.over(known.id)
        await until(lambda: role != "relay" or forked.is_all_told())
        await child.kill()
        await forked.expire_leases(child)
        yield forked, known
        for other in others:
            await other.kill()


# -- with an heir ------------------------------------------------------------------------------------------


async def strike(forked: ForkedSite, role: str, ending: Ending, known: Case, point: str) -> bool:
    """Kill one of this role there; another ends what it began. Whether it was struck."""
    victim = await forked.fork(role, fault=f"{point}:kill9")
    case = await forked.begin(ending, known)
    is_struck = await forked.is_struck(victim, case)
    heir = await forked.fork(role)
    await forked.site.over(case.id)
    await heir.kill()
    await forked.expire_leases(heir)
    calls = 2 if role == "worker" else 1  # who died after it had asked could not say so
    await forked.is_right(case, ending, point, calls)
    return is_struck


# -- without one -------------------------------------------------------------------------------------------


async def leave(forked: ForkedSite, role: str, ending: Ending, known: Case, point: str) -> bool:
    """Kill the orchestrator there, and no other comes: with its lock a run is over."""
    victim = await forked.fork(role, fault=f"{point}:kill9")
    case = await forked.begin(ending, known)
    is_struck = await forked.is_struck(victim, case)
    await until(lambda: _is_idle(forked))
    was_running = await forked.site.state(case.siren) == "RUNNING"
    if was_running:
        await forked.site.expire()
        await until(lambda: _has_verdict(forked, case))
    counts = await forked.count_events(case.siren, case.mark)
    assert set(counts.values()) <= {1}, (point, counts)
    assert counts["Started"] == counts["Completed"] or not was_running, (point, counts)
    ((name, documents, succeeded),) = await forked.site.lab.rows(KNOWN, siren=case.siren)
    assert documents == (3 if ending.unknown_to else succeeded), (point, documents)
    assert name == ("DANONE" if documents else None) or not was_running, (point, name)
    await _end_well(forked, role, case, point)
    return is_struck


KNOWN = """
select c.legal_name,
       (select count(*) from cograil_companies.company_documents d where d.company_siren = e.siren),
       (select count(*) from cograil_companies.company_source_retrievals s
        where s.company_siren = e.siren and s.last_status = 'SUCCESS')
from cograil_companies.company_enrichments e left join cograil_companies.companies c on c.siren = e.siren
where e.siren = %(siren)s
"""


async def _is_idle(forked: ForkedSite) -> bool:
    """Whether the worker has done all that it was given."""
    return not await forked.site.lab.rows("select 1 from cograil.tasks")


async def _has_verdict(forked: ForkedSite, case: Case) -> bool:
    return await forked.site.state(case.siren) != "RUNNING"


async def _end_well(forked: ForkedSite, role: str, case: Case, point: str) -> None:
    """Once somebody comes, what never began begins, and what was left is asked for anew by who wants it."""
    forked.site.registers.heal()
    heir = await forked.fork(role)
    await forked.site.over(case.id)
    assert (await forked.site.refresh(case.id)).status == 202
    await forked.site.over(case.id)
    await heir.kill()
    shown = await forked.site.look(case.id)
    assert shown["request"]["enrichment_status"] == "SUCCESS", (point, shown)
    assert len(shown["documents"]) == 3, (point, shown)


# -- who tells it ------------------------------------------------------------------------------------------


async def hush(forked: ForkedSite, role: str, ending: Ending, known: Case, point: str) -> bool:
    """Kill the relay there: each event is heard, under one id, and in the same words if it comes again."""
    forked.receiver.requests.clear()
    await forked.site.lab.rows("delete from cograil.deliveries")
    victim = await forked.fork(role, fault=f"{point}:kill9")
    case = await forked.begin(ending, known)
    await forked.site.over(case.id)
    await until(lambda: victim.ended.is_set() or forked.is_all_told())
    await victim.struck_within(0.0 if victim.ended.is_set() else 0.3)
    is_struck = victim.ended.is_set()
    await victim.kill()
    marked = {event_id for (event_id,) in await forked.site.lab.rows(MARKED)}
    there = Counter(await forked.site.lab.rows(WHERE_EVENTS_ARE, siren=case.siren))
    assert list(there.values()) == [1] * len(EACH_ONCE), (point, there)
    heir = await forked.fork(role)
    await forked.site.lab.rows(END_CLAIMS)
    await until(forked.is_all_told)
    await heir.kill()
    assert list(_wrongly_told(forked, marked)) == [], point
    return is_struck


# What takes half a minute of silence otherwise.
END_CLAIMS = """
update cograil.deliveries set not_before = now(), lease_until = null where lease_until is not null
"""
MARKED = "select id::text from cograil.deliveries where state = 'delivered'"
WHERE_EVENTS_ARE = """
select data ->> 'event_type', data ->> 'source_api' from cograil.outbox where subject = %(siren)s
union all
select body -> 'data' ->> 'event_type', body -> 'data' ->> 'source_api' from cograil.deliveries
where body ->> 'subject' = %(siren)s
"""


def _wrongly_told(forked: ForkedSite, marked: set[str]) -> Iterator[Any]:
    """All was told, in its order, each event under one id; again only what nobody had marked as told."""
    heard = forked.receiver.requests
    times = Counter(request.event["id"] for request in heard)
    if early := marked - times.keys():
        yield "marked as told, but nobody heard", early
    if late := [id for id, count in times.items() if count > (1 if id in marked else 2)]:
        yield "told too often", late
    events = {request.event["id"]: request.event["data"] for request in heard}
    names = [
        data["event_type"].removeprefix("CompanyEnrichment") + data.get("source_api", "")
        for data in events.values()
    ]
    if names != list(EACH_ONCE):
        yield "told", names
    if len({(request.event["id"], request.body) for request in heard}) != len(events):
        yield "told again in other words", names


# -- the points --------------------------------------------------------------------------------------------

A_FEW: list[tuple[str, Strike, Ending, list[str]]] = [
    (
        "worker",
        strike,
        SUCCESS,
        ["companies.note_source:1", "handler.commit.before:3", "companies.end_run:1"],
    ),
    ("worker", strike, PARTIAL, ["companies.note.commit.after:1", "handler.commit.after:5"]),
    ("orchestrator", strike, SUCCESS, ["admit.commit.after:1", "advance.commit.before:2"]),
    ("orchestrator", strike, FAILED, ["advance.write_changes:3", "advance.commit.after:4"]),
    ("orchestrator", leave, SUCCESS, ["advance.write_changes:3"]),
    ("orchestrator", leave, PARTIAL, ["advance.write_changes:4"]),
    ("relay", hush, SUCCESS, ["spread.commit.before:2", "relay.sent:3", "record_deliveries.commit.after:2"]),
]
ALL = [(role, deed, ending) for role, deed, ending, _ in A_FEW] + [
    ("worker", strike, FAILED),
    ("orchestrator", strike, PARTIAL),
]


def _label(value: Any) -> str | None:
    return value.status if isinstance(value, Ending) else getattr(value, "__name__", None)


@pytest.mark.parametrize(("role", "deed", "ending", "points"), A_FEW, ids=_label)
async def test_a_process_killed_at_a_few_points_of_a_run_loses_nothing(
    dsn: str,
    tmp_path: Path,
    companies: dict[str, Any],
    role: str,
    deed: Strike,
    ending: Ending,
    points: list[str],
) -> None:
    async with staged(dsn, tmp_path, companies, role) as (forked, known):
        for point in points:
            assert await _strike_one(deed, forked, role, ending, known, point), point


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("role", "deed", "ending"), ALL, ids=_label)
async def test_a_process_killed_at_any_point_of_a_run_loses_nothing(
    dsn: str, tmp_path: Path, companies: dict[str, Any], role: str, deed: Strike, ending: Ending
) -> None:
    """Each visit of each point; those before the first run only for one ending.

    What does not come by in every run need not be struck.
    """
    async with staged(dsn, tmp_path, companies, role) as (forked, known):
        visits = await points_of(forked, role, ending, known)
        if deed is leave or ending is not SUCCESS:
            visits = Counter({name: count for name, count in visits.items() if name.startswith(OF_A_RUN)})
        missed = set(visits)
        for name, count in visits.items():
            for number in range(1, count + 1):
                if await _strike_one(deed, forked, role, ending, known, f"{name}:{number}"):
                    missed.discard(name)
        assert len(visits) >= 10
        for _ in range(LOOKS if missed else 0):
            missed &= set(await points_of(forked, role, ending, known))
        assert missed == set()


async def _strike_one(deed: Strike, *order: Any) -> bool:
    """Once more for what did not come this time."""
    for _ in range(TRIES):
        if await deed(*order):
            return True
    return False


async def points_of(forked: ForkedSite, role: str, ending: Ending, known: Case) -> Counter[str]:
    """How often this role passes each point while a run comes to its end and all is told."""
    child = await forked.fork(role)
    case = await forked.begin(ending, known)
    await forked.site.over(case.id)
    await until(lambda: role != "relay" or forked.is_all_told())
    await child.kill()
    await forked.expire_leases(child)
    return Counter(child.points())


# -- servers -----------------------------------------------------------------------------------------------


async def post(api: ApiClient, case: Case) -> None:
    await api.post("/v1/requests", {"siren": case.siren}, headers={"idempotency-key": case.siren})


async def refresh(api: ApiClient, case: Case) -> None:
    await api.post(f"/v1/requests/{case.id}:refresh-company")


async def look(api: ApiClient, case: Case) -> None:
    await api.get(f"/v1/requests/{case.id}")


Deed = Callable[[ApiClient, Case], Awaitable[None]]
DEEDS: list[Deed] = [post, refresh, look]
OF_A_DEED: dict[Deed, list[str]] = {
    post: ["companies.submit.insert_outbox:1", "companies.submit.commit.before:2"],
    refresh: ["companies.submit.begin_run:1"],
    look: ["companies.submit.commit.after:1"],
}


@asynccontextmanager
async def with_servers(dsn: str, directory: Path, companies: dict[str, Any]) -> AsyncIterator[ForkedSite]:
    async with open_forked_site(dsn, directory, companies) as forked:
        others = [await forked.fork(role) for role in ("orchestrator", "worker")]
        yield forked
        for other in others:
            await other.kill()


async def _served(forked: ForkedSite, deed: Deed, fault: str | None = None) -> tuple[Child, Case]:
    """A server that did this, or died of it; a company that is looked at is old."""
    case = Case(forked.siren(), "")
    if deed is not post:
        case = await forked.begin(SUCCESS, None)
        await forked.site.over(case.id)
        case = await forked.since_now(case)
    if deed is look:
        await forked.site.age(31, case.siren)
    server = await forked.fork("server", fault=fault)
    api = ApiClient(forked.site.lab, forked.site.api.context, await port_of(server))
    with suppress(Exception):
        await deed(api, case)
    return server, case


async def strike_server(forked: ForkedSite, deed: Deed, point: str) -> None:
    """Kill the server there: it was done wholly or not at all, and who comes again finds it done once."""
    server, case = await _served(forked, deed, f"{point}:kill9")
    await until(server.ended.is_set)
    counts = await forked.count_events(case.siren, case.mark)
    is_done = counts["Requested"] == 1
    assert is_done or not counts, (point, counts)
    assert not is_done or ".submit." not in point or "commit.after" in point, (point, counts)
    if deed is post or not is_done:
        await deed(forked.site.api, case)
    ((id,),) = await forked.site.lab.rows(
        "select id::text from cograil_companies.company_requests where siren = %(siren)s", siren=case.siren
    )
    await forked.site.over(id)
    assert await forked.count_events(case.siren, case.mark) == EACH_ONCE, point
    assert await forked.site.state(case.siren) == "SUCCESS", point
    assert forked.site.registers.count(RECHERCHE) <= 2, point  # one of them made it known
    forked.site.registers.requests.clear()


@pytest.mark.parametrize("deed", DEEDS, ids=_label)
async def test_a_server_killed_at_a_few_points_acts_wholly_or_not_at_all(
    dsn: str, tmp_path: Path, companies: dict[str, Any], deed: Deed
) -> None:
    async with with_servers(dsn, tmp_path, companies) as forked:
        for point in OF_A_DEED[deed]:
            await strike_server(forked, deed, point)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("deed", DEEDS, ids=_label)
async def test_a_server_killed_at_any_point_acts_wholly_or_not_at_all(
    dsn: str, tmp_path: Path, companies: dict[str, Any], deed: Deed
) -> None:
    async with with_servers(dsn, tmp_path, companies) as forked:
        server, case = await _served(forked, deed)
        await until(lambda: forked.site.lab.rows(OVER, siren=case.siren))
        await server.kill()
        visits = {
            name: count for name, count in Counter(server.points()).items() if name.startswith("companies.")
        }
        assert len(visits) >= 8
        for name, count in visits.items():
            for number in range(1, count + 1):
                await strike_server(forked, deed, f"{name}:{number}")


OVER = """
select 1 from cograil_companies.company_enrichments where siren = %(siren)s and job_id is null and status = 'SUCCESS'
"""
