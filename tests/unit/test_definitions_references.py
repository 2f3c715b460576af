"""What templates may refer to, checked before anything runs and reported at the string in question."""

from __future__ import annotations

import pytest

from cograil.definitions import read_workflow
from cograil.errors import InvalidWorkflow, Problem


def problems(text: str) -> list[Problem]:
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(text)
    return list(caught.value.problems)


def found(nodes: str, inputs: str = "") -> list[tuple[str, str]]:
    return [
        (problem.code, problem.pointer) for problem in problems(f"workflow_id: w\n{inputs}nodes:\n{nodes}")
    ]


def test_a_node_may_read_from_everything_before_it() -> None:
    read_workflow(
        "workflow_id: w\nnodes:\n"
        "  a: {handler: h, next: [b, c]}\n"
        "  b: {handler: h}\n"
        "  c: {handler: h}\n"
        "  d: {handler: h, depends_on: {all_of: b, any_of: [c]},"
        " params: {x: '{{ nodes.a.output.x }}', y: '{{ nodes.c.status }}', z: ['{{ nodes.b.output }}']}}\n"
    )


def test_every_bad_reference_is_reported_at_its_own_string() -> None:
    text = (
        "workflow_id: w\n"
        "nodes:\n"
        "  first: {handler: h, next: second}\n"
        "  second:\n"
        "    handler: h\n"
        "    params:\n"
        '      fine: "{{ nodes.first.output }}"\n'
        '      list: [1, "{{ nodes.frist.output }}"]\n'
        "      deep:\n"
        '        later: "{{ nodes.third.output }} and {{ nodes.second.output }}"\n'
        "    next: third\n"
        "  third: {handler: h}\n"
    )
    unknown, itself, later = problems(text)
    assert (unknown.code, unknown.pointer, unknown.line) == (
        "dag_unknown_node",
        "/nodes/second/params/list/1",
        8,
    )
    assert unknown.column == 17
    assert "did you mean 'first'?" in unknown.message
    assert {itself.code, later.code} == {"dag_not_an_ancestor"}
    assert itself.pointer == later.pointer == "/nodes/second/params/deep/later"
    assert "cannot read from 'second'" in itself.message
    assert "cannot read from 'third'" in later.message


@pytest.mark.parametrize(
    "node",
    [
        "{type: conditional, condition_field: nodes.z.output.x, branches: {x: END, default: END}}",
        "{type: conditional, branches: [{condition: nodes.z.output.x > 1}, {default: true}]}",
        "{type: conditional, condition: '{{ nodes.z.output.x }}', branches: {true: END, false: END}}",
        "{type: conditional, condition: nodes.z.output.x, branches: {light: END, default: END}}",
        "{type: fan_out, source: '{{ nodes.z.output.x }}', task: {handler: h}}",
        "{type: fan_out, source: ['{{ nodes.z.output.x }}'], task: {handler: h}}",
        "{type: fan_out, source: [1], task: {handler: h, params: {x: '{{ nodes.z.output.x }}'}}}",
        "{type: wait, wait: {seconds: '{{ nodes.z.output.x }}'}}",
        "{type: wait, wait: {until: '{{ nodes.z.output.x }}'}}",
        "{handler: h, when: nodes.z.output.x}",
        "{handler: h, limits: {concurrency: 1, key: '{{ nodes.z.output.x }}'}}",
        "{type: fan_out, source: [], task: {handler: h}, limits: {rate: 1/s, key: '{{ nodes.z.output.x }}'}}",
        "{type: approval, approval: {message: 'Go? {{ nodes.z.output.x }}'}}",
        "{type: subworkflow, subworkflow: {workflow_id: v, inputs: {x: ['{{ nodes.z.output.x }}']}}}",
        "{type: http, http: {url: '{{ nodes.z.output.x }}'}}",
        "{type: http, http: {url: 'http://x', headers: {A: '{{ nodes.z.output.x }}'}}}",
        "{type: http, http: {url: 'http://x', body: [{y: '{{ nodes.z.output.x }}'}]}}",
    ],
)
def test_references_are_checked_wherever_templates_stand(node: str) -> None:
    assert {code for code, _ in found(f"  a: {node}\n")} == {"dag_unknown_node"}
    assert {code for code, _ in found(f"  a: {node}\n  z: {{handler: h}}\n")} == {"dag_not_an_ancestor"}


