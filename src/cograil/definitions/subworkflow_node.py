"""The `subworkflow` node: another workflow, run as its own job."""

from __future__ import annotations

from dataclasses import replace

from cograil.definitions.mapping_reader import MAX_VERSION, MISSING, MappingReader, NumberRange, check_id
from cograil.definitions.template_collector import TemplateCollector
from cograil.definitions.templates import CompiledTemplate
from cograil.model.workflow import Subworkflow, WorkflowNode
from cograil.strict_json import kind_of


def read_subworkflow(node: WorkflowNode, parent: MappingReader, templates: TemplateCollector) -> WorkflowNode:
    """Return the node with the workflow that it starts. A missing or invalid workflow id is reported."""
    if not parent.require("subworkflow", "give the id of the workflow to start"):
        return node
    keys = MappingReader.of(parent.get("subworkflow"), parent.at("subworkflow"), parent.diagnostics)
    keys.require("workflow_id", "give the id of the workflow to start")
    workflow_id = keys.text_or_none("workflow_id")
    is_pinned = keys.get("version") is not MISSING
    version = keys.integer("version", 1, NumberRange(1, MAX_VERSION))
    inputs = _read_inputs(node.node_id, keys, templates)
    keys.close()
    if workflow_id is None or not check_id(
        workflow_id, keys.at("workflow_id"), keys.diagnostics, "workflow_id", at_key=False
    ):
        return node
    return replace(node, subworkflow=Subworkflow(workflow_id, version if is_pinned else None, inputs))


def _read_inputs(node_id: str, keys: MappingReader, templates: TemplateCollector) -> CompiledTemplate | None:
    inputs = keys.get("inputs")
    if inputs is MISSING:
        return None
    if not isinstance(inputs, dict):
        message = f"inputs must be a mapping, not {kind_of(inputs)}"
        keys.diagnostics.add("invalid_type", message, keys.at("inputs"))
        return None
    return templates.template(node_id, inputs, keys.at("inputs"))
