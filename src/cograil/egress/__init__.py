"""The only way out: a guard says where a request may go, and the request goes to the address it checked.

A name is resolved once, by the guard. Who resolves it again when connecting can be led elsewhere in
between (DNS rebinding), so `open_request` connects to the checked address, and looks at the other end
before anything is sent; the name only appears in the Host header and in TLS, where the certificate must
be that of the name. Redirects are answers like others; only downloads follow them, hop by hop, through
the same guard.

Workflows (`runners/http_handler.py`), files (`containers/artifact_transfer.py`) and callbacks
(`delivery/relay.py`) go this way; no other module has an HTTP client.
"""

from __future__ import annotations

from cograil.egress.http_sender import Content, Headers, KeptConnections, open_request
from cograil.egress.ssrf_guard import (
    Address,
    Destination,
    ForbiddenDestination,
    OutboundGuard,
    Place,
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
    "Place",
    "PublicOnly",
    "UnknownHost",
    "open_request",
    "read_url",
]
