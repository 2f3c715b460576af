"""Sends requests to checked destinations only."""

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
MAX_KEPT = 64  # connection pools
KEPT_SECONDS = 30.0

Headers = list[tuple[bytes, bytes]]
Content = bytes | Callable[[], AsyncIterator[bytes]]  # the whole body, or a function that returns its chunks


@asynccontextmanager
async def open_request(
    destination: Destination, method: str, headers: Headers, content: Content
) -> AsyncIterator[httpx2.Response]:
    """Send this request and yield the response; its body is not read yet.

    Raises what httpx2 raises. A connection serves one request: a connection shared by address could send a
    request for one name over TLS that was verified for another.
    """
    import httpx2  # noqa: PLC0415  most processes never send a request

    async with httpx2.AsyncHTTPTransport(verify=await _tls(destination), trust_env=False) as transport:

        async def send_to(address: Address) -> httpx2.Response:
            return await transport.handle_async_request(
                _request(destination, address, method, headers, content)
            )

        response = await _first_response(destination, send_to)
        try:
            yield response
        finally:
            await response.aclose()


@dataclass(slots=True)
class _Pool:
    transport: httpx2.AsyncHTTPTransport
    busy: int = 0  # current requests


class KeptConnections:
    """Like `open_request`, but connections stay open for further requests to the same scheme, host, port and
    checked address. The least recently used are closed first."""

    def __init__(self, per_destination: int) -> None:
        self._per_destination = per_destination
        self._pools: OrderedDict[tuple[str, str, int, Address], _Pool] = OrderedDict()

    @asynccontextmanager
    async def open_request(
        self, destination: Destination, method: str, headers: Headers, content: Content
    ) -> AsyncIterator[httpx2.Response]:
        """Send this request and yield the response; its body is not read yet."""
        in_use: list[_Pool] = []

        async def send_to(address: Address) -> httpx2.Response:
            pool = await self._pool(destination, address)
            pool.busy += 1
            in_use.append(pool)
            request = _request(destination, address, method, headers, content)
            return await pool.transport.handle_async_request(request)

        try:
            response = await _first_response(destination, send_to)
            try:
                yield response
            finally:
                await response.aclose()
        finally:
            for kept in in_use:
                kept.busy -= 1

    async def close(self) -> None:
        """Close all connections."""
        while self._pools:
            await self._pools.popitem()[1].transport.aclose()

    async def _pool(self, destination: Destination, address: Address) -> _Pool:
        import httpx2  # noqa: PLC0415

        key = (destination.scheme, destination.host, destination.port, address)
        if key not in self._pools:
            verify = await _tls(destination)
            if key not in self._pools:  # another request may have opened it meanwhile
                limits = httpx2.Limits(max_connections=self._per_destination, keepalive_expiry=KEPT_SECONDS)
                self._pools[key] = _Pool(
                    httpx2.AsyncHTTPTransport(verify=verify, trust_env=False, limits=limits)
                )
        pool = self._pools[key]
        self._pools.move_to_end(key)
        await self._close_the_oldest()
        return pool

    async def _close_the_oldest(self) -> None:
        spare = max(0, len(self._pools) - MAX_KEPT)
        for key in [key for key, kept in self._pools.items() if not kept.busy][:spare]:
            await self._pools.pop(key).transport.aclose()


def _request(
    destination: Destination, address: Address, method: str, headers: Headers, content: Content
) -> httpx2.Request:
    import httpx2  # noqa: PLC0415

    async def check_connection(event: str, info: dict[str, Any]) -> None:
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
            "trace": check_connection,
        },
    )


async def _check_peer(stream: Any, address: Address) -> None:
    """Raise ForbiddenDestination when the peer is not the checked address."""
    peer = stream.get_extra_info("server_addr")
    if peer is None or unwrapped(ip_address(str(peer[0]).partition("%")[0])) != address:
        await stream.aclose()
        raise ForbiddenDestination("blocked_address", "the connection reached another address")


async def _first_response(
    destination: Destination, send_to: Callable[[Address], Awaitable[httpx2.Response]]
) -> httpx2.Response:
    """Return the response of the first address that accepts a connection; nothing was sent to those before it."""
    import httpx2  # noqa: PLC0415

    *others, last = destination.addresses[:MAX_ADDRESSES_TRIED]
    for address in others:
        try:
            return await send_to(address)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            continue
    return await send_to(last)


async def _tls(destination: Destination) -> ssl.SSLContext:
    """Return the TLS context. It is created in a thread: reading all authorities takes a while."""
    if destination.scheme == "https":
        return await asyncio.to_thread(tls_context)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # a placeholder that trusts no authority


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Return a context that trusts the authorities of the system, or those of SSL_CERT_FILE."""
    import httpx2  # noqa: PLC0415

    return httpx2.create_ssl_context()
