"""The keys of a workflow file: what they default to, and every way in which they may be wrong."""

from __future__ import annotations

import pytest

from cograil.definitions import load_workflow, read_workflow
from cograil.errors import InvalidWorkflow, Problem
from cograil.model.workflow import NodeType, RetryPolicy, WorkflowNode

SEED_EXAMPLE = """\
workflow_id: my_custom_pipeline
nodes:
  validate:
    handler: raster_validate
    next: reproject
  reproject:
    handler: raster_reproject
    params:
      target_crs: "EPSG:3857"
    next: clip
  clip:
    handler: raster_clip
    params:
      boundary: "{{ inputs.aoi }}"
    next: analyze
  analyze:
    handler: stats_zonal
    params:
      zones: "{{ inputs.zones }}"
    next: END
"""


def problems(text: str) -> list[Problem]:
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(text)
    return list(caught.value.problems)


def refused(node: str) -> list[str]:
    """The codes for a workflow whose one interesting node is written in flow style."""
    text = f"workflow_id: w\nnodes:\n  a: {node}\n  b: {{handler: h}}\n"
    return [problem.code for problem in problems(text)]


def node(text: str, node_id: str = "a") -> WorkflowNode:
    return read_workflow(f"workflow_id: w\nnodes:\n  a: {text}\n  b: {{handler: h}}\n").nodes[node_id]


def test_the_example_of_the_seed_passes_unchanged() -> None:
    workflow = read_workflow(SEED_EXAMPLE)
    assert list(workflow.nodes) == ["validate", "reproject", "clip", "analyze"]
    assert {node.type for node in workflow.nodes.values()} == {NodeType.TASK}
    assert workflow.nodes["clip"].params is not None
    assert workflow.nodes["clip"].params.render({"inputs": {"aoi": [1]}}) == {"boundary": [1]}


def test_missing_keys_have_their_defaults() -> None:
    workflow = read_workflow("workflow_id: w\nnodes:\n  a: {handler: h}")
    assert (workflow.name, workflow.version, workflow.inputs, workflow.timeout_seconds) == (
        "w",
        1,
        None,
        None,
    )
    assert workflow.nodes["a"] == WorkflowNode("a", NodeType.TASK, handler="h")
    assert workflow.nodes["a"].retry == RetryPolicy(3, "exponential", 5.0, 300.0, 0.0, None)
    assert workflow.nodes["a"].timeout_seconds == 3600
    assert workflow.nodes["a"].queue == "default"


def test_keys_of_a_node_are_kept() -> None:
    task = node(
        "{handler: h, queue: q, timeout_seconds: 0.5, required: false, description: d,"
        " retry: {max_attempts: 10, backoff: fixed, initial_delay_seconds: 0.2, max_delay_seconds: 1,"
        " jitter: 1, retry_on: [timeout, lost]}}"
    )
    policy = RetryPolicy(10, "fixed", 0.2, 1.0, 1.0, frozenset({"timeout", "lost"}))
    assert task == WorkflowNode(
        "a",
        NodeType.TASK,
        required=False,
        description="d",
        handler="h",
        queue="q",
        has_own_queue=True,
        timeout_seconds=0.5,
        retry=policy,
    )


@pytest.mark.parametrize(
    "empty",
    ["queue: ''"]
    + [f"{key}: null" for key in ("params", "next", "retry", "queue", "depends_on", "timeout_seconds")]
    + [f"{key}: null" for key in ("type", "required", "description", "wait", "branches")],
)
def test_an_empty_optional_key_counts_as_absent(empty: str) -> None:
    assert node(f"{{handler: h, {empty}}}") == node("{handler: h}")


def test_a_file_with_many_mistakes_names_them_all_with_their_places() -> None:
    flaws = problems(
        "workflow_id: bad id\n"
        "verion: 2\n"
        "nodes:\n"
        "  a:\n"
        "    handlr: h\n"
        "    timeout_seconds: 0\n"
        "    next: bb\n"
        "  b:\n"
        "    handler: h\n"
        '    params: {x: "{{ nodes.a.output"}\n'
    )
    assert [(problem.code, problem.pointer, problem.line, problem.column) for problem in flaws] == [
        ("invalid_id", "/workflow_id", 1, 14),
        ("unknown_key", "/verion", 2, 1),
        ("missing_key", "/nodes/a", 4, 3),
        ("unknown_key", "/nodes/a/handlr", 5, 5),
        ("invalid_value", "/nodes/a/timeout_seconds", 6, 22),
        ("dag_unknown_node", "/nodes/a/next", 7, 11),
        ("template_syntax", "/nodes/b/params/x", 10, 17),
    ]
    assert "did you mean 'version'?" in flaws[1].message
    assert "did you mean 'handler'?" in flaws[3].message
    assert "did you mean 'b'?" in flaws[5].message


