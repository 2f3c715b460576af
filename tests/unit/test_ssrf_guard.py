"""Where requests may go, and that they go nowhere else."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import certificate
from tests.support.handler_attempts import failed, output
from tests.support.http_site import HERE, Names, Open, Sender, Site

from cograil.egress import Destination, ForbiddenDestination, KeptConnections, PublicOnly, http_sender
from cograil.errors import InvalidSettings
from cograil.runners import builtin_handlers  # noqa: F401  importing registers
from cograil.settings import OutboundSettings, load_settings

Json = Any


# --- where it may go


async def test_a_name_of_this_machine_is_refused_unless_allowed(sender: Sender, site: Site) -> None:
    url = f"http://localhost:{site.port}/"
    error = failed(await sender.send(url, PublicOnly(OutboundSettings())), "outbound_refused")
    assert not error.retryable
    assert site.connections == 0
    for allowed in (
        OutboundSettings(allow=("LocalHost",)),
        OutboundSettings(allow=("10.0.0.0/8", "127.0.0.0/8", "::1")),
        OutboundSettings(allow_private=True),
    ):
        assert output(await sender.send(url, PublicOnly(allowed)))["status"] == 200
    assert [headers["host"] for _, headers, _ in site.requests] == [f"localhost:{site.port}"] * 3


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.5", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "192.0.0.8", "198.18.0.1"),
        *("[::1]", "[::]", "[fe80::1]", "[fc00::1]", "[fec0::1]", "[ff02::1]", "[::ffff:169.254.169.254]"),
        *("[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "[::7f00:1]", "[fe80::1%25lo]", "[fd00:ec2::254]"),
        *("127.1", "0177.0.0.1", "2130706433", "0x7f000001", "0x7f.1", "169.254.43518", "0", "1.2.3.4."),
        *("①②⑦.⓪.⓪.①", "127。0。0。1", "ⓛocalhost", "a..b", "-a.b", "a" * 64, ""),
    ],
)
async def test_addresses_that_are_not_public_are_refused_however_they_are_written(host: str) -> None:
    names = Names(["127.0.0.1"])
    with pytest.raises(ForbiddenDestination):
        await PublicOnly(OutboundSettings(), names).check(f"http://{host}/")
    assert names.asked == []


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://a.test/", "file:///etc/passwd", "gopher://a.test", "a.test", "//a.test/", "data:,x", ""),
        *("http://user@a.test/", "http://u:p@a.test/", "http://a.test\\@b.test/", "http://a.test/\n"),
        *("http://a b/", "http://a.test:0/", "http://a.test:99999/", "http://a.test:x/", "http://[::1/"),
        *("http://[2606:4700::1111].a.test/", "http://127.0.0.1[2606:4700::1111]/", "http://[v1.x]/"),
        *("http://[2606:4700::1111]a:80/", "http://\u212a.test/", "http://a.test:\u0668\u0660/"),
        "http://a.test/" + "x" * 9000,
    ],
)  # fmt: skip
async def test_a_url_that_could_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(ForbiddenDestination):
        await PublicOnly(OutboundSettings(allow_private=True), Names(["8.8.8.8"])).check(url)


async def test_a_public_address_is_allowed() -> None:
    guard = PublicOnly(OutboundSettings(), Names(["8.8.8.8", "2606:4700::1111"]))
    destination = await guard.check("HTTPS://A.example/x?y=1")
    assert [str(address) for address in destination.addresses] == ["8.8.8.8", "2606:4700::1111"]
    assert (destination.authority, destination.url_at(destination.addresses[0])) == (
        "a.example",
        "https://8.8.8.8:443/x?y=1",
    )
    assert destination.url_at(destination.addresses[1]) == "https://[2606:4700::1111]:443/x?y=1"


async def test_one_address_that_is_not_public_spoils_a_name() -> None:
    guard = PublicOnly(OutboundSettings(), Names(["8.8.8.8", "::ffff:10.0.0.1"]))
    with pytest.raises(ForbiddenDestination, match=r"10\.0\.0\.1"):
        await guard.check("http://both.test/")


async def test_the_request_goes_to_the_address_that_was_checked(sender: Sender, site: Site) -> None:
    names = Names(["127.0.0.1"])  # and never again: the second lookup fails
    outcome = await sender.send(f"http://rebound.test:{site.port}/", PublicOnly(HERE, names))
    assert output(outcome)["status"] == 200
    assert names.asked == ["rebound.test"]
    assert site.requests[0][1]["host"] == f"rebound.test:{site.port}"


async def test_the_next_address_is_tried_when_one_does_not_answer(sender: Sender, site: Site) -> None:
    names = Names(["127.0.0.2", "127.0.0.1"])
    outcome = await sender.send(f"http://two.test:{site.port}/", PublicOnly(HERE, names), method="POST")
    assert output(outcome)["status"] == 200
    assert len(site.requests) == 1


async def test_a_redirect_is_an_answer_and_not_followed(sender: Sender, open_site: Open) -> None:
    site, trap = await open_site(), await open_site()
    guard = PublicOnly(OutboundSettings(allow=("site.test",)), Names(["127.0.0.1"], ["127.0.0.1"]))
    for location in (f"{trap.url}/", f"http://localhost:{trap.port}/"):
        site.answers(302, Location=location)
        url = f"http://site.test:{site.port}/"
        outcome = await sender.send(url, guard, expect_status=["3xx"])
        assert output(outcome)["headers"]["location"] == location
    assert (len(site.requests), trap.connections) == (2, 0)


async def test_proxies_of_the_environment_are_not_asked(
    sender: Sender, open_site: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, trap = await open_site(), await open_site()
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, trap.url)
    assert output(await sender.send(site.url))["status"] == 200
    assert (site.connections, trap.connections) == (1, 0)


async def test_ports_of_other_services_are_refused_unless_the_place_is_named() -> None:
    names = Names(["8.8.8.8"], ["8.8.8.8"])
    with pytest.raises(ForbiddenDestination, match="port 6379"):
        await PublicOnly(OutboundSettings(), names).check("http://a.test:6379/")
    assert names.asked == []
    named = OutboundSettings(allow=("a.test",), allow_networks=("10.0.0.0/8",))
    assert (await PublicOnly(named, names).check("http://a.test:6379/")).port == 6379
    assert (await PublicOnly(named, names).check("http://10.0.0.7:9200/")).port == 9200


async def test_the_other_end_is_looked_at_before_anything_is_sent(
    sender: Sender, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if something between us and the checked address led the connection elsewhere."""
    monkeypatch.setattr(Destination, "url_at", lambda self, _: f"http://127.0.0.1:{self.port}/")
    guard = PublicOnly(HERE, Names(["127.0.0.9"]))
    failed(await sender.send(f"http://led.test:{site.port}/", guard), "outbound_refused")
    assert site.requests == []


