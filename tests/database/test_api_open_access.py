"""A door that no key opens is open to this machine and to nobody else, whatever becomes of its keys."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.api_client import ApiClient, serve_api
from tests.support.event_streams import open_websocket
from tests.support.harness import Harness

from cograil.errors import NotFound
from cograil.http.auth import authentication
from cograil.http.auth.client_address import is_loopback, reject_foreign_origin
from cograil.http.server.headers import RequestHeaders
from cograil.http.server.problem_details import Refusal
from cograil.settings import ServerSettings
from cograil.verbs.key_management import delete_key, revoke_key

JOBS = "/api/v1/jobs"
PAUSE = "/api/v1/queues/default/pause"


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was looked up is looked up again."""
    monkeypatch.setattr(authentication, "KNOWN_SECONDS", 0.0)


@pytest.fixture
async def outside(harness: Harness, dsn: str) -> AsyncIterator[ApiClient]:
    """A door that listens everywhere, and the only key there is: one that has ended."""
    async with serve_api(harness, dsn) as api:
        await api.make_key("admin")
    await harness.rows("update cograil.keys set expires_at = now()")
    settings = harness.settings.model_copy(update={"host": "0.0.0.0"})
    async with serve_api(harness, dsn, settings) as api:
        yield api


# -- when the last key has ended --------------------------------------------------------------------------


async def test_a_door_to_the_outside_stays_closed_when_the_last_key_ends(outside: ApiClient) -> None:
    assert (await outside.get(JOBS)).status == 401
    await outside.harness.rows("update cograil.keys set revoked_at = now()")
    assert (await outside.get(JOBS)).status == 401
    await outside.harness.rows("delete from cograil.keys")
    assert (await outside.get(JOBS)).status == 401, "not even when there was never a key"
    assert (await outside.get(JOBS, key=await outside.make_key("viewer"))).status == 200


@pytest.mark.parametrize("end", ["expires_at = now()", "revoked_at = now()"])
async def test_a_door_to_this_machine_stays_closed_until_the_last_key_is_forgotten(
    api: ApiClient, end: str
) -> None:
    assert (await api.get(JOBS)).status == 200
    key = await api.make_key("submitter")
    await api.harness.rows(f"update cograil.keys set {end}")
    assert (await api.get(JOBS)).status == 401
    async with api.harness.db.transaction("keys") as tx:
        await delete_key(tx, key.split("_")[1])
    assert (await api.get(JOBS)).status == 200


async def test_a_key_that_opens_the_door_is_not_forgotten(api: ApiClient) -> None:
    key_id = (await api.make_key("admin")).split("_")[1]
    async with api.harness.db.transaction("keys") as tx:
        with pytest.raises(NotFound, match="revoke it first"):
            await delete_key(tx, key_id)
        await revoke_key(tx, key_id)
        await delete_key(tx, key_id)
        with pytest.raises(NotFound):
            await delete_key(tx, key_id)


async def test_without_keys_nobody_comes_in_from_elsewhere(api: ApiClient) -> None:
    """A caller from elsewhere reaches a port on loopback only through a proxy that let it in."""
    here = await api.context.keys.caller(RequestHeaders([]), "127.0.0.1")
    assert here.role == "admin"
    for address in ("10.0.0.9", "192.0.2.1", "2001:db8::1", "", "::ffff:10.0.0.1"):
        with pytest.raises(Refusal, match="401"):
            await api.context.keys.caller(RequestHeaders([]), address)


# -- who says where it comes from -------------------------------------------------------------------------


async def guess(api: ApiClient, count: int = 25) -> list[int]:
    """Wrong keys, each from somewhere else by its own word."""
    return [
        (await api.get(JOBS, key="cog_a_b", headers={"x-forwarded-for": f"198.51.100.{n}"})).status
        for n in range(count)
    ]


