"""Where a caller is, and where it believes to be: addresses, names of hosts, and pages of browsers."""

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


@lru_cache(1024)  # asked with every request
def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there, or is there itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def client_address(scope: Scope, headers: Headers, proxies: Networks = ()) -> str:
    """Who is at the other end. What a request says of itself counts only if one of these proxies brought it.

    Then it is the last one in `X-Forwarded-For` that is no such proxy: what stands before it was said by
    the caller itself.
    """
    client = scope.get("client")
    address: str = client[0] if client else ""
    if not proxies:
        return address
    told = [one.strip() for line in headers.getlist("x-forwarded-for") for one in line.split(",")]
    while told and _is_in(address, proxies):
        before = _address(told.pop())
        if before is None:
            break
        address = before
    return address


def reject_foreign_origin(headers: Headers, bound: str) -> None:
    """Raises Refusal for what a page in somebody's browser may have sent.

    While nobody is asked for a key, being here is all that one needs; and any page can make a browser that
    is here send something. It says where the page comes from, unless the name of its host was made to lead
    here: then that name is none of ours.
    """
    host = headers.get("host", "")
    name = _host_name(host)
    if not (is_loopback(name) or name == bound.lower()):
        raise Refusal(421, "foreign_host", "without a key this server is asked by an address of this machine")
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        raise Refusal(403, "foreign_origin", "a page of another site may do nothing here without a key")


def _host_name(host: str) -> str:
    """Without the port."""
    name, _, port = host.strip().lower().rpartition(":")
    is_with_port = bool(name) and port.isdecimal() and (":" not in name or name.endswith("]"))
    return (name if is_with_port else host.strip().lower()).strip("[]")


def _address(text: str) -> str | None:
    """An address in plain form, with or without its port."""
    for one in (text, _host_name(text)):
        try:
            return str(ipaddress.ip_address(one.strip("[]")))
        except ValueError:
            continue
    return None


def _is_in(address: str, networks: Networks) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)