def test_the_error_names_the_file() -> None:
    with pytest.raises(InvalidWorkflow, match=r"^flow\.yaml:1:1: .* \[dag_empty\]$"):
        read_workflow("workflow_id: w", "flow.yaml")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid_type"),
        ("# nothing\n", "invalid_type"),
        ("- a\n", "invalid_type"),
        ("workflow_id: w\n", "dag_empty"),
        ("workflow_id: w\nnodes: {}\n", "dag_empty"),
        ("workflow_id: w\nnodes: []\n", "invalid_type"),
        ("workflow_id: w\nnodes:\n  a:\n", "invalid_type"),
        ("workflow_id: w\nnodes:\n  a: h\n", "invalid_type"),
        ("nodes: {a: {handler: h}}\n", "missing_key"),
        ("workflow_id: 5\nnodes: {a: {handler: h}}\n", "invalid_type"),
        ("workflow_id: ''\nnodes: {a: {handler: h}}\n", "invalid_id"),
        (f"workflow_id: {'w' * 65}\nnodes: {{a: {{handler: h}}}}\n", "invalid_id"),
        ("workflow_id: w__0\nnodes: {a: {handler: h}}\n", "invalid_id"),
        ("workflow_id: w\nversion: 0\nnodes: {a: {handler: h}}\n", "invalid_value"),
        ("workflow_id: w\nversion: 1.5\nnodes: {a: {handler: h}}\n", "invalid_type"),
        ("workflow_id: w\nversion: true\nnodes: {a: {handler: h}}\n", "invalid_type"),
        ("workflow_id: w\nversion: 2147483648\nnodes: {a: {handler: h}}\n", "invalid_value"),
        (f"workflow_id: w\nname: {'n' * 129}\nnodes: {{a: {{handler: h}}}}\n", "invalid_value"),
        ("workflow_id: w\nname: 5\nnodes: {a: {handler: h}}\n", "invalid_type"),
        ("workflow_id: w\ntimeout_seconds: 0\nnodes: {a: {handler: h}}\n", "invalid_value"),
        ("workflow_id: w\nis_active: 1\nnodes: {a: {handler: h}}\n", "invalid_type"),
        ("workflow_id: w\nfail_fast: 1\nnodes: {a: {handler: h}}\n", "invalid_type"),
        ("workflow_id: w\nlimits: {}\nnodes: {a: {handler: h}}\n", "missing_key"),
        ("workflow_id: w\nnodes: {a__1: {handler: h}}\n", "invalid_id"),
        ("workflow_id: w\nnodes: {_a: {handler: h}}\n", "invalid_id"),
        ("workflow_id: w\nnodes: {'a b': {handler: h}}\n", "invalid_id"),
        ("workflow_id: w\ninputs: []\nnodes: {a: {handler: h}}\n", "invalid_type"),
        ("workflow_id: w\ninputs: {x: string}\nnodes: {a: {handler: h}}\n", "invalid_type"),
        ("workflow_id: w\ninputs: {x: {}}\nnodes: {a: {handler: h}}\n", "missing_key"),
        ("workflow_id: w\ninputs: {x: {type: text}}\nnodes: {a: {handler: h}}\n", "invalid_value"),
        (
            "workflow_id: w\ninputs: {x: {type: integer, default: '1'}}\nnodes: {a: {handler: h}}\n",
            "invalid_type",
        ),
        (
            "workflow_id: w\ninputs: {x: {type: integer, default: true}}\nnodes: {a: {handler: h}}\n",
            "invalid_type",
        ),
        (
            "workflow_id: w\ninputs: {x: {type: string, requird: no}}\nnodes: {a: {handler: h}}\n",
            "unknown_key",
        ),
        ("workflow_id: w\ninputs: {'x y': {type: string}}\nnodes: {a: {handler: h}}\n", "invalid_id"),
    ],
)
def test_a_flaw_of_the_whole_is_reported_once(text: str, code: str) -> None:
    assert [problem.code for problem in problems(text)] == [code]
    assert all(problem.line for problem in problems(text))


