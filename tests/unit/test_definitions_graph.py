"""Who waits for whom: edges from pointers, order, cycles, and what cannot be reached."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cograil.definitions import read_workflow
from cograil.definitions.graph import Graph
from cograil.errors import InvalidWorkflow, Problem
from cograil.model.workflow import Edge, Workflow


def workflow(nodes: str) -> Workflow:
    return read_workflow("workflow_id: w\nnodes:\n" + "".join(f"  {line}\n" for line in nodes.splitlines()))


def problems(nodes: str) -> list[Problem]:
    with pytest.raises(InvalidWorkflow) as caught:
        workflow(nodes)
    return list(caught.value.problems)


def found(nodes: str) -> list[tuple[str, str]]:
    return [(problem.code, problem.pointer) for problem in problems(nodes)]


# Edges


def test_every_next_pointer_is_an_all_of_edge_in_the_order_of_the_file() -> None:
    nodes = workflow(
        "c: {handler: h, next: d}\na: {handler: h, next: [d, b]}\nb: {handler: h}\nd: {handler: h}"
    ).nodes
    assert nodes["d"].all_of == (Edge("c"), Edge("a"))
    assert nodes["b"].all_of == (Edge("a"),)
    assert nodes["a"].successors == ("b", "d")
    assert nodes["d"].any_of == nodes["c"].all_of == ()
    assert nodes["d"].successors == ()


@pytest.mark.parametrize("written", ["a", "[a]", "{all_of: a}", "{all_of: [a]}"])
def test_depends_on_takes_a_name_a_list_or_all_of(written: str) -> None:
    assert workflow(f"a: {{handler: h}}\nb: {{handler: h, depends_on: {written}}}").nodes["b"].all_of == (
        Edge("a"),
    )


def test_an_explicit_depends_on_replaces_the_next_pointers() -> None:
    nodes = workflow(
        "a: {handler: h, next: c}\nb: {handler: h}\nc: {handler: h, depends_on: {any_of: b}}"
    ).nodes
    assert (nodes["c"].all_of, nodes["c"].any_of) == ((), (Edge("b"),))
    assert nodes["a"].successors == ()


def test_a_source_that_is_named_in_two_ways_is_one_edge() -> None:
    nodes = workflow("a: {handler: h, next: b}\nb: {handler: h, depends_on: a}").nodes
    assert nodes["b"].all_of == (Edge("a"),)


CONDITIONAL = (
    "c: {type: conditional, branches: ["
    "{name: x, condition: 'true', next: [t, u]}, {name: y, condition: 'true', next: t},"
    " {name: z, default: true}]}\n"
)


def test_a_branch_edge_carries_the_names_of_its_branches() -> None:
    nodes = workflow(CONDITIONAL + "t: {handler: h}\nu: {handler: h}").nodes
    assert nodes["t"].all_of == (Edge("c", frozenset({"x", "y"})),)
    assert nodes["u"].all_of == (Edge("c", frozenset({"x"})),)
    assert nodes["c"].successors == ("t", "u")


def test_depends_on_that_names_the_conditional_keeps_the_branches() -> None:
    nodes = workflow(
        CONDITIONAL + "a: {handler: h, next: t}\n"
        "t: {handler: h, depends_on: {all_of: a, any_of: c}}\nu: {handler: h, depends_on: [c, a]}"
    ).nodes
    assert nodes["t"].all_of == (Edge("a"),)
    assert nodes["t"].any_of == (Edge("c", frozenset({"x", "y"})),)
    assert nodes["u"].all_of == (Edge("c", frozenset({"x"})), Edge("a"))


def test_depends_on_that_leaves_the_conditional_out_gets_a_gate() -> None:
    nodes = workflow(
        CONDITIONAL
        + "a: {handler: h}\nt: {handler: h, depends_on: {any_of: a}}\nu: {handler: h, depends_on: a}"
    ).nodes
    assert nodes["t"].all_of == (Edge("c", frozenset({"x", "y"}), is_gate=True),)
    assert nodes["t"].any_of == (Edge("a"),)
    assert nodes["u"].all_of == (Edge("a"), Edge("c", frozenset({"x"}), is_gate=True))


def test_depending_on_a_conditional_without_being_its_target_is_an_ordinary_edge() -> None:
    nodes = workflow(CONDITIONAL + "t: {handler: h}\nu: {handler: h}\na: {handler: h, depends_on: c}").nodes
    assert nodes["a"].all_of == (Edge("c"),)


def test_end_is_implied_where_no_node_has_that_name() -> None:
    assert workflow("a: {handler: h, next: END}").nodes["a"].successors == ()
    assert workflow("a: {handler: h, next: END}\nEND: {type: end}").nodes["a"].successors == ("END",)


# Order


def test_nodes_come_in_topological_order_and_else_as_in_the_file() -> None:
    nodes = workflow(
        "d: {handler: h}\nb: {handler: h, depends_on: c}\na: {handler: h}\n"
        "c: {handler: h, next: e}\ne: {handler: h}"
    )
    assert list(nodes.nodes) == ["d", "a", "c", "b", "e"]


def test_a_chain_of_a_thousand_nodes_is_accepted_and_does_not_recurse() -> None:
    lines = [f"n{i}: {{handler: h, next: n{i + 1}, params: {{x: '{{{{ inputs.x }}}}'}}}}" for i in range(999)]
    nodes = workflow("\n".join([*reversed(lines), "n999: {handler: h}"])).nodes
    assert list(nodes) == [f"n{i}" for i in range(1000)]


def test_a_file_of_200_nodes_is_checked_in_well_under_a_second() -> None:
    lines = [f"n{i}: {{handler: h, next: n{i + 1}, params: {{x: '{{{{ inputs.x }}}}'}}}}" for i in range(199)]
    begun = time.process_time()
    workflow("\n".join([*lines, "n199: {handler: h}"]))
    assert time.process_time() - begun < 1  # 0.2 s on an idle machine


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=40))
def test_order_and_cycles_together_account_for_every_node(pairs: list[tuple[int, int]]) -> None:
    sources: dict[str, set[str]] = {str(n): set() for n in range(13)}
    for source, target in pairs:
        if source != target:
            sources[str(target)].add(str(source))
    graph = Graph(
        {name: (tuple(map(Edge, sorted(predecessors))), ()) for name, predecessors in sources.items()}
    )

    place = {name: index for index, name in enumerate(graph.order)}
    assert all(place[source] < place[name] for name in graph.order for source in sources[name])
    cycles = list(graph.cycles())
    assert bool(cycles) == (len(graph.order) < len(sources))
    for cycle in cycles:
        assert len(set(cycle)) == len(cycle) > 1
        assert all(source in sources[two] for source, two in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    for name in graph.order:
        above = {source for source in sources if graph.comes_before(source, name)}
        assert above == sources[name].union(*(_ancestors(source, sources) for source in sources[name]))


def _ancestors(name: str, sources: dict[str, set[str]]) -> set[str]:
    return sources[name].union(*(_ancestors(source, sources) for source in sources[name]))


# What cannot be


def test_a_cycle_is_listed_in_the_direction_of_its_edges() -> None:
    (problem,) = problems(
        "z: {handler: h, next: a}\na: {handler: h, next: b}\n"
        "b: {handler: h, next: c}\nc: {handler: h, next: a}"
    )
    assert (problem.code, problem.pointer, problem.line, problem.column) == ("dag_cycle", "/nodes/a", 4, 3)
    assert "a -> b -> c -> a" in problem.message


def test_every_cycle_is_reported_and_what_is_behind_it_is_not() -> None:
    nodes = (
        "a: {handler: h, next: b}\nb: {handler: h, next: [a, x]}\n"
        "x: {handler: h, next: [y, p]}\ny: {handler: h}\n"
        "p: {handler: h, next: q}\nq: {handler: h, next: p}"
    )
    messages = [problem.message for problem in problems(nodes)]
    assert [problem.code for problem in problems(nodes)] == ["dag_cycle", "dag_cycle"]
    assert "a -> b -> a" in messages[0]
    assert "p -> q -> p" in messages[1]


def test_a_cycle_through_a_branch_and_a_dependency_is_found() -> None:
    nodes = (
        "c: {type: conditional, depends_on: b, branches: [{name: x, default: true, next: a}]}\n"
        "a: {handler: h}\nb: {handler: h, depends_on: {any_of: a}}"
    )
    assert found(nodes) == [("dag_cycle", "/nodes/c")]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("a: {handler: h, next: a}", [("dag_self_dependency", "/nodes/a/next")]),
        ("a: {handler: h, depends_on: [a]}", [("dag_self_dependency", "/nodes/a/depends_on/0")]),
        (
            "c: {type: conditional, branches: [{default: true, next: c}]}",
            [("dag_self_dependency", "/nodes/c/branches/0/next")],
        ),
        ("a: {handler: h, next: nope}", [("dag_unknown_node", "/nodes/a/next")]),
        ("a: {handler: h, next: [END, nope]}", [("dag_unknown_node", "/nodes/a/next/1")]),
        ("a: {handler: h, depends_on: END}", [("dag_unknown_node", "/nodes/a/depends_on")]),
        (
            "a: {handler: h, depends_on: {any_of: [nope]}}",
            [("dag_unknown_node", "/nodes/a/depends_on/any_of/0")],
        ),
        (
            "c: {type: conditional, condition: 'true', branches: {true: nope, false: END}}",
            [("dag_unknown_node", "/nodes/c/branches/true")],
        ),
        ("a: {handler: h, next: [b, b]}\nb: {handler: h}", [("dag_duplicate_edge", "/nodes/a/next/1")]),
        (
            "a: {handler: h}\nb: {handler: h, depends_on: [a, a]}",
            [("dag_duplicate_edge", "/nodes/b/depends_on/1")],
        ),
        (
            "a: {handler: h}\nb: {handler: h, depends_on: {all_of: a, any_of: a}}",
            [("dag_duplicate_edge", "/nodes/b/depends_on/any_of")],
        ),
        ("a: {handler: h, next: 5}", [("invalid_type", "/nodes/a/next")]),
        ("a: {handler: h, next: [5]}", [("invalid_type", "/nodes/a/next/0")]),
        ("a: {handler: h, depends_on: []}", [("invalid_value", "/nodes/a/depends_on")]),
        ("a: {handler: h, depends_on: {}}", [("missing_key", "/nodes/a/depends_on")]),
        (
            "a: {handler: h}\nb: {handler: h, depends_on: {one_of: a}}",
            [("missing_key", "/nodes/b/depends_on"), ("unknown_key", "/nodes/b/depends_on/one_of")],
        ),
        ("s: {type: start}\nt: {type: start}", [("dag_many_starts", "/nodes/t")]),
        (
            "s: {type: start}\na: {handler: h, next: s}",
            [("dag_start_has_predecessors", "/nodes/s"), ("dag_unreachable", "/nodes/a")],
        ),
        (
            "s: {type: start, next: a}\na: {handler: h}\nb: {handler: h, next: c}\nc: {handler: h}",
            [("dag_unreachable", "/nodes/b"), ("dag_unreachable", "/nodes/c")],
        ),
        ("f: {type: fan_in}", [("fan_in_without_fan_out", "/nodes/f")]),
        ("a: {handler: h, next: f}\nf: {type: fan_in}", [("fan_in_without_fan_out", "/nodes/f")]),
        (
            "o: {type: fan_out, source: [1], task: {handler: h}, next: f}\n"
            "a: {handler: h}\nf: {type: fan_in, depends_on: a}",
            [("fan_in_without_fan_out", "/nodes/f")],
        ),
    ],
)
def test_contradictory_edges_are_reported_where_they_stand(
    nodes: str, expected: list[tuple[str, str]]
) -> None:
    assert found(nodes) == expected


def test_an_unknown_target_suggests_a_name() -> None:
    (problem,) = problems("reproject: {handler: h}\na: {handler: h, next: reprojct}")
    assert problem.message.endswith("did you mean 'reproject'?")
    (problem,) = problems("a: {handler: h, next: end}")
    assert problem.message.startswith("node 'end' does not exist")


def test_a_misspelt_pointer_is_not_also_an_unreachable_node() -> None:
    assert [code for code, _ in found("s: {type: start, next: aa}\na: {handler: h}")] == ["dag_unknown_node"]
    assert [code for code, _ in found("s: {type: start, nxt: a}\na: {handler: h}")] == ["unknown_key"]


def test_a_fan_in_behind_a_fan_out_and_others_is_fine() -> None:
    nodes = workflow(
        "o: {type: fan_out, source: [1], task: {handler: h}, next: f}\n"
        "a: {handler: h, next: f}\nf: {type: fan_in, aggregation: sum}"
    ).nodes
    assert nodes["f"].aggregation == "sum"
    assert nodes["f"].predecessors == ("o", "a")


def test_more_than_a_thousand_nodes_are_too_many() -> None:
    assert found("\n".join(f"n{i}: {{handler: h}}" for i in range(1001))) == [("dag_too_large", "/nodes")]


def test_more_than_ten_thousand_edges_are_too_many() -> None:
    wide = ", ".join(f"t{i}" for i in range(101))
    nodes = [f"s{i}: {{handler: h, next: [{wide}]}}" for i in range(100)] + [
        f"t{i}: {{handler: h}}" for i in range(101)
    ]
    assert found("\n".join(nodes)) == [("dag_too_large", "/nodes")]
    assert workflow("\n".join(nodes[:-1]).replace(", t100]", "]"))
