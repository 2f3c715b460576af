"""`subworkflow`: another workflow, run as a job of its own."""

from __future__ import annotations

from dataclasses import replace

from cograil.definitions.mapping_reader import MAX_VERSION, MISSING, MappingReader, Range, check_id
from cograil.definitions.template_collector import TemplateCollector
from cograil.definitions.templates import CompiledTemplate
from cograil.model.workflow import Node, Subworkflow
from cograil.strict_json import kind_of


def read_subworkflow(node: Node, above: MappingReader, holes: TemplateCollector) -> Node:
    """The node with the workflow it starts; without it, which is reported, where none is named."""
    if not above.require("subworkflow", "name the workflow to start"):
        return node
    keys = MappingReader.of(above.get("subworkflow"), above.at("subworkflow"), above.report)
    keys.require("workflow_id", "name the workflow to start")
    workflow_id = keys.text_or_none("workflow_id")
    is_pinned = keys.get("version") is not MISSING
    version = keys.integer("version", 1, Range(1, MAX_VERSION))
    inputs = _read_inputs(node.node_id, keys, holes)
    keys.close()
    if workflow_id is None or not check_id(
        workflow_id, keys.at("workflow_id"), keys.report, "workflow_id", at_key=False
    ):
        return node
    return replace(node, subworkflow=Subworkflow(workflow_id, version if is_pinned else None, inputs))


def _read_inputs(node_id: str, keys: MappingReader, holes: TemplateCollector) -> CompiledTemplate | None:
    inputs = keys.get("inputs")
    if inputs is MISSING:
        return None
    if not isinstance(inputs, dict):
        message = f"inputs must be a mapping, not {kind_of(inputs)}"
        keys.report.add("invalid_type", message, keys.at("inputs"))
        return None
    return holes.template(node_id, inputs, keys.at("inputs"))
