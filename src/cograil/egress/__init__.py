"""Outgoing requests: a guard checks the destination, and the request goes to the checked address.

The guard resolves a name once. A second resolution when connecting could return another address (DNS
rebinding), so `open_request` connects to the checked address and verifies the peer before it sends anything. The
name appears only in the Host header and in TLS, where the certificate must match it. Redirects are not
followed; only downloads follow them, one by one, through the same guard.

Workflows (`runners/http_handler.py`), files (`apps/containers/runtime/artifact_transfer.py`) and callbacks
(`delivery/relay.py`) use this package; no other module has an HTTP client.
"""

from __future__ import annotations

from cograil.egress.http_sender import Content, Headers, KeptConnections, open_request
from cograil.egress.ssrf_guard import (
    Address,
    Destination,
    ForbiddenDestination,
    OutboundGuard,
    ParsedUrl,
    PublicOnly,
    UnknownHost,
    read_url,
)

__all__ = [
    "Address",
    "Content",
    "Destination",
    "ForbiddenDestination",
    "Headers",
    "KeptConnections",
    "OutboundGuard",
    "ParsedUrl",
    "PublicOnly",
    "UnknownHost",
    "open_request",
    "read_url",
]
