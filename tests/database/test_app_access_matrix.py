"""The two matrices for the doors of apps: roles x routes, and strangers x routes, from their documents.

All cells of all apps that are installed, and of the port that an app has for itself. A route that no document
has, one with a new kind of name in its path, or with a new body, fails here until it is placed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from tests.apps.captures.capture_api import sample
from tests.apps.documents.document_site import DocumentSite
from tests.support.access_matrix import MaskedReply, fill_path, mask_reply, query_string
from tests.support.api_client import ApiClient
from tests.support.harness import Harness, quick_settings

from cograil.app_registry import App, installed_apps
from cograil.http.server.dispatcher import Dispatcher
from cograil.http.server.port import bind, serving
from cograil.http.server.routing import Endpoint, Router
from cograil.model.roles import NOBODY, ROLES, Caller, Role
from cograil.processes.app_plugins import app_doors, app_front
from cograil.settings import Settings

DESCRIBED = {app.name: app.api() for app in installed_apps() if app.api}
ENDPOINTS = [endpoint for described in DESCRIBED.values() for endpoint in described.endpoints]
LISTS = {"/v1/jobs", "/apps/documents/jobs", "/apps/documents/duplicates"}
ONES = {
    "/v1/jobs/{id}",
    "/v1/requests/{id}",
    "/v1/captures/{id}",
    "/v1/captures/{id}/audit",
    "/apps/documents/jobs/{key}",
}

# What tells of the caller's tenant numbers and settings alone, or nothing.
OTHERS = {
    "/apps/documents/metrics",
    "/apps/documents/config",
    "/apps/documents/jobs/",
    "/v1/captures/{id}/proof",  # once it is sealed; until then that it is not
}


@pytest.fixture
def harness_settings(tmp_path: Path) -> Settings:
    """All apps are on."""
    return quick_settings(
        data_dir=tmp_path / "data",
        documents={"data_dir": tmp_path / "documents", "quiet_seconds": 0.1},
        companies={"sync_seconds": 0.01},
    )


@pytest.fixture
def nobodys() -> dict[str, str]:
    """Names that could be somebody's and are not."""
    return {
        "container": "not-there",
        "request": str(uuid4()),
        "capture": str(uuid4()),
        "key": f"{'0' * 64}__{'1' * 64}",
        "siren": "732829320",
        "user": "nobody",
    }


# Whose id is meant by `{id}`, and where a body may name something.
KINDS = {"containers": "container", "companies": "request", "captures": "capture"}


def body_of(endpoint: Endpoint, things: dict[str, str]) -> dict[str, Any] | None:
    """A body that gets as far as asking for these things."""
    if endpoint.body is None:
        return None
    bodies: dict[tuple[str, str], dict[str, Any]] = {
        ("containers", "NewContainerJob"): {"id": things["container"], "image": "busybox"},
        ("companies", "NewCompanyRequest"): {"siren": things["siren"]},
        ("companies", "Body"): {},
        ("captures", "NewCapture"): sample(capture_id=things["capture"]),
        ("documents", "NewConfig"): {"ocr_concurrency": 2},
        ("documents", "Decision"): {"action": "DISCARD"},
    }
    return bodies[endpoint.tag, endpoint.body.__name__]


def named(endpoint: Endpoint, things: dict[str, str]) -> dict[str, str]:
    """These things, by what the paths of this app call them."""
    kind = KINDS.get(endpoint.tag)
    return things | ({"id": things[kind]} if kind else {})


async def reply_to(
    api: ApiClient, endpoint: Endpoint, things: dict[str, str], key: str, query: str = ""
) -> MaskedReply:
    path = fill_path(endpoint, named(endpoint, things)) + (f"?{query}" if query else "")
    body = body_of(endpoint, things)
    answer = await api.call(endpoint.method, path, body, key=key)
    sent = path + json.dumps(body)
    return mask_reply(
        answer.status, answer.raw.decode(), [thing for thing in things.values() if thing in sent]
    )


# -- nothing is served that is not listed ---------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Endpoint]:
    """Every route of every door that is made from here on."""
    endpoints: list[Endpoint] = []
    make = Dispatcher.__init__

    def noted(door: Dispatcher[Any], instance: Any, tables: Any, *more: Any) -> None:
        tables = tuple(tables)
        endpoints.extend(endpoint for table in tables for endpoint in [*table.endpoints, *table.sockets])
        make(door, instance, tables, *more)

    monkeypatch.setattr(Dispatcher, "__init__", noted)
    return endpoints


