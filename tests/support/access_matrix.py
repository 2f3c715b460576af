"""Paths and queries of routes with real or unknown names filled in, and responses that can be compared."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cograil.http.server.routing import Endpoint

UNKNOWN_ID = "01a1e50c-7310-7248-8dd1-729d3582eaf2"

# Names that exist for no tenant, by the parameter of a path.
UNKNOWN_NAMES = {
    "job_id": UNKNOWN_ID,
    "node_id": "greet",
    "workflow_id": "nobody_has_it",
    "subscription_id": UNKNOWN_ID,
    "delivery_id": UNKNOWN_ID,
    "task_id": f"999.{UNKNOWN_ID}",
    "name": "other_queue",
    "schedule": "other_schedule",
    "check": "schema",
    "handler": "elsewhere",
}


@dataclass
class MaskedReply:
    """A response: as it came, and with the names that were sent, ids and times masked."""

    status: int
    original: str = field(compare=False)
    text: str


def fill_path(endpoint: Endpoint, things: dict[str, str]) -> str:
    """The path of the endpoint with these names filled in."""
    return re.sub(r"\{(\w+)\}", lambda match: things[match[1]], endpoint.path)


def query_string(endpoint: Endpoint, things: dict[str, str]) -> str:
    """The query string with every parameter of the endpoint that has one of these names."""
    names = [] if endpoint.query is None else [name for name in endpoint.query.model_fields if name in things]
    return "&".join(f"{name}={things[name]}" for name in names)


def mask_reply(status: int, body: str, sent: list[str]) -> MaskedReply:
    """The response with the names that were sent, ids and times masked."""
    for thing in sorted(sent, key=len, reverse=True):
        body = body.replace(thing, "THING")
    text = re.sub(r'"request_id":"[^"]*"', "", body)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "HASH", text)
    text = re.sub(r'"whsec_[^"]*"', "SECRET", text)
    return MaskedReply(status, body, re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)|\d+(\.\d+)?", "N", text))
