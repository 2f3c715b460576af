"""The `wait` node: waits for a number of seconds, or until a time."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime

from cograil.definitions.mapping_reader import MISSING, MappingReader, NumberRange
from cograil.definitions.template_collector import TemplateCollector
from cograil.model.workflow import Json, WorkflowNode
from cograil.strict_json import kind_of

MAX_WAIT = NumberRange(0, 315_360_000)  # ten years

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)")


def read_wait(node: WorkflowNode, parent: MappingReader, templates: TemplateCollector) -> WorkflowNode:
    """Return the node with its `seconds` or `until`."""
    if not parent.require("wait", "give seconds or until"):
        return node
    keys = MappingReader.of(parent.get("wait"), parent.at("wait"), parent.diagnostics)
    seconds, until = keys.get("seconds"), keys.get("until")
    keys.close()
    if isinstance(parent.get("wait"), dict) and (seconds is MISSING) == (until is MISSING):
        keys.diagnostics.add(
            "invalid_value", "wait needs exactly one of seconds and until", keys.pointer, at_key=True
        )
    if seconds is not MISSING and _are_seconds(seconds, keys):
        node = replace(node, wait_seconds=templates.template(node.node_id, seconds, keys.at("seconds")))
    if until is not MISSING and _is_time(until, keys):
        node = replace(node, wait_until=templates.template(node.node_id, until, keys.at("until")))
    return node


def _are_seconds(value: Json, keys: MappingReader) -> bool:
    if isinstance(value, str) and "{{" in value:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        message = f"seconds must be a number or a template, not {kind_of(value)}"
        keys.diagnostics.add("invalid_type", message, keys.at("seconds"))
        return False
    if value not in MAX_WAIT:
        keys.diagnostics.add("invalid_value", f"seconds must be {MAX_WAIT}, not {value}", keys.at("seconds"))
        return False
    return True


def _is_time(value: Json, keys: MappingReader) -> bool:
    if not isinstance(value, str):
        message = f"until must be a time or a template, not {kind_of(value)}"
        keys.diagnostics.add("invalid_type", message, keys.at("until"))
        return False
    if "{{" in value or _is_rfc3339(value):
        return True
    message = f"until must be a time with a time zone, such as 2030-01-31T08:00:00Z, not {value[:80]!r}"
    keys.diagnostics.add("invalid_value", message, keys.at("until"))
    return False


def _is_rfc3339(text: str) -> bool:
    if not _TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