@pytest.mark.parametrize(
    ("written", "codes"),
    [
        ("{}", ["missing_key"]),
        ("{handler: ''}", ["invalid_value"]),
        ("{handler: null}", ["missing_key"]),
        (f"{{handler: {'h' * 65}}}", ["invalid_value"]),
        ("{handler: '{{ inputs.x }}'}", ["invalid_value"]),
        ("{handler: h, queue: ' '}", ["invalid_value"]),
        ("{handler: h, queue: 5}", ["invalid_type"]),
        ("{handler: h, timeout_seconds: 86401}", ["invalid_value"]),
        ("{handler: h, timeout_seconds: -1}", ["invalid_value"]),
        ("{handler: h, timeout_seconds: '60'}", ["invalid_type"]),
        ("{handler: h, required: 'no'}", ["invalid_type"]),
        ("{handler: h, description: 5}", ["invalid_type"]),
        ("{handler: h, params: [1]}", ["invalid_type"]),
        ("{handler: h, retry: 3}", ["invalid_type"]),
        ("{handler: h, retry: {max_attempts: 0}}", ["invalid_value"]),
        ("{handler: h, retry: {max_attempts: 11}}", ["invalid_value"]),
        ("{handler: h, retry: {max_attempts: 1.5}}", ["invalid_type"]),
        ("{handler: h, retry: {backoff: quadratic}}", ["invalid_value"]),
        ("{handler: h, retry: {initial_delay_seconds: -1}}", ["invalid_value"]),
        ("{handler: h, retry: {max_delay_seconds: x}}", ["invalid_type"]),
        ("{handler: h, retry: {jitter: 1.1}}", ["invalid_value"]),
        ("{handler: h, retry: {retry_on: timeout}}", ["invalid_type"]),
        ("{handler: h, retry: {retry_on: [5]}}", ["invalid_type"]),
        ("{handler: h, retry: {attempts: 5}}", ["unknown_key"]),
        ("{type: taks, handler: h}", ["unknown_kind"]),
        ("{type: 5}", ["unknown_kind"]),
        ("{type: approval}", ["missing_key"]),
        ("{type: http}", ["missing_key"]),
        ("{type: subworkflow}", ["missing_key"]),
        ("{type: container}", ["missing_key"]),
        ("{type: container, container: 5}", ["invalid_type"]),
        ("{type: container, container: {command: x}}", ["missing_key"]),
        ("{type: container, container: {image: i, id: x}}", ["unknown_key"]),
        ("{type: container, container: {image: i, memory: x}}", ["invalid_value"]),
        (
            "{type: container, container: {image: i, artifacts: [{id: a, type: list, in: x, depends: b}]}}",
            ["invalid_value"],
        ),
        ("{handler: h, container: {image: i}}", ["unknown_key"]),
        ("{handler: h, when: ''}", ["template_syntax"]),
        ("{handler: h, when: '1 +'}", ["template_syntax"]),
        ("{handler: h, when: '< 5'}", ["template_syntax"]),
        ("{handler: h, when: 5}", ["invalid_type"]),
        ("{type: start, when: 'true', next: b}", ["unknown_key"]),
        ("{type: end, when: 'true'}", ["unknown_key"]),
        ("{handler: h, approval: {message: m}}", ["unknown_key"]),
        ("{handler: h, subworkflow: {workflow_id: x}}", ["unknown_key"]),
        ("{handler: h, http: {url: 'http://x'}}", ["unknown_key"]),
        ("{type: wait, wait: {seconds: 1}, limits: {concurrency: 1}}", ["unknown_key"]),
        ("{handler: h, source: []}", ["unknown_key"]),
        ("{handler: h, wait: {seconds: 1}}", ["unknown_key"]),
        ("{type: start, depends_on: b}", ["dag_unreachable", "unknown_key"]),
        ("{type: end, next: b}", ["unknown_key"]),
        ("{type: fan_out}", ["missing_key", "missing_key"]),
        ("{type: fan_out, source: 5, task: {handler: h}}", ["invalid_type"]),
        ("{type: fan_out, source: plain, task: {handler: h}}", ["invalid_type"]),
        ("{type: fan_out, source: {}, task: {handler: h}}", ["invalid_type"]),
        ("{type: fan_out, source: [1], task: h}", ["invalid_type"]),
        ("{type: fan_out, source: [1], task: {}}", ["missing_key"]),
        ("{type: fan_out, source: [1], task: {handler: h, next: b}}", ["unknown_key"]),
        ("{type: fan_out, source: [1], handler: h, task: {handler: h}}", ["unknown_key"]),
        ("{type: wait}", ["missing_key"]),
        ("{type: wait, wait: 5}", ["invalid_type"]),
        ("{type: wait, wait: {}}", ["invalid_value"]),
        ("{type: wait, wait: {seconds: 1, until: '2030-01-01T00:00:00Z'}}", ["invalid_value"]),
        ("{type: wait, wait: {seconds: -1}}", ["invalid_value"]),
        ("{type: wait, wait: {seconds: 1e12}}", ["invalid_value"]),
        ("{type: wait, wait: {seconds: '5'}}", ["invalid_type"]),
        ("{type: wait, wait: {seconds: true}}", ["invalid_type"]),
        ("{type: wait, wait: {until: 5}}", ["invalid_type"]),
        ("{type: wait, wait: {until: tomorrow}}", ["invalid_value"]),
        ("{type: wait, wait: {until: 2030-01-01}}", ["invalid_value"]),
        ("{type: wait, wait: {until: '2030-01-01T00:00:00'}}", ["invalid_value"]),
        ("{type: wait, wait: {until: '2030-02-31T00:00:00Z'}}", ["invalid_value"]),
        ("{type: conditional}", ["missing_key"]),
        ("{type: conditional, branches: b}", ["invalid_type"]),
        ("{type: conditional, branches: []}", ["no_default_branch"]),
        ("{type: conditional, branches: [b]}", ["no_default_branch", "invalid_type"]),
        ("{type: conditional, branches: [{default: true, next: b}], next: b}", ["unknown_key"]),
        ("{type: conditional, branches: [{next: b}, {default: true}]}", ["missing_key"]),
        ("{type: conditional, branches: [{condition: 'true', default: true}]}", ["invalid_value"]),
        ("{type: conditional, branches: [{condition: '< 5'}, {default: true}]}", ["template_syntax"]),
        ("{type: conditional, branches: [{condition: ''}, {default: true}]}", ["template_syntax"]),
        ("{type: conditional, branches: [{condition: 5}, {default: true}]}", ["invalid_type"]),
        ("{type: conditional, branches: [{default: true}, {default: true}]}", ["many_default_branches"]),
        ("{type: conditional, condition: 'true', branches: [{default: true}]}", ["invalid_value"]),
        ("{type: conditional, branches: {true: b, false: b}}", ["missing_key"]),
        ("{type: conditional, condition: 'true', branches: {true: b}}", ["no_default_branch"]),
        ("{type: conditional, condition: 'true', branches: {true: 5, false: b}}", ["invalid_type"]),
        ("{type: conditional, condition: '1 <', branches: {true: b, false: b}}", ["template_syntax"]),
        (
            "{type: conditional, condition: 'true', condition_field: inputs.x, branches: {default: b}}",
            ["invalid_value"],
        ),
    ],
)
def test_a_flaw_of_a_node_is_reported_once(written: str, codes: list[str]) -> None:
    assert sorted(refused(written)) == sorted(codes)


