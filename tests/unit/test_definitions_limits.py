"""`limits` of a workflow and of its nodes."""

from __future__ import annotations

import pytest

from cograil.definitions import load_workflow, read_workflow
from cograil.errors import InvalidWorkflow
from cograil.model.workflow import Limit


def of_node(limits: str, node: str = "handler: h") -> str:
    return f"workflow_id: w\nnodes:\n  a: {{{node}, limits: {limits}}}\n"


def of_workflow(limits: str) -> str:
    return f"workflow_id: w\nlimits: {limits}\nnodes:\n  a: {{handler: h}}\n"


@pytest.mark.parametrize(
    ("written", "limit"),
    [
        ("{concurrency: 1}", Limit(concurrency=1)),
        ("{concurrency: 1000000, description: d}", Limit(concurrency=1_000_000)),
        ("{rate: 10/s}", Limit(rate=10, per_seconds=1)),
        ("{rate: '100/m'}", Limit(rate=100, per_seconds=60)),
        ("{rate: 1000000/h}", Limit(rate=1_000_000, per_seconds=3600)),
        ("{rate: {count: 5, per_seconds: 0.5}}", Limit(rate=5, per_seconds=0.5)),
        ("{concurrency: 3, rate: {count: 1, per_seconds: 86400, description: d}}", Limit(3, 1, 86_400)),
        ("{concurrency: 3, rate: null, key: null}", Limit(3)),
    ],
)
def test_limits_are_read_alike_on_a_workflow_and_a_node(written: str, limit: Limit) -> None:
    workflow = read_workflow(of_workflow(written))
    assert workflow.limit == limit
    assert workflow.nodes["a"].limit is None
    workflow = read_workflow(of_node(written))
    assert workflow.limit is None
    assert workflow.nodes["a"].limit == limit


def test_without_limits_there_are_none() -> None:
    for text in (of_workflow("null"), of_node("null")):
        assert read_workflow(text).limit is None
        assert read_workflow(text).nodes["a"].limit is None


@pytest.mark.parametrize(
    "node",
    ["handler: h", "type: http, http: {url: 'http://x'}", "type: fan_out, source: [], task: {handler: h}"],
)
def test_nodes_that_make_tasks_may_have_limits(node: str) -> None:
    assert read_workflow(of_node("{concurrency: 2}", node)).nodes["a"].limit == Limit(2)


def test_a_key_is_a_template_that_keeps_its_type() -> None:
    limit = read_workflow(of_workflow("{concurrency: 1, key: '{{ inputs.tenant }}'}")).limit
    assert limit is not None
    assert limit.key is not None
    assert limit.key.render({"inputs": {"tenant": 5}}) == 5
    limit = read_workflow(of_workflow("{concurrency: 1, key: fixed}")).limit
    assert limit is not None
    assert limit.key is not None
    assert limit.key.render({}) == "fixed"


def test_the_key_of_a_fan_out_is_rendered_for_each_child() -> None:
    node = "type: fan_out, source: [], task: {handler: h}"
    limit = read_workflow(of_node("{rate: 1/s, key: '{{ item.host }}-{{ index }}'}", node)).nodes["a"].limit
    assert limit is not None
    assert limit.key is not None
    assert limit.key.render({"item": {"host": "x"}, "index": 3}) == "x-3"


def test_a_node_reads_what_the_key_of_its_limit_needs() -> None:
    text = of_node("{concurrency: 1, key: '{{ nodes.b.output.x }}'}") + "  b: {handler: h, next: a}\n"
    assert read_workflow(text).nodes["a"].reads == {"b"}


@pytest.mark.parametrize(
    ("written", "code", "below"),
    [
        ("{}", "missing_key", ""),
        ("{key: k}", "missing_key", ""),
        ("{concurrency: null, rate: null}", "missing_key", ""),
        ("5", "invalid_type", ""),
        ("[1]", "invalid_type", ""),
        ("{concurrency: 0}", "invalid_value", "/concurrency"),
        ("{concurrency: -1}", "invalid_value", "/concurrency"),
        ("{concurrency: 1000001}", "invalid_value", "/concurrency"),
        ("{concurrency: 1.5}", "invalid_type", "/concurrency"),
        ("{concurrency: true}", "invalid_type", "/concurrency"),
        ("{concurrency: '{{ inputs.x }}'}", "invalid_type", "/concurrency"),
        ("{rate: 10}", "invalid_type", "/rate"),
        ("{rate: [10]}", "invalid_type", "/rate"),
        ("{rate: fast}", "invalid_value", "/rate"),
        ("{rate: 0/s}", "invalid_value", "/rate"),
        ("{rate: -1/s}", "invalid_value", "/rate"),
        ("{rate: 1.5/s}", "invalid_value", "/rate"),
        ("{rate: 1000001/s}", "invalid_value", "/rate"),
        ("{rate: 10/d}", "invalid_value", "/rate"),
        ("{rate: 10 / s}", "invalid_value", "/rate"),
        ("{rate: '10/s\\n'}", "invalid_value", "/rate"),
        ("{rate: {count: 1}}", "missing_key", "/rate"),
        ("{rate: {per_seconds: 1}}", "missing_key", "/rate"),
        ("{rate: {count: 0, per_seconds: 1}}", "invalid_value", "/rate/count"),
        ("{rate: {count: 1.5, per_seconds: 1}}", "invalid_type", "/rate/count"),
        ("{rate: {count: 1, per_seconds: 0}}", "invalid_value", "/rate/per_seconds"),
        ("{rate: {count: 1, per_seconds: 86401}}", "invalid_value", "/rate/per_seconds"),
        ("{rate: {count: 1, per_seconds: 1, per: s}}", "unknown_key", "/rate/per"),
        ("{concurrency: 1, key: ''}", "invalid_value", "/key"),
        ("{concurrency: 1, key: 5}", "invalid_type", "/key"),
        ("{concurrency: 1, key: '{{ x }}'}", "template_undefined", "/key"),
        ("{concurrency: 1, concurency: 1}", "unknown_key", "/concurency"),
    ],
)
def test_a_flaw_is_reported_once_at_its_place(written: str, code: str, below: str) -> None:
    for text, pointer, line in (
        (of_workflow(written), "/limits", 2),
        (of_node(written), "/nodes/a/limits", 3),
    ):
        with pytest.raises(InvalidWorkflow) as caught:
            read_workflow(text)
        flaws = [(problem.code, problem.pointer, problem.line) for problem in caught.value.problems]
        assert flaws == [(code, f"{pointer}{below}", line)]


def test_a_stored_document_gives_the_same_limits() -> None:
    read = read_workflow(of_workflow("{concurrency: 2, rate: 5/m}"))
    assert load_workflow(read.document).limit == read.limit == Limit(2, 5, 60)
