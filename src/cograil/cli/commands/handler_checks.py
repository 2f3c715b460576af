"""Checks of `cograil check --app`: unknown handlers, and params that do not match handler signatures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from cograil.definitions.diagnostics import Diagnostics, child
from cograil.definitions.template_collector import strings_in
from cograil.definitions.yaml_loader import read_yaml
from cograil.errors import Problem
from cograil.model.workflow import CONTAINER, Workflow
from cograil.runners.handler_params import ParamProblem
from cograil.runners.handler_registry import HandlerSpec, Registry

OWN_TYPES = ("http", "container")  # the workflow parser checks their keys


def unknown_handlers(workflow: Workflow, registry: Registry, apps: Sequence[str]) -> Iterator[str]:
    """Yield a message for each node whose handler is neither built in nor in these modules."""
    for node in workflow.nodes.values():
        if node.handler and node.handler != CONTAINER and registry.get(node.handler) is None:
            close = get_close_matches(node.handler, registry.names(), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            modules = ", ".join(apps)
            yield f"node {node.node_id!r}: no handler {node.handler!r} in cograil or in {modules}{hint}"


def param_problems(workflow: Workflow, source: str, registry: Registry) -> list[Problem]:
    """Return a problem for each param in this file that its handler would reject, with line and column."""
    report = Diagnostics()
    document = read_yaml(source, report)
    for node_id, written in document["nodes"].items():
        node = workflow.nodes.get(node_id)
        spec = None if node is None else registry.get(node.handler)
        if spec is None or not isinstance(written, dict) or written.get("type") in OWN_TYPES:
            continue
        holder, pointer = written, child("/nodes", node_id)
        if isinstance(written.get("task"), dict):
            holder, pointer = written["task"], child(pointer, "task")
        params = holder.get("params") or {}
        if isinstance(params, dict):
            _check_params(report, spec, params, pointer)
    return list(report.error().problems)


def _check_params(report: Diagnostics, spec: HandlerSpec, params: dict[str, Any], pointer: str) -> None:
    rendered = {name for name, value in params.items() if _has_template(value)}
    literals = {name: value for name, value in params.items() if name not in rendered}
    for problem in spec.params.check(literals, rendered):
        _report(report, spec, problem, params, pointer)


def _has_template(value: Any) -> bool:
    return any("{{" in text for text, _ in strings_in(value, ""))


def _report(
    report: Diagnostics, spec: HandlerSpec, problem: ParamProblem, params: dict[str, Any], pointer: str
) -> None:
    location = child(pointer, "params") if "params" in _keys_at(report, pointer) else pointer
    name = problem.path[0] if problem.path else ""
    if problem.kind == "missing" and len(problem.path) == 1:
        message = f"the handler {spec.name!r} needs the param {name!r}"
        report.add("missing_param", message, location, at_key=True)
    elif problem.kind == "extra_forbidden" and len(problem.path) == 1:
        unused = [param for param in spec.params.names if param not in params]
        message = f"{name!r} is not a param of the handler {spec.name!r}"
        report.add("unknown_param", message, child(location, name), at_key=True, did_you_mean=(name, unused))
    else:
        path = ".".join(problem.path)
        message = f"the param {path!r} of the handler {spec.name!r} is invalid: {problem.message}"
        for key in problem.path:
            location = child(location, key)
        report.add("invalid_param", message, location)


def _keys_at(report: Diagnostics, pointer: str) -> set[str]:
    """Return the keys of the mapping at this pointer."""
    prefix = f"{pointer}/"
    return {key[len(prefix) :].split("/")[0] for key in report.keys if key.startswith(prefix)}
