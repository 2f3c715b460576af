"""`approval`: a question that people answer."""

from __future__ import annotations

from dataclasses import replace

from cograil.definitions.approval_forms import read_form
from cograil.definitions.mapping_reader import MISSING, MappingReader, Range
from cograil.definitions.template_collector import TemplateCollector
from cograil.definitions.templates import compile_text
from cograil.model.workflow import Approval, Node

DEADLINE = Range(0, 315_360_000, above_least=True)  # ten years
ON_TIMEOUT = ("reject", "fail")


def read_approval(node: Node, above: MappingReader, holes: TemplateCollector) -> Node:
    """The node with its question; one that cannot be asked is reported and stands in as a blank."""
    if not above.require("approval", "say what is to be approved"):
        return node
    keys = MappingReader.of(above.get("approval"), above.at("approval"), above.report)
    keys.require("message", "say what is to be approved")
    text = keys.filled("message")
    message = holes.text(node.node_id, text or "", keys.at("message")) or compile_text("")
    has_deadline = any(one.get("timeout_seconds") is not MISSING for one in (keys, above))
    timeout_seconds = keys.number("timeout_seconds", node.timeout_seconds, DEADLINE)
    approvers = _read_approvers(keys)
    form = read_form(keys, "form")
    on_timeout = keys.choice("on_timeout", ON_TIMEOUT, "reject")
    keys.close()
    deadline = timeout_seconds if has_deadline else None
    return replace(node, approval=Approval(message, approvers, form, deadline, on_timeout))


def _read_approvers(keys: MappingReader) -> tuple[str, ...]:
    """Who may answer. An empty list is refused: it looks like nobody and would mean anybody."""
    if keys.get("approvers") == []:
        message = "approvers is empty; name somebody, or remove the key to let anybody answer"
        keys.report.add("invalid_value", message, keys.at("approvers"))
    return tuple(dict.fromkeys(keys.words("approvers") or ()))
