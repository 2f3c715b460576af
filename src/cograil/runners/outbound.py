"""The only way out: a guard says where a request may go, and the request goes to the address it checked.

A name is resolved once, by the guard. Who resolves it again when connecting can be led elsewhere in
between (DNS rebinding), so `open_request` connects to the checked address; the name only appears in the
Host header and in TLS, where the certificate must be that of the name. Redirects are answers like others.
"""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Protocol
from urllib.parse import SplitResult, urlsplit

from cograil.runners.exceptions import Fail, Retry
from cograil.settings import OutboundSettings

if TYPE_CHECKING:
    import httpx2

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[list[Address]]]

CONNECT_SECONDS = 10.0
MAX_URL = 8_000
MAX_ADDRESSES_TRIED = 4
PORTS = {"http": 80, "https": 443}

_NOT_IN_URL = re.compile(r"[\x00-\x20\x7f\\]")
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")  # resolvers take 127.1 and 0x7f.1 for addresses

# Our own table: what `ipaddress` calls global differs between versions of Python.
_NOT_PUBLIC_V4 = [
    ip_network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24",
        "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
    )
]  # fmt: skip
_PUBLIC_V6 = ip_network("2000::/3")
_NOT_PUBLIC_V6 = [
    ip_network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "2620:4f:8000::/48")
]


class ForbiddenDestination(Fail):
    """The request must not go there; trying again cannot help."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="outbound_refused")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a request may go: every one of `addresses` was checked."""

    scheme: str
    host: str
    port: int
    target: str
    addresses: tuple[Address, ...]

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def url_at(self, address: Address) -> str:
        """The URL with this address in place of the name."""
        literal = f"[{address}]" if address.version == 6 else str(address)
        return f"{self.scheme}://{literal}:{self.port}{self.target}"


class OutboundGuard(Protocol):
    """Decides where requests may go."""

    async def check(self, url: str) -> Destination:
        """Where this URL leads. Raises ForbiddenDestination, or Retry when the name cannot be resolved."""


async def resolve(host: str, port: int) -> list[Address]:
    """All addresses of a name, in the order in which to try them. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ip_address(sockaddr[0]) for *_, sockaddr in found]


class PublicOnly:
    """Lets requests go to public addresses, and to what the settings allow."""

    def __init__(self, settings: OutboundSettings, resolve: Resolve = resolve) -> None:
        self._allows_all = settings.allow_private
        self._hosts = frozenset(settings.allow)
        self._networks = settings.allowed_networks()
        self._resolve = resolve

    async def check(self, url: str) -> Destination:
        parts = _split(url)
        host, port = _host_of(parts), _port_of(parts)
        addresses = await self._addresses_of(host, port)
        if host not in self._hosts and (refused := [a for a in addresses if not self._is_allowed(a)]):
            raise ForbiddenDestination(
                f"{host} leads to {refused[0]}, which is no public address; "
                "COGRAIL_OUTBOUND__ALLOW can allow hosts and networks"
            )
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return Destination(parts.scheme, host, port, target, addresses)

    async def _addresses_of(self, host: str, port: int) -> tuple[Address, ...]:
        literal = _literal(host)
        if literal is not None:
            return (literal,)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                found = await self._resolve(host, port)
        except (OSError, TimeoutError) as error:
            raise Retry(f"{host} cannot be resolved: {error}", code="http_unreachable") from error
        return tuple(dict.fromkeys(_unwrapped(address) for address in found))

    def _is_allowed(self, address: Address) -> bool:
        return self._allows_all or is_public(address) or any(address in network for network in self._networks)


def is_public(address: Address) -> bool:
    """Whether it belongs to the internet, and not to this machine, its networks or its provider."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    return address in _PUBLIC_V6 and not any(address in network for network in _NOT_PUBLIC_V6)


@asynccontextmanager
async def open_request(
    destination: Destination, method: str, headers: list[tuple[bytes, bytes]], content: bytes
) -> AsyncIterator[httpx2.Response]:
    """Send this request; its answer, of which the body is still to be read.

    Raises what httpx2 raises. A connection is for one request: one that is shared by address would send
    a request for one name over a connection whose certificate was checked for another.
    """
    import httpx2  # noqa: PLC0415  most processes never send a request

    async with httpx2.AsyncHTTPTransport(verify=await _tls(destination), trust_env=False) as transport:

        def request(address: Address) -> httpx2.Request:
            return httpx2.Request(
                method,
                destination.url_at(address),
                headers=[(b"Host", destination.authority.encode()), *headers],
                content=content or None,
                extensions={"sni_hostname": destination.host, "timeout": {"connect": CONNECT_SECONDS}},
            )

        response = await _first_answer(transport, [request(address) for address in destination.addresses])
        try:
            yield response
        finally:
            await response.aclose()


async def _first_answer(
    transport: httpx2.AsyncHTTPTransport, requests: list[httpx2.Request]
) -> httpx2.Response:
    """Of the first address that can be connected to: nothing was sent to those before it."""
    import httpx2  # noqa: PLC0415

    *others, last = requests[:MAX_ADDRESSES_TRIED]
    for request in others:
        try:
            return await transport.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            continue
    return await transport.handle_async_request(last)


async def _tls(destination: Destination) -> ssl.SSLContext:
    """What verifies certificates. Made in a thread, as reading all authorities takes a while."""
    if destination.scheme == "https":
        return await asyncio.to_thread(tls_context)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody, and is not used


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Trusts the authorities of the system, or those of SSL_CERT_FILE."""
    import httpx2  # noqa: PLC0415

    return httpx2.create_ssl_context()


# --- reading URLs, strictly: whatever two readers could read differently is refused


def _split(url: str) -> SplitResult:
    if len(url) > MAX_URL or _NOT_IN_URL.search(url):
        raise ForbiddenDestination(
            f"a url has at most {MAX_URL:,} characters, without blanks, backslashes and control characters"
        )
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ForbiddenDestination(f"the url cannot be read: {error}") from None
    if parts.scheme not in PORTS:
        raise ForbiddenDestination("a url begins with http:// or https://")
    if "@" in parts.netloc:
        raise ForbiddenDestination("a url must not hold a user or password; send a header")
    return parts


def _host_of(parts: SplitResult) -> str:
    """The host in lower case: an address as it is usually written, or a name that cannot be taken for one."""
    host = parts.hostname or ""
    literal = _literal(host)
    if literal is not None:
        return str(literal)
    if not _NAME.fullmatch(host) or _NUMERIC.fullmatch(host):
        raise ForbiddenDestination(
            f"{host[:80]!r} is neither the name of a host nor an address; write other scripts as xn--"
        )
    return host


def _port_of(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ForbiddenDestination("a port is a number from 1 to 65535")
    return port or PORTS[parts.scheme]


def _literal(host: str) -> Address | None:
    try:
        return None if "%" in host else _unwrapped(ip_address(host))
    except ValueError:
        return None


def _unwrapped(address: Address) -> Address:
    """The IPv4 address in ::ffff:127.0.0.1, which is where a connection to it goes."""
    return getattr(address, "ipv4_mapped", None) or address