def test_a_fan_out_describes_its_children() -> None:
    fan_out = node(
        "{type: fan_out, source: [1, '{{ inputs.x }}'], queue: wide, timeout_seconds: 7,"
        " retry: {max_attempts: 9}, task: {handler: h, params: {i: '{{ index }}', v: '{{ item }}'}}}"
    )
    assert (fan_out.handler, fan_out.queue, fan_out.timeout_seconds, fan_out.retry.max_attempts) == (
        "h",
        "wide",
        7,
        9,
    )
    assert fan_out.source is not None
    assert fan_out.source.render({"inputs": {"x": 2}}) == [1, 2]
    assert fan_out.params is not None
    assert fan_out.params.render({"item": "x", "index": 3}) == {"i": 3, "v": "x"}


def test_the_task_of_a_fan_out_has_the_last_word_on_its_children() -> None:
    fan_out = node(
        "{type: fan_out, source: [], queue: a, timeout_seconds: 7, retry: {max_attempts: 9},"
        " task: {handler: h, queue: b, timeout_seconds: 8, retry: {max_attempts: 2}}}"
    )
    assert (fan_out.queue, fan_out.timeout_seconds, fan_out.retry.max_attempts) == ("b", 8, 2)


def test_a_wait_is_for_seconds_or_until_a_time() -> None:
    plain = node("{type: wait, wait: {seconds: 1.5}}")
    assert plain.wait_seconds is not None
    assert plain.wait_seconds.render({}) == 1.5
    templated = node("{type: wait, wait: {seconds: '{{ inputs.s }}'}}")
    assert templated.wait_seconds is not None
    assert templated.wait_seconds.render({"inputs": {"s": 3}}) == 3
    for written in ("2030-01-31T08:00:00Z", "2030-01-31T08:00:00.123456+02:00", "2030-01-31 08:00:00Z"):
        until = node(f"{{type: wait, wait: {{until: {written!r}}}}}")
        assert until.wait_until is not None
        assert until.wait_until.render({}) == written