def unlisted(app: App, served: list[Endpoint], prefixes: list[str]) -> list[str]:
    """What this app serves and does not list, and where it serves what has no table at all."""
    listed = {(endpoint.method, endpoint.path) for endpoint in (app.api().endpoints if app.api else ())}
    wild = [prefix for prefix in prefixes if not any(path.startswith(prefix) for _, path in listed)]
    return [
        f"{endpoint.method} {endpoint.path}"
        for endpoint in served
        if (endpoint.method, endpoint.path) not in listed
    ] + wild


async def test_every_route_that_an_app_serves_is_listed(api: ApiClient, opened: list[Endpoint]) -> None:
    assert DESCRIBED.keys() == {"captures", "companies", "containers", "documents"}
    for app in installed_apps():
        opened.clear()
        doors = app.routes(api.context)
        assert unlisted(app, opened, list(doors)) == []
        assert len(opened) == len(DESCRIBED[app.name].endpoints)
    reached = app_doors(api.context).keys()
    assert all(any(endpoint.path.startswith(prefix) for prefix in reached) for endpoint in ENDPOINTS)


async def test_a_route_that_is_not_listed_is_found(api: ApiClient, opened: list[Endpoint]) -> None:
    """So that the test above means something."""
    table = Router("laundry", "/v1/laundry")
    table.get("/shirts", "viewer")(lambda call: None)  # type: ignore[arg-type,return-value]
    app = App(name="laundry", routes=lambda instance: {"/v1/laundry": Dispatcher(instance, [table])})
    doors = app.routes(api.context)
    assert unlisted(app, opened, list(doors)) == ["GET /v1/laundry/shirts", "/v1/laundry"]


def test_every_route_is_known_to_the_matrix() -> None:
    """Whether it tells something of what is named, lists, does something, or tells nothing of anybody."""
    looked_at = {endpoint.path for endpoint in ENDPOINTS if endpoint.method == "GET"}
    assert looked_at == LISTS | ONES | OTHERS


# -- roles ----------------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def front(api: ApiClient) -> AsyncIterator[ApiClient]:
    """The same at the root of a port of its own, as `cograil documents watch` has it."""
    listening = bind("127.0.0.1", 0)
    async with serving(app_front(api.context, "documents"), listening):
        yield ApiClient(api.harness, api.context, listening.getsockname()[1], find_mismatches=lambda *_: [])


def at_the_root(endpoint: Endpoint) -> Endpoint:
    from cograil.apps.documents.routes import make_router

    return next(
        route
        for route in make_router("").endpoints
        if (route.method, f"/apps/documents{route.path}") == (endpoint.method, endpoint.path)
    )


@pytest.mark.parametrize("role", ROLES)
async def test_every_route_is_open_to_its_roles_and_no_others(
    api: ApiClient, front: ApiClient, role: Role, nobodys: dict[str, str]
) -> None:
    key, caller = await api.make_key(role), Caller("default", role)
    places = [(api, endpoint) for endpoint in ENDPOINTS]
    places += [(front, at_the_root(endpoint)) for endpoint in ENDPOINTS if endpoint.tag == "documents"]
    for place, endpoint in places:
        reply = await reply_to(place, endpoint, nobodys, key)
        assert (reply.status == 403) == (not caller.may(*endpoint.requires)), (endpoint.path, reply)
        assert reply.status < 500, (endpoint.path, reply)
    await api.harness.rows("delete from cograil.leases")  # of runs that nobody will make here


async def test_without_a_key_nothing_is_open(
    api: ApiClient, front: ApiClient, nobodys: dict[str, str]
) -> None:
    await api.make_key("viewer")
    for endpoint in ENDPOINTS:
        assert (await reply_to(api, endpoint, nobodys, "")).status == 401, endpoint.path
        if endpoint.tag == "documents":
            assert (await reply_to(front, at_the_root(endpoint), nobodys, "")).status == 401, endpoint.path


# -- strangers ------------------------------------------------------------------------------------------


@dataclass
class Owner:
    """Somebody with one of everything, and the words by which it is known."""

    key: str
    things: dict[str, str]
    words: set[str]


async def settled(api: ApiClient, harness: Harness, **facts: Any) -> Owner:
    """One of everything of every app; a folder of documents is there for the default tenant only."""
    key = await api.make_key("admin", name="acme-key", **facts)
    container = {"id": "acme-run", "image": "acme/image"}
    assert (await api.post("/v1/jobs", container, key=key)).status == 202
    company = await api.post("/v1/requests", {"siren": "552032534", "metadata": {"of": "acme"}}, key=key)
    capture = str(uuid4())
    assert (await api.post("/v1/captures", sample(capture_id=capture), key=key)).status == 202
    house = DocumentSite(harness, harness.settings)
    for name in ("acme-first.cbz", "acme-again.cbz"):
        house.drop(name)
        await house.look()
    (document,) = await house.documents()
    things = {
        "container": "acme-run",
        "request": company.body["request"]["id"],
        "capture": capture,
        "key": document.key,
        "siren": "552032534",
        "user": "nobody",
    }
    return Owner(key, things, {"acme", *things.values()} - {"nobody"})