async def test_nobody_is_believed_who_says_that_he_is_elsewhere(api: ApiClient) -> None:
    """B146: 20 wrong keys are all that one address has, and the audit log names the real one."""
    key = await api.make_key("admin")
    assert (await guess(api))[20:] == [429] * 5
    forged = {"x-forwarded-for": "198.51.100.7", "forwarded": "for=198.51.100.8"}
    assert (await api.post(PAUSE, key=key, headers=forged)).status == 200
    assert await api.harness.rows("select address from cograil.audit_log") == [("127.0.0.1",)]


async def test_a_proxy_that_is_trusted_says_who_calls(harness: Harness, dsn: str) -> None:
    server = ServerSettings(trusted_proxies=("127.0.0.0/8", "10.0.0.0/8"))
    async with serve_api(harness, dsn, harness.settings.model_copy(update={"server": server})) as api:
        assert (await api.get(JOBS)).status == 401, "it brings others here, so they need a key"
        key = await api.make_key("admin")
        assert 429 not in await guess(api)
        trusted = {"x-forwarded-for": "127.0.0.1, 203.0.113.5, 198.51.100.7:4711,10.1.2.3"}
        others: list[dict[str, str]] = [
            {"x-forwarded-for": "nonsense"},
            {"x-forwarded-for": "[2001:db8::7]:80"},
            {},
        ]
        for number, headers in enumerate((trusted, *others)):
            pause = f"/api/v1/queues/q{number}/pause"
            assert (await api.post(pause, key=key, headers=headers)).status == 200
    rows = await harness.rows("select address from cograil.audit_log order by id")
    assert [address for (address,) in rows] == ["198.51.100.7", "127.0.0.1", "2001:db8::7", "127.0.0.1"]


# -- pages in a browser of this machine -------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example", ""])
async def test_a_page_of_another_site_does_nothing_without_a_key(api: ApiClient, origin: str) -> None:
    foreign = {"origin": origin, "content-type": "text/plain"}
    for answer in (await api.post(PAUSE, headers=foreign), await api.get("/api/v1/audit", headers=foreign)):
        assert (answer.status, answer.code) == (403, "foreign_origin")
    async with open_websocket(api.port, "/ws/jobs/x", origin=origin) as socket:
        assert socket.status == 403
    assert (await api.post(PAUSE, headers={"origin": "http://localhost"})).status == 200


async def test_a_name_that_was_made_to_lead_here_is_none_of_ours(api: ApiClient) -> None:
    """Rebinding: the page's own site, by its name, is suddenly this machine."""
    for host in ("evil.example", f"evil.example:{api.port}", "127.0.0.1.evil.example", "10.0.0.1", "x y"):
        answer = await api.get("/api/v1/audit", headers={"host": host, "origin": f"http://{host}"})
        assert (answer.status, answer.code) == (421, "foreign_host"), host
    for host in ("localhost", f"LOCALHOST:{api.port}", "127.0.0.1:1", "[::1]:8080", "[::1]", "127.8.8.8"):
        assert (await api.get("/api/v1/audit", headers={"host": host})).status == 200, host


async def test_the_name_that_one_was_told_to_listen_on_is_ours() -> None:
    reject_foreign_origin(RequestHeaders([(b"host", b"Cograil.Internal:8080")]), "cograil.internal")
    with pytest.raises(Refusal, match="foreign_host"):
        reject_foreign_origin(RequestHeaders([]), "127.0.0.1")


async def test_a_caller_with_a_key_may_come_from_any_page(api: ApiClient) -> None:
    """Without a key of its own a page of another site cannot do anything, so it is not asked where it is."""
    key = await api.make_key("operator")
    headers = {"origin": "https://app.example", "host": "cograil.example"}
    assert (await api.post(PAUSE, key=key, headers=headers)).status == 200


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        *(("127.0.0.1", True), ("::1", True), ("localhost", True), ("127.9.9.9", True), ("0.0.0.0", False)),
        *(("::", False), ("10.0.0.1", False), ("example.com", False), ("", False), ("localhost.x", False)),
    ],
)
def test_loopback_addresses_are_recognised(host: str, is_here: bool) -> None:
    assert is_loopback(host) is is_here