def test_an_unreadable_value_is_reported_once() -> None:
    assert refused("{handler: *x}") == ["yaml_alias"]
    assert refused("{handler: h, timeout_seconds: .inf}") == ["invalid_number"]
    assert refused("{handler: h, next: *x}") == ["yaml_alias"]
    assert refused("!x {handler: h}") == ["yaml_tag"]


def test_a_hostile_file_is_answered_with_a_list_of_bounded_length() -> None:
    keys = ", ".join(f"k{n}: 1" for n in range(5_000))
    flaws = problems(f"workflow_id: w\nnodes:\n  a: {{handler: h, {keys}}}\n")
    assert len(flaws) == 101
    assert flaws[-1].message == "4900 more problems are not listed"


def test_a_stored_document_gives_the_same_workflow() -> None:
    text = (
        "workflow_id: w\nis_active: false\nfail_fast: false\ninputs: {x: {type: integer, default: 1}}\n"
        "nodes:\n"
        "  a: {type: conditional, condition: inputs.x > 1, branches: {True: b, FALSE: c}}\n"
        "  b: {handler: h, params: {x: '{{ inputs.x }}'}}\n"
        "  c: {handler: h, depends_on: {any_of: [a]}}\n"
    )
    read = read_workflow(text)
    loaded = load_workflow(read.document)
    assert read.document["nodes"]["a"]["branches"] == {"true": "b", "false": "c"}
    assert read.document["is_active"] is False
    assert loaded.digest == read.digest
    assert len(read.digest) == 64
    assert list(loaded.nodes) == list(read.nodes)
    assert (loaded.inputs, loaded.document) == (read.inputs, read.document)
    for node_id, original in read.nodes.items():
        other = loaded.nodes[node_id]
        assert (original.all_of, original.any_of, original.successors) == (
            other.all_of,
            other.any_of,
            other.successors,
        )
        assert [branch.targets for branch in original.branches] == [
            branch.targets for branch in other.branches
        ]


def test_the_digest_depends_on_the_content_and_not_on_the_order_of_keys_or_on_comments() -> None:
    workflow = read_workflow("workflow_id: w\nnodes:\n  a: {handler: h, queue: q}")
    same = read_workflow("# c\nnodes:\n  a:\n    queue: q\n    handler: h\nworkflow_id: 'w'")
    other = read_workflow("workflow_id: w\nnodes:\n  a: {handler: h, queue: r}")
    assert workflow.digest == same.digest != other.digest


def test_a_stored_document_of_another_language_is_refused_without_places() -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        load_workflow({"workflow_id": "w", "nodes": {"a": {"type": "dance"}}})
    (problem,) = caught.value.problems
    assert (problem.code, problem.pointer, problem.line) == ("unknown_kind", "/nodes/a/type", None)


def test_the_place_within_a_template_is_told_too() -> None:
    (problem,) = problems("workflow_id: w\nnodes:\n  a: {handler: h, params: {x: 'ab {{ 1 + }}'}}")
    assert problem.message.endswith("(at character 11)")
    text = "{type: conditional, condition: 'inputs.x ++ 1', branches: {light: b, default: b}}"
    (problem,) = problems(f"workflow_id: w\nnodes:\n  a: {text}\n  b: {{handler: h}}")
    assert problem.message.endswith("(at character 11)")
    (problem,) = problems('workflow_id: w\nnodes:\n  a: {handler: h, params: {x: "ab\\n{{ 1 + }}"}}')
    assert problem.message.endswith("(at line 2, character 8)")


def test_a_message_stays_short_however_long_the_name() -> None:
    (problem,) = problems(f"workflow_id: w\nnodes:\n  a: {{handler: h, next: {'n' * 10_000}}}")
    assert problem.code == "dag_unknown_node"
    assert len(problem.message) < 400
