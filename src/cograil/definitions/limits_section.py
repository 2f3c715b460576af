"""The `limits` key: a maximum concurrency, and a maximum rate of starts.

limits: {concurrency: 3, key: "{{ inputs.tenant }}"}        three for each tenant
limits: {rate: 100/m}                                       or rate: {count: 100, per_seconds: 60}
"""

from __future__ import annotations

import re

from cograil.definitions.mapping_reader import MISSING, MappingReader, NumberRange
from cograil.definitions.template_collector import TemplateCollector
from cograil.model.workflow import Limit
from cograil.strict_json import kind_of

COUNT = NumberRange(1, 1_000_000)
SPAN = NumberRange(0, 86_400, excludes_minimum=True)

_RATE = re.compile(r"([1-9][0-9]{0,5}|1000000)/([smh])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def read_limits(
    node_id: str | None, parent: MappingReader, templates: TemplateCollector, *, in_children: bool = False
) -> Limit | None:
    """Return the limit of a node's tasks or, without a node, of the workflow's jobs; None without a limit."""
    keys = parent.section("limits")
    if keys is None:
        return None
    has_concurrency, has_rate = keys.get("concurrency") is not MISSING, keys.get("rate") is not MISSING
    if keys.is_there and not (has_concurrency or has_rate):
        keys.diagnostics.add("missing_key", "limits needs concurrency or rate", keys.pointer, at_key=True)
    rate, per_seconds = _read_rate(keys) if has_rate else (None, 1.0)
    key = keys.filled("key")
    limit = Limit(
        keys.integer("concurrency", 1, COUNT) if has_concurrency else None,
        rate,
        per_seconds,
        None if key is None else templates.template(node_id, key, keys.at("key"), in_children=in_children),
    )
    keys.close()
    return limit


def _read_rate(parent: MappingReader) -> tuple[float, float]:
    """Return the count and its period in seconds."""
    rate, pointer = parent.get("rate"), parent.at("rate")
    if isinstance(rate, dict):
        return _read_span(MappingReader.of(rate, pointer, parent.diagnostics))
    match = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if match:
        return float(match[1]), _SECONDS[match[2]]
    what = "a text such as 10/s, 100/m or 1000/h, or a mapping with count and per_seconds"
    if isinstance(rate, str):
        parent.diagnostics.add("invalid_value", f"rate must be {what}, not {rate[:80]!r}", pointer)
    else:
        parent.diagnostics.add("invalid_type", f"rate must be {what}, not {kind_of(rate)}", pointer)
    return 1.0, 1.0


def _read_span(keys: MappingReader) -> tuple[float, float]:
    keys.require("count", "give the number of starts")
    keys.require("per_seconds", "give the period in seconds")
    rate = float(keys.integer("count", 1, COUNT)), keys.number("per_seconds", 1.0, SPAN)
    keys.close()
    return rate
