"""The SSRF guard: parses URLs strictly, resolves names once, checks addresses against its own table."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from cograil.setting_sections import OutboundSettings

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[list[Address]]]

CONNECT_SECONDS = 10.0
MAX_URL = 8_000
PORTS = {"http": 80, "https": 443}
# Ports of other services; some of them accept an HTTP request as their own protocol.
OTHER_PORTS = frozenset(
    {
        *(*range(1, 80), *range(81, 443), *range(444, 1024)),
        *(1433, 1521, 2049, 2375, 2376, 2379, 2380, 3306, 3389, 4369, 5432, 5672, 5900, 5984, 6379, 6443),
        *(*range(6000, 6064), *range(6665, 6670), 7000, 7001, 8500, 9042, 9092, 9200, 9300),
        *(10250, 11211, 15672, 25672, 26379, 27017, 27018, 28017),
    }
)

_NOT_IN_URL = re.compile(r"[\x00-\x20\x7f\\]")
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_IN_BRACKETS = re.compile(r"\[[0-9A-Fa-f:.]+\](?::[0-9]*)?")  # and nothing before or after them
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")  # resolvers accept 127.1 and 0x7f.1 as addresses

# A table of its own: what `ipaddress` calls global differs between Python versions.
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


class ForbiddenDestination(Exception):
    """The guard forbids this destination. `reason` is one of scheme, invalid_url, userinfo, invalid_host, port
    or blocked_address."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class UnknownHost(Exception):
    """The host name cannot be resolved now."""


@dataclass(frozen=True, slots=True)
class ParsedUrl:
    """A strictly parsed URL. `literal` is the address if the host is one."""

    scheme: str
    host: str
    port: int
    target: str
    literal: Address | None = None

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Destination:
    """A permitted destination: all its addresses were checked."""

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
        """Return the URL with this address instead of the name."""
        literal = f"[{address}]" if address.version == 6 else str(address)
        return f"{self.scheme}://{literal}:{self.port}{self.target}"


class OutboundGuard(Protocol):
    """Decides where requests may go."""

    async def check(self, url: str) -> Destination:
        """Return the destination of this URL. Raises ForbiddenDestination or UnknownHost."""


async def resolve(host: str, port: int) -> list[Address]:
    """Return all addresses of a name, in the order to try them. Raises OSError."""
    records = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ip_address(sockaddr[0]) for *_, sockaddr in records]


class PublicOnly:
    """Permits public addresses, and hosts and networks that the settings allow."""

    def __init__(self, settings: OutboundSettings, resolve: Resolve = resolve) -> None:
        self._allows_all = settings.allow_private
        self._hosts = frozenset(settings.allow)
        self._networks = settings.allowed_networks()
        self._resolve = resolve

    def inspect(self, url: str) -> ParsedUrl:
        """Check a URL without resolving its name. Raises ForbiddenDestination."""
        parsed = read_url(url)
        if parsed.literal is not None:
            self._check_addresses(parsed.host, (parsed.literal,))
        if parsed.port in OTHER_PORTS and not self._is_named(parsed):
            raise ForbiddenDestination("port", f"port {parsed.port} is not an HTTP port")
        return parsed

    async def check(self, url: str) -> Destination:
        parsed = self.inspect(url)
        addresses = (parsed.literal,) if parsed.literal is not None else await self._addresses_of(parsed)
        self._check_addresses(parsed.host, addresses)
        return Destination(parsed.scheme, parsed.host, parsed.port, parsed.target, addresses)

    def _check_addresses(self, host: str, addresses: tuple[Address, ...]) -> None:
        if host not in self._hosts and (refused := [a for a in addresses if not self._is_allowed(a)]):
            raise ForbiddenDestination(
                "blocked_address",
                f"{host} resolves to {refused[0]}, which is not a public address; "
                "COGRAIL_OUTBOUND__ALLOW can allow hosts and networks",
            )

    async def _addresses_of(self, parsed: ParsedUrl) -> tuple[Address, ...]:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                addresses = await self._resolve(parsed.host, parsed.port)
        except (OSError, TimeoutError) as error:
            raise UnknownHost(f"{parsed.host} cannot be resolved: {error}") from error
        if not addresses:
            raise UnknownHost(f"{parsed.host} has no address")
        return tuple(dict.fromkeys(unwrapped(address) for address in addresses))

    def _is_allowed(self, address: Address) -> bool:
        return self._allows_all or is_public(address) or self._is_in_networks(address)

    def _is_in_networks(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def _is_named(self, parsed: ParsedUrl) -> bool:
        """Return whether the settings name this host or its address: then any port is permitted."""
        literal = parsed.literal
        return (
            self._allows_all or parsed.host in self._hosts or bool(literal and self._is_in_networks(literal))
        )


def is_public(address: Address) -> bool:
    """Return whether an address is public, and not of this machine, its networks or its provider."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    return address in _PUBLIC_V6 and not any(address in network for network in _NOT_PUBLIC_V6)


# --- strict URL parsing: a URL that two parsers could read differently is rejected


def read_url(url: str, max_length: int = MAX_URL) -> ParsedUrl:
    """Parse this URL without resolving its name. Raises ForbiddenDestination."""
    parts = _split(url, max_length)
    host = _host_of(parts)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return ParsedUrl(parts.scheme, host, _port_of(parts), target, _literal(host))


def _split(url: str, max_length: int) -> SplitResult:
    if len(url) > max_length or _NOT_IN_URL.search(url):
        raise ForbiddenDestination(
            "invalid_url",
            f"a url has at most {max_length:,} characters, without spaces, backslashes and control characters",
        )
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ForbiddenDestination("invalid_url", f"the url cannot be read: {error}") from None
    if parts.scheme not in PORTS:
        raise ForbiddenDestination("scheme", "a url must start with http:// or https://")
    if "@" in parts.netloc and ":" not in parts.netloc.rpartition("@")[0]:
        raise ForbiddenDestination("invalid_url", "a url must not contain an @ before its host")
    if "@" in parts.netloc:
        raise ForbiddenDestination("userinfo", "a url must not contain a user or password; send a header")
    return parts


def _host_of(parts: SplitResult) -> str:
    """Return the host in lower case: a canonical address, or a name that is not a numeric address."""
    host, written = parts.hostname or "", parts.netloc
    is_odd = not written.isascii() or ("[" in written and not _IN_BRACKETS.fullmatch(written))
    literal = _literal(host)
    if literal is not None and not is_odd:
        return str(literal)
    if is_odd or not _NAME.fullmatch(host) or _NUMERIC.fullmatch(host):
        raise ForbiddenDestination(
            "invalid_host",
            f"{host[:80]!r} is neither a host name nor an address; write other scripts as xn--",
        )
    return host


def _port_of(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ForbiddenDestination("port", "a port is a number from 1 to 65535")
    return port or PORTS[parts.scheme]


def _literal(host: str) -> Address | None:
    try:
        return None if "%" in host else unwrapped(ip_address(host))
    except ValueError:
        return None


def unwrapped(address: Address) -> Address:
    """Return the IPv4 address of ::ffff:127.0.0.1, which a connection to it reaches."""
    return getattr(address, "ipv4_mapped", None) or address
