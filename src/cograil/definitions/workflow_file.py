"""Reading a workflow file, or its stored document, into a checked Workflow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any

from cograil.definitions.approval_forms import check_forms
from cograil.definitions.checks import ReferenceChecker, check_graph, check_owner, check_recursion
from cograil.definitions.diagnostics import Diagnostics
from cograil.definitions.edges import connect
from cograil.definitions.graph import Graph
from cograil.definitions.inputs_section import read_inputs
from cograil.definitions.limits_section import read_limits
from cograil.definitions.mapping_reader import ID, MAX_VERSION, MISSING, MappingReader, NumberRange, check_id
from cograil.definitions.nodes import read_nodes
from cograil.definitions.partial_graph import PartialGraph
from cograil.definitions.schedules_section import KEY as SCHEDULES
from cograil.definitions.schedules_section import read_schedules
from cograil.definitions.template_collector import TemplateCollector
from cograil.definitions.templates import CompiledTemplate
from cograil.definitions.unlinked_nodes import UnlinkedNode
from cograil.definitions.unresolved_edges import find_doubts
from cograil.definitions.yaml_loader import Unreadable, read_yaml
from cograil.model.workflow import Branch, InputSpec, Json, Template, Workflow, WorkflowNode

MAX_NODES = 1_000
TIMEOUT = NumberRange(0, 315_360_000, excludes_minimum=True)  # ten years


def read_workflow(text: str, source: str = "", *, app: str | None = None) -> Workflow:
    """Read a workflow from YAML text.

    Raises InvalidWorkflow with all problems, each with its line and column; `source` is the file name in that
    error. `app` is the app that owns the workflow: only its own workflows may use its handlers.
    """
    diagnostics = Diagnostics(is_new=True)
    try:
        document = read_yaml(text, diagnostics)
    except Unreadable:
        raise diagnostics.error(source) from None
    return _build(document, diagnostics, source, app)


def load_workflow(document: Mapping[str, Json], app: str | None = None) -> Workflow:
    """Load the workflow of a stored document.

    Raises InvalidWorkflow, without lines and columns, for a document of an incompatible language version.
    """
    return _build(dict(document), Diagnostics(), app=app)


def _build(document: Json, diagnostics: Diagnostics, source: str = "", app: str | None = None) -> Workflow:
    top = MappingReader.of(document, "", diagnostics)
    templates = TemplateCollector(diagnostics)
    workflow = _with_schedules(_read_top(top, templates), top)
    unlinked_nodes = _read_unlinked_nodes(top, templates)
    top.close()
    if len(unlinked_nodes) > MAX_NODES:
        raise diagnostics.error(source)
    graph = connect(unlinked_nodes, diagnostics)
    outlook = PartialGraph(unlinked_nodes, graph, find_doubts(unlinked_nodes, graph, document, diagnostics))
    check_graph(unlinked_nodes, outlook, diagnostics)
    check_recursion(workflow.workflow_id, unlinked_nodes, diagnostics)
    check_forms(unlinked_nodes, diagnostics)
    if diagnostics.is_new:
        check_owner(workflow.workflow_id, unlinked_nodes, app, diagnostics)
    references = ReferenceChecker(unlinked_nodes, outlook, workflow.inputs, diagnostics)
    for collected in templates.collected_templates:
        references.check(collected)
    if diagnostics.problems:
        raise diagnostics.error(source)
    nodes = _nodes(unlinked_nodes, graph)
    document = {key: value for key, value in document.items() if key != SCHEDULES}
    return replace(workflow, nodes=nodes, document=document, digest=digest_of(document), app=app)


def _read_top(top: MappingReader, templates: TemplateCollector) -> Workflow:
    """Return the workflow without its nodes."""
    workflow_id = _read_workflow_id(top)
    top.flag("is_active", True)
    has_timeout = top.get("timeout_seconds") is not MISSING
    timeout_seconds = top.number("timeout_seconds", 1, TIMEOUT)
    return Workflow(
        workflow_id,
        version=top.integer("version", 1, NumberRange(1, MAX_VERSION)),
        name=top.text("name", workflow_id, max_length=128),
        nodes={},
        inputs=_read_inputs(top),
        description=top.text("description"),
        timeout_seconds=timeout_seconds if has_timeout else None,
        fail_fast=top.flag("fail_fast", False),
        limit=read_limits(None, top, templates),
        outputs=_read_outputs(top, templates),
    )


def _read_workflow_id(top: MappingReader) -> str:
    if not top.require("workflow_id", "give the workflow an id"):
        return ""
    workflow_id = top.text_or_none("workflow_id")
    if workflow_id is not None:
        check_id(workflow_id, top.at("workflow_id"), top.diagnostics, "workflow_id", at_key=False)
    return workflow_id or ""


def _read_inputs(top: MappingReader) -> dict[str, InputSpec] | None:
    section = top.section("inputs")
    return read_inputs(section) if section is not None and section.is_there else None


def _read_outputs(top: MappingReader, templates: TemplateCollector) -> Mapping[str, Template] | None:
    section = top.section("outputs")
    return _read_output_templates(section, templates) if section is not None and section.is_there else None


def _read_output_templates(
    section: MappingReader, templates: TemplateCollector
) -> dict[str, CompiledTemplate]:
    """Return the declared outputs; problems are reported."""
    collected_templates: dict[str, CompiledTemplate] = {}
    for name, value, pointer in section.items():
        if not ID.fullmatch(name):
            rule = "1 to 64 letters, digits, `_`, `.` and `-`, the first a letter or digit"
            section.diagnostics.add(
                "invalid_id", f"output {name[:80]!r} must be {rule}", pointer, at_key=True
            )
        template = templates.template(None, value, pointer, at_end=True)
        if template is not None:
            collected_templates[name] = template
    return collected_templates


def _with_schedules(workflow: Workflow, top: MappingReader) -> Workflow:
    section = top.section(SCHEDULES)
    if section is None or not section.is_there:
        return workflow
    return replace(workflow, schedules=read_schedules(section, workflow))


def _read_unlinked_nodes(top: MappingReader, templates: TemplateCollector) -> dict[str, UnlinkedNode]:
    section = top.section("nodes")
    if top.is_there and (section is None or (section.is_there and not section.values)):
        top.diagnostics.add("dag_empty", "the workflow has no nodes; add at least one", "/nodes", at_key=True)
    if section is None:
        return {}
    if len(section.values) > MAX_NODES:
        message = f"the workflow has {len(section.values)} nodes; at most {MAX_NODES} are allowed"
        top.diagnostics.add("dag_too_large", message, "/nodes", at_key=True)
    return read_nodes(section, templates)


def _nodes(unlinked_nodes: Mapping[str, UnlinkedNode], graph: Graph) -> dict[str, WorkflowNode]:
    return {
        node_id: replace(
            unlinked_nodes[node_id].node,
            branches=tuple(
                _to_nodes(branch, unlinked_nodes) for branch in unlinked_nodes[node_id].node.branches
            ),
            all_of=graph.edges[node_id][0],
            any_of=graph.edges[node_id][1],
            successors=graph.successors[node_id],
        )
        for node_id in graph.order
    }


def _to_nodes(branch: Branch, unlinked_nodes: Mapping[str, UnlinkedNode]) -> Branch:
    """Return the branch without targets that have no node, such as the implied END."""
    return replace(branch, targets=tuple(target for target in branch.targets if target in unlinked_nodes))


def digest_of(document: Json) -> str:
    """Return the digest of a document, which does not depend on the order of keys."""
    canonical = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a workflow file, as a new object."""
    text = files("cograil.definitions").joinpath("workflow.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
