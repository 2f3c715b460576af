"""Fan-outs and fan-ins: create children in chunks, and aggregate their outputs."""

from __future__ import annotations

import math
from collections.abc import Iterable

import orjson

from cograil.engine.attempts import count_failed_child, dispatch
from cograil.engine.limit_keys import limit_of
from cograil.engine.working_copy import WorkingCopy, as_error, dump
from cograil.model.evaluation_budget import AllowanceSpent, ExpressionTooCostly
from cograil.model.job import NodeWrite, TaskLimit
from cograil.model.workflow import Json, NodeType, RenderError, WorkflowNode
from cograil.strict_json import kind_of

Child = tuple[str, str, bytes | None]  # node_id, status, output


def begin_fan_out(job: WorkingCopy, write: NodeWrite, node: WorkflowNode) -> None:
    """Render the list and create the first children. An empty list completes at once."""
    try:
        items = _items(job, node)
        write.input = dump({"source": items})
    except RenderError as error:
        job.fail(write, as_error(error))
        return
    write.state.total = len(items)
    write.state.started_at = job.now
    job.move(write, "expand")
    job.event("node_started", node.node_id, children=len(items))
    expand(job, write, node)


def continue_fan_out(job: WorkingCopy, node: WorkflowNode) -> None:
    """Create the next chunk of children."""
    if job.status_of(node.node_id) == "running":
        expand(job, job.row(node.node_id), node)


def expand(job: WorkingCopy, write: NodeWrite, node: WorkflowNode) -> None:
    """Create at most one chunk of children; request another pass when there are more."""
    state = write.state
    total = state.total or 0
    last = min(state.expanded + job.bounds.chunk, total)
    size, first = 0, state.expanded
    while state.expanded < last and size <= job.bounds.chunk_bytes:
        is_spent = job.budget.is_spent and node.node_id not in job.too_costly
        # At least one child: the source alone may use all steps, and would again in the next pass.
        child = None if is_spent and state.expanded > first else _create_child(job, node, state.expanded)
        if child is None:
            job.leave(node.node_id)
            return
        size += len(child.input or b"")
        state.expanded += 1
    if state.expanded < total:
        job.to_expand.append(node.node_id)


def _create_child(job: WorkingCopy, node: WorkflowNode, index: int) -> NodeWrite | None:
    """Create the next child; None when this pass has no steps left to evaluate its params."""
    job.budget.begin_node()
    child = job.row(f"{node.node_id}__{index}", parent=node.node_id, index=index)
    job.move(child, "ready")
    try:
        begin_child(job, child, node)
    except AllowanceSpent:
        del job.writes[child.state.node_id]
        return None
    return child


def begin_child(job: WorkingCopy, child: NodeWrite, node: WorkflowNode) -> None:
    """Render the params of a ready child from its item and dispatch it. It fails when they cannot be rendered.

    After a child that was too costly, the next ones in this pass fail without being evaluated.
    """
    try:
        if node.node_id in job.too_costly:
            raise job.too_costly[node.node_id]
        params = _child_params(job, node, child.state.index or 0)
        limit = limit_of_child(job, node, child.state.index or 0)
    except RenderError as error:
        if isinstance(error, ExpressionTooCostly):
            job.too_costly[node.node_id] = error
        job.fail(child, as_error(error))
        parent = job.row(node.node_id).state
        parent.ended += 1
        count_failed_child(parent, child.state.node_id, child.state.error)
        return
    dispatch(job, child, node, params, limit)


def _child_params(job: WorkingCopy, node: WorkflowNode, index: int) -> bytes:
    items = _items(job, node)
    if index >= len(items):
        # The source may read a node of an any_of that ended in the meantime.
        raise RenderError("fanout_source_changed", f"source of {node.node_id} has no item {index} any more")
    if node.params is None:
        return dump({})
    return dump(job.render(node.params, node, {"item": items[index], "index": index}))


def limit_of_child(job: WorkingCopy, node: WorkflowNode, index: int) -> TaskLimit | None:
    """Return the limit of the task of a child; None without one. Raises RenderError."""
    if node.limit is None:
        return None
    return limit_of(job, node, {"item": _items(job, node)[index], "index": index})


def _items(job: WorkingCopy, node: WorkflowNode) -> list[Json]:
    if node.node_id not in job.items:
        job.items[node.node_id] = _render_items(job, node)
    return job.items[node.node_id]


