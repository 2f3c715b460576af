"""One try of a delivery: where it may go, what its answer means, when the next one comes."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from tests.support.certificates import certificate
from tests.support.http_site import Names, Open, Site

from cograil.delivery.circuit_breaker import FAILURES, MAX_KNOWN, OPEN_SECONDS, Breakers
from cograil.delivery.http_delivery import BACKOFF, AttemptResponse, judge, post
from cograil.delivery.signatures import standard_signature
from cograil.egress import Content, Destination, Headers, KeptConnections, PublicOnly
from cograil.settings import OutboundSettings, RelaySettings
from cograil.store.outbox_queries import Claimed

ONLY_ONE = OutboundSettings(allow_networks=("127.0.0.1/32",))
RELAY = RelaySettings()


def claimed(url: str, tries: int = 1, age: float = 0.0, style: str = "cloudevents") -> Claimed:
    how = orjson.dumps({"style": style, "secret": None, "headers": {}})
    return Claimed("id", 1, tries, "default", "callback", "origin", url, how, b"{}", age)


async def sent(
    url: str, guard: Any, connections: KeptConnections | None = None, seconds: float = 2.0
) -> AttemptResponse:
    connections = connections or KeptConnections(4)
    try:
        return await post(claimed(url), guard, connections, seconds)
    finally:
        await connections.close()


@contextlib.asynccontextmanager
async def trap_at(address: str, port: int) -> AsyncIterator[Site]:
    """Nobody may ever connect here."""
    trap = Site()
    async with await asyncio.start_server(trap.serve, address, port):
        yield trap


# -- where it may go --------------------------------------------------------------------------------------


class ResolvesTwice(PublicOnly):
    """The classic mistake: the name is checked, and asked for again to connect."""

    async def check(self, url: str) -> Destination:
        checked = await super().check(url)
        again = await self._resolve(checked.host, checked.port)
        return Destination(checked.scheme, checked.host, checked.port, checked.target, tuple(again))


@pytest.mark.parametrize(("guard", "is_caught"), [(PublicOnly, False), (ResolvesTwice, True)])
async def test_a_name_that_changes_its_mind_leads_nowhere_else(
    site: Site, guard: type[PublicOnly], is_caught: bool
) -> None:
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    async with trap_at("127.0.0.2", site.port) as trap:
        await sent(f"http://rebound.test:{site.port}/", guard(ONLY_ONE, names))
    assert (trap.connections > 0) is is_caught, "the mutant shows that the trap works"


class FollowsRedirects(KeptConnections):
    """The other classic."""

    @contextlib.asynccontextmanager
    async def open_request(
        self, destination: Destination, method: str, headers: Headers, content: Content
    ) -> AsyncIterator[Any]:
        async with super().open_request(destination, method, headers, content) as response:
            location = response.headers["location"]
        open_guard = PublicOnly(OutboundSettings(allow_private=True))
        async with super().open_request(await open_guard.check(location), method, headers, content) as second:
            yield second


@pytest.mark.parametrize(("kind", "is_caught"), [(KeptConnections, False), (FollowsRedirects, True)])
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_a_failure_and_not_followed(
    open_site: Open, kind: type[KeptConnections], is_caught: bool, status: int
) -> None:
    site, trap = await open_site(), await open_site()
    site.answers(status, Location=f"{trap.url}/")
    answer = await sent(f"{site.url}/", PublicOnly(ONLY_ONE), kind(4))
    assert (trap.connections > 0) is is_caught
    if not is_caught:
        assert (answer.status, answer.is_delivered) == (status, False)


async def test_a_name_with_one_address_that_is_not_public_is_blocked(site: Site) -> None:
    guard = PublicOnly(OutboundSettings(), Names(["8.8.8.8", "127.0.0.1"]))
    answer = await sent(f"http://both.test:{site.port}/", guard)
    assert answer.is_blocked
    assert site.connections == 0
    assert judge(claimed("x", tries=2), answer, RELAY).state == "pending"
    assert judge(claimed("x", tries=3), answer, RELAY).state == "dead"


async def test_a_certificate_that_is_not_trusted_is_a_failure_and_nothing_is_sent(
    open_site: Open, tmp_path: Any
) -> None:
    key, chain = certificate(tmp_path, "named.test")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(chain, key)
    site = await open_site(serving)
    answer = await sent(f"https://named.test:{site.port}/", PublicOnly(ONLY_ONE, Names(["127.0.0.1"])))
    assert answer.status is None
    assert "certificate" in str(answer.error).lower()
    assert site.requests == []


async def test_a_name_that_nobody_knows_and_a_port_where_nobody_is_are_failures() -> None:
    unknown = await sent("http://nobody.test/", PublicOnly(ONLY_ONE, Names()))
    assert "cannot be resolved" in str(unknown.error)
    closed = await sent("http://127.0.0.1:1/", PublicOnly(OutboundSettings(allow_networks=("127.0.0.1/32",))))
    assert (closed.status, closed.is_blocked) == (None, False)


async def test_an_answer_of_one_byte_now_and_then_is_given_up(open_site: Open) -> None:
    site = await open_site()
    site.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx"
    answer = await sent(f"{site.url}/", PublicOnly(ONLY_ONE), seconds=0.3)
    assert answer.error == "no complete response within 0.3 s"


async def test_endless_hundreds_are_given_up(open_site: Open) -> None:
    site = await open_site()
    site.answer = b"HTTP/1.1 100 Continue\r\n\r\n" * 1000
    answer = await sent(f"{site.url}/", PublicOnly(ONLY_ONE), seconds=0.3)
    assert not answer.is_delivered


# -- what it means ----------------------------------------------------------------------------------------


def test_the_pauses_grow_to_days_and_then_it_is_dead() -> None:
    age, tries, pauses = 0.0, 1, []
    while (
        tried := judge(claimed("x", tries, age), AttemptResponse(500), RELAY, lambda: 0.5)
    ).state == "pending":
        pauses.append(tried.wait)
        age, tries = age + tried.wait, tries + 1
    assert pauses[: len(BACKOFF)] == pytest.approx(list(BACKOFF))
    assert sum(pauses[:5]) > 3600, "a receiver that was down for an hour gets its events"
    assert 2 * 86_400 < age <= 3 * 86_400
    assert tried.state == "dead"


def test_pauses_are_spread_by_a_fifth() -> None:
    waits = [judge(claimed("x"), AttemptResponse(500), RELAY, lambda d=d: d).wait for d in (0.0, 1.0)]  # type: ignore[misc]
    assert waits == pytest.approx([4.0, 6.0])


@pytest.mark.parametrize(("retry_after", "least"), [(60.0, 60.0), (None, 4.0), (0.0, 4.0)])
def test_a_retry_after_is_the_least_delay(retry_after: float | None, least: float) -> None:
    tried = judge(claimed("x"), AttemptResponse(429, "later", retry_after), RELAY, lambda: 0.0)
    assert tried.wait == pytest.approx(least)


@pytest.mark.parametrize(
    ("retry_after", "wait"), [("86400000", 3600.0), ("-5", None), ("soon", None), ("1e9", None), ("", None)]
)
async def test_a_retry_after_is_bounded(site: Site, retry_after: str, wait: float | None) -> None:
    site.answers(503, Retry_After=retry_after)
    assert (await sent(f"{site.url}/", PublicOnly(ONLY_ONE))).retry_after == wait


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_final_in_one_style_only(status: int) -> None:
    assert judge(claimed("x"), AttemptResponse(status), RELAY).state == "pending"
    assert judge(claimed("x", style="orchestrator"), AttemptResponse(status), RELAY).state == "dead"


@pytest.mark.parametrize("status", [408, 429, 500, 503, 302])
def test_temporary_failures_are_tried_again_in_every_style(status: int) -> None:
    assert judge(claimed("x", style="orchestrator"), AttemptResponse(status), RELAY).state == "pending"


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """The example that its libraries share."""
    secret, event_id = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
    body = b'{"test": 2432232314}'
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert standard_signature(secret, event_id, 1614265330, body) == expected


# -- the breaker ------------------------------------------------------------------------------------------


def test_a_breaker_opens_lets_one_through_and_closes() -> None:
    now = [0.0]
    breakers = Breakers(lambda: now[0])
    for _ in range(FAILURES - 1):
        breakers.note("a", is_available=False)
    assert breakers.limits() == {}
    breakers.note("a", is_available=False)
    assert (breakers.limits(), breakers.seconds_until_probe()) == ({"a": 0}, OPEN_SECONDS)
    now[0] = OPEN_SECONDS + 1
    assert breakers.limits() == {"a": 1}
    breakers.note("a", is_available=False)
    assert breakers.limits() == {"a": 0}
    now[0] += OPEN_SECONDS + 1
    breakers.note("a", is_available=True)
    assert (breakers.limits(), breakers.seconds_until_probe()) == ({}, None)


def test_unreachable_origins_are_remembered_up_to_a_bound() -> None:
    breakers = Breakers(lambda: 0.0)
    for number in range(2 * MAX_KNOWN):
        for _ in range(FAILURES):
            breakers.note(f"https://{number}.example:443", is_available=False)
        breakers.note("https://known.example:443", is_available=False)
    assert len(breakers.limits()) == MAX_KNOWN
    assert breakers.is_open("https://known.example:443")


def test_a_receiver_that_refuses_is_well() -> None:
    assert AttemptResponse(404).is_receiver_available
    assert AttemptResponse(None, "blocked", is_blocked=True).is_receiver_available
    assert not AttemptResponse(502).is_receiver_available
    assert not AttemptResponse(None, "no answer").is_receiver_available
