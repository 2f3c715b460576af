"""A workflow file, or the document stored from it, to a checked Workflow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from cograil.definitions.app_ownership import check_owner
from cograil.definitions.approval_forms import check_forms
from cograil.definitions.checks import ReferenceChecker, check_graph, check_recursion
from cograil.definitions.diagnostics import Diagnostics
from cograil.definitions.edges import connect
from cograil.definitions.graph import Graph
from cograil.definitions.inputs_section import read_inputs
from cograil.definitions.limits_section import read_limits
from cograil.definitions.mapping_reader import MAX_VERSION, MISSING, MappingReader, Range, check_id
from cograil.definitions.nodes import read_nodes
from cograil.definitions.outputs_section import read_outputs
from cograil.definitions.partial_graph import Outlook
from cograil.definitions.schedules_section import KEY as SCHEDULES
from cograil.definitions.schedules_section import read_schedules
from cograil.definitions.template_collector import TemplateCollector
from cograil.definitions.unlinked_nodes import UnlinkedNode
from cograil.definitions.unresolved_edges import find_doubts
from cograil.definitions.yaml_loader import Unreadable, read_yaml
from cograil.model.workflow import Branch, InputSpec, Json, Node, Template, Workflow

MAX_NODES = 1_000
TIMEOUT = Range(0, 315_360_000, above_least=True)  # ten years


def read_workflow(text: str, source: str = "", *, app: str | None = None) -> Workflow:
    """The workflow in this YAML text.

    Raises InvalidWorkflow with every problem that was found, each with its line and column;
    `source` is the name of the file in that error. `app` is the app whose own workflow this is: only there
    may handlers of an app be named.
    """
    report = Diagnostics(is_new=True)
    try:
        document = read_yaml(text, report)
    except Unreadable:
        raise report.error(source) from None
    return _build(document, report, source, app)


def load_workflow(document: Mapping[str, Json], app: str | None = None) -> Workflow:
    """The workflow of a stored document: the same as read_workflow made from its text.

    Raises InvalidWorkflow, without lines and columns, when another version of the language wrote it.
    """
    return _build(dict(document), Diagnostics(), app=app)


def _build(document: Json, report: Diagnostics, source: str = "", app: str | None = None) -> Workflow:
    top = MappingReader.of(document, "", report)
    holes = TemplateCollector(report)
    workflow = _with_schedules(_read_top(top, holes), top)
    drafts = _read_drafts(top, holes)
    top.close()
    if len(drafts) > MAX_NODES:
        raise report.error(source)
    graph = connect(drafts, report)
    outlook = Outlook(drafts, graph, find_doubts(drafts, graph, document, report))
    check_graph(drafts, outlook, report)
    check_recursion(workflow.workflow_id, drafts, report)
    check_forms(drafts, report)
    if report.is_new:
        check_owner(workflow.workflow_id, drafts, app, report)
    references = ReferenceChecker(drafts, outlook, workflow.inputs, report)
    for hole in holes.found:
        references.check(hole)
    if report.problems:
        raise report.error(source)
    nodes = _nodes(drafts, graph)
    document = {key: value for key, value in document.items() if key != SCHEDULES}
    return replace(workflow, nodes=nodes, document=document, digest=digest_of(document), app=app)


def _read_top(top: MappingReader, holes: TemplateCollector) -> Workflow:
    """All but the nodes."""
    workflow_id = _read_workflow_id(top)
    top.flag("is_active", True)
    has_timeout = top.get("timeout_seconds") is not MISSING
    timeout_seconds = top.number("timeout_seconds", 1, TIMEOUT)
    return Workflow(
        workflow_id,
        version=top.integer("version", 1, Range(1, MAX_VERSION)),
        name=top.text("name", workflow_id, longest=128),
        nodes={},
        inputs=_read_inputs(top),
        description=top.text("description"),
        timeout_seconds=timeout_seconds if has_timeout else None,
        fail_fast=top.flag("fail_fast", False),
        limit=read_limits(None, top, holes),
        outputs=_read_outputs(top, holes),
    )


def _read_workflow_id(top: MappingReader) -> str:
    if not top.require("workflow_id", "a workflow needs a name to be started by"):
        return ""
    workflow_id = top.text_or_none("workflow_id")
    if workflow_id is not None:
        check_id(workflow_id, top.at("workflow_id"), top.report, "workflow_id", at_key=False)
    return workflow_id or ""


def _read_inputs(top: MappingReader) -> dict[str, InputSpec] | None:
    section = top.section("inputs")
    return read_inputs(section) if section is not None and section.is_there else None


def _read_outputs(top: MappingReader, holes: TemplateCollector) -> Mapping[str, Template] | None:
    section = top.section("outputs")
    return read_outputs(section, holes) if section is not None and section.is_there else None


def _with_schedules(workflow: Workflow, top: MappingReader) -> Workflow:
    section = top.section(SCHEDULES)
    if section is None or not section.is_there:
        return workflow
    return replace(workflow, schedules=read_schedules(section, workflow))


def _read_drafts(top: MappingReader, holes: TemplateCollector) -> dict[str, UnlinkedNode]:
    section = top.section("nodes")
    if top.is_there and (section is None or (section.is_there and not section.values)):
        top.report.add("dag_empty", "the workflow has no nodes; give it at least one", "/nodes", at_key=True)
    if section is None:
        return {}
    if len(section.values) > MAX_NODES:
        message = f"the workflow has {len(section.values)} nodes; at most {MAX_NODES} are allowed"
        top.report.add("dag_too_large", message, "/nodes", at_key=True)
    return read_nodes(section, holes)


def _nodes(drafts: Mapping[str, UnlinkedNode], graph: Graph) -> dict[str, Node]:
    return {
        node_id: replace(
            drafts[node_id].node,
            branches=tuple(_to_nodes(branch, drafts) for branch in drafts[node_id].node.branches),
            all_of=graph.edges[node_id][0],
            any_of=graph.edges[node_id][1],
            successors=graph.successors[node_id],
        )
        for node_id in graph.order
    }


def _to_nodes(branch: Branch, drafts: Mapping[str, UnlinkedNode]) -> Branch:
    """The branch without a pointer to the implied END, for which there is no node."""
    return replace(branch, targets=tuple(target for target in branch.targets if target in drafts))


def digest_of(document: Json) -> str:
    """The same for the same document, however its keys are ordered."""
    canonical = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(canonical.encode()).hexdigest()