def test_item_and_index_are_known_in_the_params_of_a_fan_out_only() -> None:
    nodes = (
        "  a: {handler: h, params: {x: '{{ item }}'}}\n"
        "  o: {type: fan_out, source: '{{ index }}', "
        "task: {handler: h, params: {x: '{{ item.a }} {{ index }}'}}}\n"
    )
    assert found(nodes) == [
        ("template_undefined", "/nodes/a/params/x"),
        ("template_undefined", "/nodes/o/source"),
    ]


def test_the_key_of_a_limit_knows_the_children_of_a_fan_out_only() -> None:
    nodes = (
        "  a: {handler: h, limits: {concurrency: 1, key: '{{ item }}'}}\n"
        "  o: {type: fan_out, source: [], task: {handler: h}, limits: {rate: 1/s, key: '{{ item.a }}'}}\n"
    )
    assert found(nodes) == [("template_undefined", "/nodes/a/limits/key")]


def test_the_key_of_a_workflows_limits_knows_inputs_only() -> None:
    nodes = "  a: {handler: h}\n"
    for name in ("nodes.a.output", "output", "item", "upstream.output"):
        limits = f"limits: {{concurrency: 1, key: '{{{{ {name} }}}}'}}\n"
        assert found(nodes, limits) == [("template_undefined", "/limits/key")]
    limits = "limits: {concurrency: 1, key: '{{ inputs.tenant }}'}\n"
    assert found(nodes, f"{limits}inputs: {{}}\n") == [("unknown_input", "/limits/key")]
    read_workflow(f"workflow_id: w\n{limits}inputs: {{tenant: {{type: string}}}}\nnodes:\n{nodes}")


def test_templates_of_an_http_node_are_reported_at_their_own_string() -> None:
    nodes = (
        "  a: {type: http, http: {url: 'http://x/{{ 1 + }}', headers: {B: '{{ item }}', C: '{{ nothing }}'},"
        " body: {x: '{{ nodes.q.output }}'}}}\n"
        "  b: {type: http, http: {url: 'http://x', headers: {B: '{{ item }}'},"
        " body: '{{ nodes.q.output }}'}}\n"
    )
    assert found(nodes) == [
        ("template_syntax", "/nodes/a/http/url"),
        ("template_undefined", "/nodes/a/http/headers/B"),
        ("template_undefined", "/nodes/a/http/headers/C"),
        ("dag_unknown_node", "/nodes/a/http/body/x"),
        ("template_undefined", "/nodes/b/http/headers/B"),
        ("dag_unknown_node", "/nodes/b/http/body"),
    ]


def test_a_string_that_is_no_template_hides_nothing_of_its_neighbours() -> None:
    """All that is wrong with a node is told at once, and `item` is known to the children all the same."""
    params = "params: {x: '{{ inputs.a', y: ['{{ nodes.q.output }}'], z: '{{ item }}'}"
    fan_out = f"{{type: fan_out, source: [], task: {{handler: h, {params}}}}}"
    nodes = f"  a: {{handler: h, {params}}}\n  o: {fan_out}\n"
    assert found(nodes) == [
        ("template_syntax", "/nodes/a/params/x"),
        ("dag_unknown_node", "/nodes/a/params/y/0"),
        ("template_undefined", "/nodes/a/params/z"),
        ("template_syntax", "/nodes/o/task/params/x"),
        ("dag_unknown_node", "/nodes/o/task/params/y/0"),
    ]


