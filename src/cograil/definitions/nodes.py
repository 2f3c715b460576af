"""The `nodes` section: one reader for each type of node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cograil.definitions.approval_node import read_approval
from cograil.definitions.branches import ParsedBranch, read_branches, read_condition
from cograil.definitions.container_node import read_container
from cograil.definitions.http_node import read_http
from cograil.definitions.limits_section import read_limits
from cograil.definitions.mapping_reader import MISSING, MappingReader, NumberRange, check_id
from cograil.definitions.subworkflow_node import read_subworkflow
from cograil.definitions.template_collector import TemplateCollector
from cograil.definitions.templates import CompiledTemplate
from cograil.definitions.unlinked_nodes import UnlinkedNode, read_dependencies, read_next
from cograil.definitions.wait_node import read_wait
from cograil.model.workflow import (
    CONTAINER,
    DEFAULT_QUEUE,
    DEFAULT_TIMEOUT_SECONDS,
    NodeType,
    RetryPolicy,
    WorkflowNode,
)
from cograil.strict_json import kind_of

TIMEOUT = NumberRange(0, 86_400, excludes_minimum=True)
LONG_TIMEOUT = NumberRange(
    0, 3 * 86_400, excludes_minimum=True
)  # a container may run for a day, plus the transfer of files
DELAY = NumberRange(0, 86_400)
AGGREGATIONS = ("collect", "concat", "sum", "first", "last")
BACKOFFS = ("fixed", "linear", "exponential")

HTTP = "http"  # types in the file only; the engine sees tasks
WORK = (HTTP, CONTAINER)
TYPES = (*NodeType, *WORK)

_BELONGS_TO = {
    "handler": "a task (for a fan_out, put it under `task`)",
    "params": "a task (for a fan_out, put them under `task`)",
    "condition": "a node of `type: conditional`",
    "condition_field": "a node of `type: conditional`",
    "branches": "a node of `type: conditional`",
    "source": "a node of `type: fan_out`",
    "task": "a node of `type: fan_out`",
    "aggregation": "a node of `type: fan_in`",
    "wait": "a node of `type: wait`",
    "http": "a node of `type: http`",
    "container": "a node of `type: container`",
    "approval": "a node of `type: approval`",
    "subworkflow": "a node of `type: subworkflow`",
    "limits": "a task, an http or container node or a fan_out (for its children), or to the workflow",
    "when": "any node except start and end, which always run",
    "next": "any node except an end and a conditional, whose branches have their own `next`",
    "depends_on": "any node except a start, which is the first",
}


def read_nodes(section: MappingReader, templates: TemplateCollector) -> dict[str, UnlinkedNode]:
    """Return all nodes by id; problems are reported."""
    unlinked_nodes = {}
    for node_id, value, pointer in section.items():
        check_id(node_id, pointer, section.diagnostics, "node", at_key=True)
        unlinked_nodes[node_id] = _read_node(
            node_id, MappingReader.of(value, pointer, section.diagnostics), templates
        )
    return unlinked_nodes


def _read_node(node_id: str, keys: MappingReader, templates: TemplateCollector) -> UnlinkedNode:
    kind = _read_type(keys)
    node = WorkflowNode(
        node_id,
        NodeType.TASK if kind in (None, *WORK) else NodeType(kind),
        required=keys.flag("required", True),
        description=keys.text("description"),
        queue=_read_queue(keys, DEFAULT_QUEUE),
        has_own_queue=_has_queue(keys),
        timeout_seconds=_read_timeout(kind, keys),
        retry=read_retry(keys, RetryPolicy()),
    )
    if kind is None:  # its other keys cannot be checked, but its edges count
        return UnlinkedNode(node, keys.pointer, next=read_next(keys), depends_on=read_dependencies(keys))
    unlinked = _READERS[kind](_Reading(_with_shared_keys(kind, node, keys, templates), keys, templates))
    if kind not in (NodeType.END, NodeType.CONDITIONAL):
        unlinked = replace(unlinked, next=read_next(keys))
    if kind != NodeType.START:
        unlinked = replace(unlinked, depends_on=read_dependencies(keys))
    keys.close({key: f"{key!r} belongs to {place}" for key, place in _BELONGS_TO.items()})
    return unlinked


def _with_shared_keys(
    kind: str, node: WorkflowNode, keys: MappingReader, templates: TemplateCollector
) -> WorkflowNode:
    """Return the node with the keys that several types share."""
    if kind not in (NodeType.START, NodeType.END):
        node = replace(node, when=read_condition(node.node_id, keys, "when", templates))
    if kind in (NodeType.WAIT, NodeType.SUBWORKFLOW) and keys.get("timeout_seconds") is not MISSING:
        node = replace(node, longest_wait_seconds=node.timeout_seconds)
    if kind in (NodeType.TASK, *WORK, NodeType.FAN_OUT):
        in_children = kind == NodeType.FAN_OUT
        node = replace(node, limit=read_limits(node.node_id, keys, templates, in_children=in_children))
    return node


def _read_timeout(kind: str | None, keys: MappingReader) -> float:
    within = LONG_TIMEOUT if CONTAINER in (kind, keys.values.get("handler")) else TIMEOUT
    return keys.number("timeout_seconds", DEFAULT_TIMEOUT_SECONDS, within)


def _read_type(keys: MappingReader) -> str | None:
    """Return the type; None when it is unknown, which is reported."""
    value = keys.get("type")
    if value is MISSING:
        return NodeType.TASK
    if isinstance(value, str) and value in TYPES:
        return value
    preview = repr(value) if isinstance(value, str) else kind_of(value)
    message = f"type must be one of {', '.join(TYPES)}, not {preview}"
    keys.diagnostics.add(
        "unknown_kind", message, keys.at("type"), did_you_mean=(str(value), list(map(str, TYPES)))
    )
    return None


def _has_queue(keys: MappingReader) -> bool:
    """Whether a queue is named; an empty name does not count."""
    return keys.get("queue") not in (MISSING, "")


def _read_queue(keys: MappingReader, default: str) -> str:
    return keys.word("queue", default) if _has_queue(keys) else default


def read_retry(parent: MappingReader, default: RetryPolicy) -> RetryPolicy:
    """Return the retry policy. A missing key has the default of a node without `retry`."""
    keys = parent.section("retry")
    if keys is None:
        return default
    codes = keys.words("retry_on")
    plain = RetryPolicy()
    policy = RetryPolicy(
        max_attempts=keys.integer("max_attempts", plain.max_attempts, NumberRange(1, 10)),
        backoff=keys.choice("backoff", BACKOFFS, plain.backoff),
        initial_delay_seconds=keys.number("initial_delay_seconds", plain.initial_delay_seconds, DELAY),
        max_delay_seconds=keys.number("max_delay_seconds", plain.max_delay_seconds, DELAY),
        jitter=keys.number("jitter", plain.jitter, NumberRange(0, 1)),
        retry_on=None if codes is None else frozenset(codes),
    )
    keys.close()
    return policy


@dataclass(frozen=True, slots=True)
class _Reading:
    """A node with the keys that all types share, and the reader for the others."""

    node: WorkflowNode
    keys: MappingReader
    templates: TemplateCollector

    def unlinked(
        self, node: WorkflowNode | None = None, parsed_branches: tuple[ParsedBranch, ...] = ()
    ) -> UnlinkedNode:
        targets = tuple(
            (parsed_branch.name, target)
            for parsed_branch in parsed_branches
            for target in parsed_branch.targets
        )
        return UnlinkedNode(node or self.node, self.keys.pointer, branch_targets=targets)


def _read_plain(reading: _Reading) -> UnlinkedNode:
    return reading.unlinked()


def _read_task(reading: _Reading) -> UnlinkedNode:
    return reading.unlinked(_with_work(reading, reading.keys, in_children=False))


def _read_conditional(reading: _Reading) -> UnlinkedNode:
    parsed_branches = read_branches(reading.node.node_id, reading.keys, reading.templates)
    return reading.unlinked(
        replace(reading.node, branches=tuple(parsed_branch.branch() for parsed_branch in parsed_branches)),
        parsed_branches,
    )


def _read_fan_out(reading: _Reading) -> UnlinkedNode:
    node, keys = reading.node, reading.keys
    if keys.require("source", 'give the list to fan out over, such as "{{ inputs.files }}"'):
        node = replace(node, source=_read_source(reading))
    if keys.require("task", "give the handler for each item"):
        task = MappingReader.of(keys.get("task"), keys.at("task"), keys.diagnostics)
        node = replace(
            _with_work(replace(reading, node=node), task, in_children=True),
            queue=_read_queue(task, node.queue),
            has_own_queue=node.has_own_queue or _has_queue(task),
            timeout_seconds=task.number("timeout_seconds", node.timeout_seconds, TIMEOUT),
            retry=read_retry(task, node.retry),
        )
        task.close()
    return reading.unlinked(node)


def _read_source(reading: _Reading) -> CompiledTemplate | None:
    source, pointer = reading.keys.get("source"), reading.keys.at("source")
    if isinstance(source, list) or (isinstance(source, str) and "{{" in source):
        return reading.templates.template(reading.node.node_id, source, pointer)
    message = f'source must be a list or a template such as "{{{{ inputs.files }}}}", not {kind_of(source)}'
    reading.keys.diagnostics.add("invalid_type", message, pointer)
    return None


def _with_work(reading: _Reading, keys: MappingReader, *, in_children: bool) -> WorkflowNode:
    """Return the node with the handler and params from `keys`."""
    node = reading.node
    if keys.require("handler", "give the name of the handler"):
        node = replace(node, handler=keys.word("handler"))
    params = keys.get("params")
    if params is MISSING:
        return node
    if not isinstance(params, dict):
        message = f"params must be a mapping, not {kind_of(params)}"
        keys.diagnostics.add("invalid_type", message, keys.at("params"))
        return node
    template = reading.templates.template(node.node_id, params, keys.at("params"), in_children=in_children)
    return replace(node, params=template)


def _read_fan_in(reading: _Reading) -> UnlinkedNode:
    aggregation = reading.keys.choice("aggregation", AGGREGATIONS, "collect")
    return reading.unlinked(replace(reading.node, aggregation=aggregation))


def _read_wait(reading: _Reading) -> UnlinkedNode:
    return reading.unlinked(read_wait(reading.node, reading.keys, reading.templates))


def _read_http(reading: _Reading) -> UnlinkedNode:
    return reading.unlinked(read_http(reading.node, reading.keys, reading.templates))


def _read_container(reading: _Reading) -> UnlinkedNode:
    return reading.unlinked(read_container(reading.node, reading.keys, reading.templates))


def _read_approval(reading: _Reading) -> UnlinkedNode:
    return reading.unlinked(read_approval(reading.node, reading.keys, reading.templates))


def _read_subworkflow(reading: _Reading) -> UnlinkedNode:
    return reading.unlinked(read_subworkflow(reading.node, reading.keys, reading.templates))


_READERS: dict[str, Callable[[_Reading], UnlinkedNode]] = {
    NodeType.START: _read_plain,
    NodeType.END: _read_plain,
    NodeType.TASK: _read_task,
    HTTP: _read_http,
    CONTAINER: _read_container,
    NodeType.CONDITIONAL: _read_conditional,
    NodeType.FAN_OUT: _read_fan_out,
    NodeType.FAN_IN: _read_fan_in,
    NodeType.WAIT: _read_wait,
    NodeType.APPROVAL: _read_approval,
    NodeType.SUBWORKFLOW: _read_subworkflow,
}
