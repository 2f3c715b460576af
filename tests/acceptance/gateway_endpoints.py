"""The endpoints of the gateway, and names of nothing to ask them for."""

from __future__ import annotations

from uuid import uuid4

from tests.support.access_matrix import UNKNOWN_NAMES

from cograil.gateway.gateway_context import with_prefix
from cograil.gateway.gateway_readiness import ROUTERS

ENDPOINTS = [endpoint for router in with_prefix(ROUTERS) for endpoint in router.endpoints]
UNKNOWN = UNKNOWN_NAMES | {
    "request_id": str(uuid4()),
    "correlation_id": str(uuid4()),
    "idempotency_key": "nobodys",
}