def test_inputs_must_be_declared_when_any_are() -> None:
    nodes = "  a: {handler: h, params: {x: '{{ inputs.siez }}', y: '{{ inputs.size }}'}}\n"
    declared = "inputs:\n  size: {type: integer}\n"
    assert found(nodes, declared) == [("unknown_input", "/nodes/a/params/x")]
    assert found("  a: {handler: h, params: {x: '{{ inputs.x }}'}}\n", "inputs: {}\n") == [
        ("unknown_input", "/nodes/a/params/x")
    ]
    read_workflow(f"workflow_id: w\nnodes:\n{nodes}")


def test_output_needs_exactly_one_node_before() -> None:
    uses = "{handler: h, params: {x: '{{ output.x }}'}"
    assert found(f"  a: {uses}}}\n") == [("output_ambiguous", "/nodes/a/params/x")]
    two = f"  a: {{handler: h}}\n  b: {{handler: h}}\n  c: {uses}, depends_on: [a, b]}}\n"
    assert found(two) == [("output_ambiguous", "/nodes/c/params/x")]
    read_workflow(f"workflow_id: w\nnodes:\n  a: {{handler: h}}\n  c: {uses}, depends_on: a}}\n")


CHOICE = """
  check:
    type: conditional
    branches: [{name: big, condition: "inputs.x > 1", next: big}, {name: small, default: true, next: small}]
  big: {handler: h, next: [more, FROM_BIG]}
  more: {handler: h}
  small: {handler: h, next: FROM_SMALL}
"""
USES = "{handler: h, params: {x: '{{ upstream.output.x }}', y: '{{ output.y }}'}"


@pytest.mark.parametrize("sources", ["{any_of: [big, small]}", "[big, small]", "{any_of: [more, small]}"])
def test_output_behind_several_branches_is_that_of_the_one_that_ran(sources: str) -> None:
    nodes = CHOICE.replace("[more, FROM_BIG]", "more").replace(", next: FROM_SMALL", "")
    read_workflow(f"workflow_id: w\nnodes:{nodes}  join: {USES}, depends_on: {sources}}}\n")


def test_output_behind_branches_joined_by_next_is_that_of_the_one_that_ran() -> None:
    nodes = CHOICE.replace("FROM_BIG", "join").replace("FROM_SMALL", "join")
    read_workflow(f"workflow_id: w\nnodes:{nodes}  join: {USES}}}\n")


@pytest.mark.parametrize(
    "sources", ["{any_of: [big, more]}", "{any_of: [big, small, more]}", "[check, small]"]
)
def test_output_is_ambiguous_where_several_may_complete(sources: str) -> None:
    nodes = CHOICE.replace("[more, FROM_BIG]", "more").replace(", next: FROM_SMALL", "")
    problems = found(f"{nodes}  join: {USES}, depends_on: {sources}}}\n")
    assert {code for code, _ in problems} == {"output_ambiguous"}


def test_a_condition_field_that_is_a_path_reads_the_output_of_the_node_before() -> None:
    node = "{type: conditional, condition_field: size, branches: [{condition: '> 1'}, {default: true}]}"
    codes = {code for code, _ in found(f"  c: {node}\n")}
    assert codes == {"output_ambiguous"}
    read_workflow(f"workflow_id: w\nnodes:\n  a: {{handler: h, next: c}}\n  c: {node}\n")


def test_templates_that_do_not_compile_are_all_reported_with_their_own_codes() -> None:
    nodes = (
        "  a:\n"
        "    handler: h\n"
        "    params:\n"
        "      one: \"{{ ''.__class__ }}\"\n"
        "      two: '{{ 1 + }}'\n"
        "      three: ['{{ nothing.here }}', '{{ inputs.fine }}']\n"
    )
    assert found(nodes) == [
        ("template_forbidden", "/nodes/a/params/one"),
        ("template_syntax", "/nodes/a/params/two"),
        ("template_undefined", "/nodes/a/params/three/0"),
    ]


def test_braces_in_keys_and_names_are_not_templates() -> None:
    read_workflow(
        "workflow_id: w\nname: '{{ x }}'\ndescription: '{{'\n"
        "nodes:\n  a: {handler: h, params: {'{{ k }}': 1}}\n"
    )