async def test_a_connection_is_kept_for_the_same_name_and_address_only(open_site: Open) -> None:
    site = await open_site()
    site.is_kept = True
    connections = KeptConnections(4)
    guard = PublicOnly(HERE, Names(*[["127.0.0.1"]] * 4))
    try:
        for name in ("one.test", "one.test", "two.test", "one.test"):
            destination = await guard.check(f"http://{name}:{site.port}/")
            async with connections.open_request(destination, "POST", [], b"x") as response:
                await response.aread()
    finally:
        await connections.close()
    assert (site.connections, len(site.requests)) == (2, 4)


# --- TLS


async def test_tls_is_for_the_name_and_not_for_the_address(
    sender: Sender, open_site: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, chain = certificate(tmp_path, "named.test")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(chain, key)
    server_names: list[str | None] = []
    serving.sni_callback = lambda _, name, __: server_names.append(name)
    site = await open_site(serving)
    monkeypatch.setattr(http_sender, "tls_context", lambda: ssl.create_default_context(cafile=chain))
    for name, is_trusted in (("named.test", True), ("other.test", False)):
        guard = PublicOnly(HERE, Names(["127.0.0.1"]))
        outcome = await sender.send(f"https://{name}:{site.port}/", guard)
        assert output(outcome) if is_trusted else failed(outcome, "http_unreachable")
    assert server_names == ["named.test", "other.test"]
    assert len(site.requests) == 1


async def test_a_certificate_of_nobody_known_is_refused(
    sender: Sender, open_site: Open, tmp_path: Path
) -> None:
    key, chain = certificate(tmp_path, "named.test")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(chain, key)
    site = await open_site(serving)
    guard = PublicOnly(HERE, Names(["127.0.0.1"]))
    failed(await sender.send(f"https://named.test:{site.port}/", guard), "http_unreachable")
    assert site.requests == []


# --- settings


def test_allowed_destinations_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().outbound == OutboundSettings(allow_private=False, allow=())
    monkeypatch.setenv("COGRAIL_OUTBOUND__ALLOW", "Intranet.example, 10.0.0.0/8,::1")
    monkeypatch.setenv("COGRAIL_OUTBOUND__ALLOW_PRIVATE", "true")
    outbound = load_settings().outbound
    assert (outbound.allow_private, outbound.allow) == (True, ("intranet.example", "10.0.0.0/8", "::1"))
    assert [str(network) for network in outbound.allowed_networks()] == ["10.0.0.0/8", "::1/128"]


def test_networks_have_a_variable_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_OUTBOUND__ALLOW_NETWORKS", "127.0.0.0/8, fd00::/8")
    outbound = load_settings().outbound
    assert [str(network) for network in outbound.allowed_networks()] == ["127.0.0.0/8", "fd00::/8"]
    monkeypatch.setenv("COGRAIL_OUTBOUND__ALLOW_NETWORKS", "localhost")
    with pytest.raises(InvalidSettings, match="COGRAIL_OUTBOUND__ALLOW_NETWORKS: must name networks"):
        load_settings()


@pytest.mark.parametrize("wrong", ["10.0.0.5/8", "http://a.example", "a.example:80", "127.1", "*", "a b"])
def test_an_entry_that_is_neither_host_nor_network_cannot_be_allowed(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv("COGRAIL_OUTBOUND__ALLOW", f"a.example,{wrong}")
    with pytest.raises(InvalidSettings, match="COGRAIL_OUTBOUND__ALLOW: must name hosts"):
        load_settings()