def _render_items(job: WorkingCopy, node: WorkflowNode) -> list[Json]:
    assert node.source is not None
    items = job.render(node.source, node)
    if not isinstance(items, list):
        raise RenderError("fanout_not_a_list", f"source of {node.node_id} is {kind_of(items)}, not a list")
    if len(items) > job.bounds.fan_out_items:
        raise RenderError(
            "fanout_too_large",
            f"source of {node.node_id} has {len(items)} items, over {job.bounds.fan_out_items}",
        )
    return items


def end_fan_out(job: WorkingCopy, node_id: str) -> None:
    """Complete a fan-out when its last child has ended."""
    state = job.find(node_id)
    if state is None or state.status != "running" or state.ended < (state.total or 0):
        return
    write = job.row(node_id)
    error = write.state.error
    names = [f"{node_id}__{index}" for index in range(state.total or 0)]
    job.complete(write, dump({"fan_out_count": len(names), "child_node_ids": names}))
    write.state.error = error


def fan_outs_before(job: WorkingCopy, node: WorkflowNode) -> list[str]:
    """Return the completed fan-outs whose children this fan-in aggregates."""
    return [
        name
        for name in node.predecessors
        if job.workflow.nodes[name].type is NodeType.FAN_OUT and job.status_of(name) == "completed"
    ]


def begin_fan_in(job: WorkingCopy, write: NodeWrite, node: WorkflowNode) -> None:
    """Aggregate the children. A failed child of a required fan-out fails the fan-in."""
    fan_outs = fan_outs_before(job, node)
    failed = [name for name in fan_outs if job.workflow.nodes[name].required and _failures(job, name)]
    if failed:
        job.fail(write, _children_failed(job, failed))
        return
    children = [child for name in fan_outs for child in _children(job, name)]
    outputs = [output for _, status, output in children if status == "completed"]
    if sum(len(output or b"") for output in outputs) > job.bounds.fan_in_bytes:
        message = f"the children returned more than {job.bounds.fan_in_bytes} bytes in all"
        job.fail(write, {"code": "result_too_large", "message": message})
        return
    try:
        job.complete(write, aggregate(node.aggregation, outputs))
    except RenderError as error:
        job.fail(write, as_error(error))


def _children(job: WorkingCopy, fan_out: str) -> Iterable[Child]:
    """Yield the children in order, as stored or as ended in this pass."""
    for name, status, output in job.outputs.children[fan_out]:
        write = job.writes.get(name)
        yield (name, status, output) if write is None else (name, write.state.status, write.output)


def _failures(job: WorkingCopy, fan_out: str) -> int:
    state = job.find(fan_out)
    return 0 if state is None else state.failed


def _children_failed(job: WorkingCopy, fan_outs: list[str]) -> dict[str, Json]:
    errors = [state.error for name in fan_outs if (state := job.find(name)) is not None]
    return {
        "code": "children_failed",
        "message": "; ".join(error["message"] for error in errors),
        "children": [child for error in errors for child in error["children"]],
        "first": errors[0]["first"],
    }


def aggregate(mode: str, outputs: list[bytes | None]) -> bytes:
    """Return the output of a fan-in from the ordered outputs of its children. Raises RenderError."""
    match mode:
        case "collect":
            return dump({"results": [_fragment(output) for output in outputs], "count": len(outputs)})
        case "first" | "last":
            chosen = (outputs[0] if mode == "first" else outputs[-1]) if outputs else None
            return dump({"result": _fragment(chosen), "count": len(outputs)})
        case "concat":
            values = [value for output in outputs for value in _lists(_parse(output))]
            return dump({"results": values, "count": len(values)})
        case "sum":
            return dump({"total": _total(outputs), "count": len(outputs)})
    raise RenderError("bad_aggregation", f"unknown aggregation {mode!r}")


def _fragment(output: bytes | None) -> Json:
    return None if output is None else orjson.Fragment(output)


def _parse(output: bytes | None) -> Json:
    return None if output is None else orjson.loads(output)


def _lists(output: Json) -> Iterable[Json]:
    """Yield the elements of the lists among the top-level values."""
    if not isinstance(output, dict):
        return
    for value in output.values():
        if isinstance(value, list):
            yield from value


def _total(outputs: list[bytes | None]) -> float:
    total = sum(number for output in outputs for number in _numbers(_parse(output)))
    if isinstance(total, int) and abs(total) >= 2**63:
        raise RenderError("invalid_number", "the sum does not fit into 64 bits")
    if not math.isfinite(total):
        raise RenderError("invalid_number", "the sum is too large for a number")
    return total


def _numbers(output: Json) -> Iterable[float]:
    """Yield the numbers among the top-level values. Booleans are not numbers."""
    if not isinstance(output, dict):
        return
    for value in output.values():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield value
