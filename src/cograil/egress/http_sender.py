"""Sending a request to a destination that was checked, and nowhere else."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from cograil.egress import ssrf_guard
from cograil.egress.ssrf_guard import Address, Destination, ForbiddenDestination, unwrapped

if TYPE_CHECKING:
    import httpx2

MAX_ADDRESSES_TRIED = 4
MAX_KEPT = 64  # places to which connections are kept
KEPT_SECONDS = 30.0

Headers = list[tuple[bytes, bytes]]
Content = bytes | Callable[[], AsyncIterator[bytes]]  # all of it, or where to get it piece by piece


@asynccontextmanager
async def open_request(
    destination: Destination, method: str, headers: Headers, content: Content
) -> AsyncIterator[httpx2.Response]:
    """Send this request; its answer, of which the body is still to be read.

    Raises what httpx2 raises. A connection is for one request: one that is shared by address would send
    a request for one name over a connection whose certificate was checked for another.
    """
    import httpx2  # noqa: PLC0415  most processes never send a request

    async with httpx2.AsyncHTTPTransport(verify=await _tls(destination), trust_env=False) as transport:

        async def to(address: Address) -> httpx2.Response:
            return await transport.handle_async_request(
                _request(destination, address, method, headers, content)
            )

        response = await _first_answer(destination, to)
        try:
            yield response
        finally:
            await response.aclose()


@dataclass(slots=True)
class _Kept:
    transport: httpx2.AsyncHTTPTransport
    busy: int = 0  # requests that are under way


class KeptConnections:
    """As `open_request`, but connections stay open for the next request to the same scheme, host, port and
    checked address. Those to the places that were not used for longest are closed first."""

    def __init__(self, per_place: int) -> None:
        self._per_place = per_place
        self._kept: OrderedDict[tuple[str, str, int, Address], _Kept] = OrderedDict()

    @asynccontextmanager
    async def open_request(
        self, destination: Destination, method: str, headers: Headers, content: Content
    ) -> AsyncIterator[httpx2.Response]:
        """Send this request; its answer, of which the body is still to be read."""
        in_use: list[_Kept] = []

        async def to(address: Address) -> httpx2.Response:
            kept = await self._place(destination, address)
            kept.busy += 1
            in_use.append(kept)
            request = _request(destination, address, method, headers, content)
            return await kept.transport.handle_async_request(request)

        try:
            response = await _first_answer(destination, to)
            try:
                yield response
            finally:
                await response.aclose()
        finally:
            for kept in in_use:
                kept.busy -= 1

    async def close(self) -> None:
        """Close all connections."""
        while self._kept:
            await self._kept.popitem()[1].transport.aclose()

    async def _place(self, destination: Destination, address: Address) -> _Kept:
        import httpx2  # noqa: PLC0415

        key = (destination.scheme, destination.host, destination.port, address)
        if key not in self._kept:
            verify = await _tls(destination)
            if key not in self._kept:  # somebody may have been quicker
                limits = httpx2.Limits(max_connections=self._per_place, keepalive_expiry=KEPT_SECONDS)
                self._kept[key] = _Kept(
                    httpx2.AsyncHTTPTransport(verify=verify, trust_env=False, limits=limits)
                )
        kept = self._kept[key]
        self._kept.move_to_end(key)
        await self._close_the_oldest()
        return kept

    async def _close_the_oldest(self) -> None:
        spare = max(0, len(self._kept) - MAX_KEPT)
        for key in [key for key, kept in self._kept.items() if not kept.busy][:spare]:
            await self._kept.pop(key).transport.aclose()


def _request(
    destination: Destination, address: Address, method: str, headers: Headers, content: Content
) -> httpx2.Request:
    import httpx2  # noqa: PLC0415

    async def look(event: str, info: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            await _check_peer(info["return_value"], address)

    return httpx2.Request(
        method,
        destination.url_at(address),
        headers=[(b"Host", destination.authority.encode()), *headers],
        content=content() if callable(content) else content or None,
        extensions={
            "sni_hostname": destination.host,
            "timeout": {"connect": ssrf_guard.CONNECT_SECONDS},
            "trace": look,
        },
    )


async def _check_peer(stream: Any, address: Address) -> None:
    """Raises ForbiddenDestination when the other end is not the address that was checked."""
    peer = stream.get_extra_info("server_addr")
    if peer is None or unwrapped(ip_address(str(peer[0]).partition("%")[0])) != address:
        await stream.aclose()
        raise ForbiddenDestination("blocked_address", "the connection led to another address")


async def _first_answer(
    destination: Destination, to: Callable[[Address], Awaitable[httpx2.Response]]
) -> httpx2.Response:
    """Of the first address that can be connected to: nothing was sent to those before it."""
    import httpx2  # noqa: PLC0415

    *others, last = destination.addresses[:MAX_ADDRESSES_TRIED]
    for address in others:
        try:
            return await to(address)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            continue
    return await to(last)


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
