"""The address of a client, and checks of the Host and Origin headers."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from cograil.http.server.problem_details import Refusal

Networks = Sequence[IPv4Network | IPv6Network]


@lru_cache(1024)  # called for every request
def is_loopback(host: str) -> bool:
    """Return whether this address or name is that of the local machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def client_address(scope: Scope, headers: Headers, proxies: Networks = ()) -> str:
    """Return the address of the client.

    `X-Forwarded-For` counts only if one of these proxies sent the request. Then the client is its last entry
    that is not a proxy: the client itself can forge the entries before it.
    """
    client = scope.get("client")
    address: str = client[0] if client else ""
    if not proxies:
        return address
    hops = [hop.strip() for line in headers.getlist("x-forwarded-for") for hop in line.split(",")]
    while hops and _is_in(address, proxies):
        before = _address(hops.pop())
        if before is None:
            break
        address = before
    return address


def reject_foreign_origin(headers: Headers, bound: str) -> None:
    """Raise Refusal for a request that a page of another site may have sent (CSRF, DNS rebinding).

    Without keys, access from this machine is enough, and any page can make a local browser send a request.
    The Origin header reveals a foreign page, and a foreign Host header a name that was rebound to this machine.
    """
    host = headers.get("host", "")
    name = _host_name(host)
    if not (is_loopback(name) or name == bound.lower()):
        raise Refusal(
            421, "foreign_host", "without a key, the Host header must be an address of this machine"
        )
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        raise Refusal(403, "foreign_origin", "a page of another site needs a key")


def _host_name(host: str) -> str:
    """Return the host of a Host header, without the port."""
    name, _, port = host.strip().lower().rpartition(":")
    is_with_port = bool(name) and port.isdecimal() and (":" not in name or name.endswith("]"))
    return (name if is_with_port else host.strip().lower()).strip("[]")


def _address(text: str) -> str | None:
    """Return the canonical form of an address that may have a port; None if it is not an address."""
    for candidate in (text, _host_name(text)):
        try:
            return str(ipaddress.ip_address(candidate.strip("[]")))
        except ValueError:
            continue
    return None


def _is_in(address: str, networks: Networks) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)