async def test_another_tenants_rows_look_exactly_like_unknown_ids(
    api: ApiClient, harness: Harness, nobodys: dict[str, str]
) -> None:
    """B40 for every route of every app, byte by byte but for the ids; and nothing of theirs is changed."""
    owner, stranger = await settled(api, harness), await api.make_key("admin", "globex")
    before = await everything_shown(api, owner)
    for endpoint in sorted(ENDPOINTS, key=makes):  # at the end the stranger has some of the same name
        for is_asked in (False, True):
            query = query_string(endpoint, {"user": "nobody"}) if is_asked else ""
            replies = [
                await reply_to(api, endpoint, things, stranger, query) for things in (owner.things, nobodys)
            ]
            assert replies[0] == replies[1], (endpoint.path, replies)
            assert not [word for word in owner.words if word in replies[0].original], (
                endpoint.path,
                replies[0],
            )
            if "{" in endpoint.path:
                assert replies[0].status == 404, (endpoint.path, replies[0])
    assert await everything_shown(api, owner) == before


def makes(endpoint: Endpoint) -> bool:
    return endpoint.method == "POST" and "{" not in endpoint.path


async def everything_shown(api: ApiClient, owner: Owner) -> dict[str, str]:
    """What every route shows the owner of what is theirs; nothing else would mean anything."""
    shown = {}
    for endpoint in (endpoint for endpoint in ENDPOINTS if endpoint.method == "GET"):
        reply = await reply_to(api, endpoint, owner.things, owner.key)
        shown[endpoint.path] = reply.text
        if endpoint.path in LISTS:
            assert [word for word in owner.words if word in reply.original], (endpoint.path, reply)
        if endpoint.path in LISTS | ONES:
            assert reply.status == 200, (endpoint.path, reply)
    return shown


async def test_rows_of_a_user_are_closed_to_other_users_of_the_same_tenant(
    api: ApiClient, harness: Harness, nobodys: dict[str, str]
) -> None:
    """Captures are for those who sent them, whatever the others may; a submitter sees its own requests."""
    owner = await settled(api, harness, user_id=str(uuid4()))
    for role, user in (("admin", str(uuid4())), ("admin", NOBODY), ("submitter", str(uuid4()))):
        stranger = await api.make_key(role, user_id=user)
        private = ("captures",) if role == "admin" else ("captures", "companies")
        for endpoint in (
            endpoint for endpoint in ENDPOINTS if endpoint.tag in private and "{" in endpoint.path
        ):
            replies = [await reply_to(api, endpoint, things, stranger) for things in (owner.things, nobodys)]
            assert replies[0] == replies[1], (endpoint.path, replies)
            assert replies[0].status in (403, 404), (endpoint.path, replies)


# -- and where the code forgot to ask ----------------------------------------------------------------------

WITH_TENANT = """
select format('%I.%I', n.nspname, c.relname) from pg_class c
join pg_namespace n on n.oid = c.relnamespace and n.nspname ~ '^(cograil|vault_secure)'
join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
where c.relkind in ('r', 'p') and not c.relispartition
  and has_table_privilege('cograil_server', c.oid, 'select') order by 1
"""


async def test_the_database_shows_a_door_one_tenant_also_without_a_condition(
    api: ApiClient, harness: Harness
) -> None:
    """Every table that has a tenant, those of apps too: nothing without one, of another tenant nothing."""
    await settled(api, harness)
    tables = [name for (name,) in await harness.rows(WITH_TENANT)]
    seen: dict[str | None, set[str]] = {}
    for tenant in (None, "globex", "default"):
        async with api.context.db.transaction("test", tenant=tenant) as tx:
            seen[tenant] = set()
            for table in tables:
                query = f"select count(*) from {table} where tenant_id = 'default'".encode()
                ((count,),) = await (await tx.connection.execute(query)).fetchall()
                seen[tenant] |= {table} if count else set()
    known = {"cograil.keys"}  # by which a tenant is found
    assert (seen[None], seen["globex"]) == (known, known)
    ours = {
        "cograil.jobs",
        "cograil_companies.company_requests",
        "cograil_containers.container_jobs",
        "cograil_documents.documents",
    }
    assert ours <= seen["default"], "else it would mean nothing"
