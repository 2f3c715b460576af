"""The `approval` node: a request that a person approves or rejects."""

from __future__ import annotations

from dataclasses import replace

from cograil.definitions.approval_forms import read_form
from cograil.definitions.mapping_reader import MISSING, MappingReader, NumberRange
from cograil.definitions.template_collector import TemplateCollector
from cograil.definitions.templates import compile_text
from cograil.model.workflow import Approval, WorkflowNode

DEADLINE = NumberRange(0, 315_360_000, excludes_minimum=True)  # ten years
ON_TIMEOUT = ("reject", "fail")


def read_approval(node: WorkflowNode, parent: MappingReader, templates: TemplateCollector) -> WorkflowNode:
    """Return the node with its approval. Problems are reported; an invalid message becomes an empty one."""
    if not parent.require("approval", "describe what needs approval"):
        return node
    keys = MappingReader.of(parent.get("approval"), parent.at("approval"), parent.diagnostics)
    keys.require("message", "describe what needs approval")
    text = keys.filled("message")
    message = templates.text(node.node_id, text or "", keys.at("message")) or compile_text("")
    has_deadline = any(reader.get("timeout_seconds") is not MISSING for reader in (keys, parent))
    timeout_seconds = keys.number("timeout_seconds", node.timeout_seconds, DEADLINE)
    approvers = _read_approvers(keys)
    form = read_form(keys, "form")
    on_timeout = keys.choice("on_timeout", ON_TIMEOUT, "reject")
    keys.close()
    deadline = timeout_seconds if has_deadline else None
    return replace(node, approval=Approval(message, approvers, form, deadline, on_timeout))


def _read_approvers(keys: MappingReader) -> tuple[str, ...]:
    """Return the approvers. An empty list is an error, because its meaning is ambiguous: no user, or any
    user.
    """
    if keys.get("approvers") == []:
        message = "approvers is empty; name an approver, or remove the key to let any user answer"
        keys.diagnostics.add("invalid_value", message, keys.at("approvers"))
    return tuple(dict.fromkeys(keys.words("approvers") or ()))
