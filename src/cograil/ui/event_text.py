"""One-line texts of events and log lines."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from cograil.model.workflow import Json
from cograil.store.job_queries import View

MAX_SUMMARY = 160
LINE_KEYS = frozenset(("at", "level", "message", "text", "fields", "node_id", "attempt", "cursor"))


def event_summary(event: View) -> str:
    """Return an event in one line: its error, or its distinguishing fields."""
    data: Mapping[str, Json] = event["data"] or {}
    error = data.get("error")
    if isinstance(error, dict):
        return f"{error.get('code', 'failed')}: {error.get('message', '')}"[:MAX_SUMMARY]
    facts = [_fact(name, value) for name, value in data.items()]
    return ", ".join(fact for fact in facts if fact)[:MAX_SUMMARY]


def _fact(name: str, value: Json) -> str:
    if name in ("started_at", "first_node") or value in (None, "", [], {}):
        return ""
    if name == "attempt":
        return f"attempt {value}"
    if isinstance(value, float):
        return f"{name.replace('_', ' ')} {value:.3g}"
    if isinstance(value, str | int):
        return f"{name.replace('_', ' ')} {value}"
    return ""


def log_fields(line: Mapping[str, Json]) -> str:
    """Return the fields of a log line as `order=7 customer=acme`."""
    fields = {**(line.get("fields") or {}), **{key: line[key] for key in line if key not in LINE_KEYS}}
    return " ".join(f"{key}={_value(value)}" for key, value in fields.items())


def _value(value: Json) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
