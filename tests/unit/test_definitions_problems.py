"""All problems at once: a broken edge hides only what hangs on it, and nothing is reported twice."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cograil.definitions import load_workflow, read_workflow
from cograil.errors import InvalidWorkflow

Nodes = dict[str, Any]
Found = set[tuple[str, str]]


def found_in(nodes: Nodes) -> Found:
    try:
        load_workflow({"workflow_id": "w", "nodes": nodes})
    except InvalidWorkflow as error:
        return {(problem.code, problem.pointer) for problem in error.problems}
    return set()


def found(nodes: str) -> Found:
    lines = "".join(f"  {line}\n" for line in nodes.splitlines())
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(f"workflow_id: w\nnodes:\n{lines}")
    return {(problem.code, problem.pointer) for problem in caught.value.problems}


def reads(source: str) -> dict[str, str]:
    return {"x": f"{{{{ nodes.{source}.output }}}}"}


# Mistakes that have nothing to do with each other

GOOD: Nodes = {
    "begin": {"type": "start", "next": ["fetch", "spread", "choose", "left", "right"]},
    "fetch": {"handler": "h", "next": "convert"},
    "convert": {"handler": "h", "next": "publish", "params": reads("fetch")},
    "publish": {"handler": "h"},
    "spread": {"type": "fan_out", "source": [1], "task": {"handler": "h"}, "next": "gather"},
    "gather": {"type": "fan_in", "next": "summarize"},
    "summarize": {"handler": "h"},
    "choose": {
        "type": "conditional",
        "condition": "{{ inputs.x }}",
        "branches": {"true": "deliver", "false": "END"},
    },
    "deliver": {"handler": "h"},
    "left": {"handler": "h"},
    "right": {"handler": "h"},
    "join": {"handler": "h", "depends_on": ["left", "right"]},
}


def _set(node_id: str, key: str, value: Any) -> Callable[[Nodes], None]:
    def mistake(nodes: Nodes) -> None:
        nodes.setdefault(node_id, {"handler": "h"})[key] = value

    return mistake


MISTAKES: dict[str, Callable[[Nodes], None]] = {
    "a misspelt key": _set("fetch", "parms", {"x": 1}),
    "a key of another type of node": _set("left", "aggregation", "sum"),
    "a misspelt target": _set("convert", "next", "publsh"),
    "a target that nobody knows": _set("deliver", "next", "zz"),
    "a misspelt branch": _set("choose", "branches", {"true": "delivr", "false": "END"}),
    "a source that nobody knows": _set("summarize", "depends_on", ["gather", "qq"]),
    "a target that is not a name": _set("publish", "next", 5),
    "itself": _set("right", "next", "right"),
    "a cycle apart": lambda nodes: nodes.update(
        one={"handler": "h", "depends_on": "two"}, two={"handler": "h", "depends_on": "one"}
    ),
    "an island": lambda nodes: nodes.update(
        lonely={"handler": "h", "depends_on": ["lonely"]}, lonelier={"handler": "h", "depends_on": "lonely"}
    ),
    "a look ahead": _set("fetch", "params", reads("convert")),
    "a look aside": _set("left", "params", reads("right")),
    "a look at itself": _set("gather", "when", "nodes.gather.status == 'completed'"),
    "no single node before": _set("join", "params", {"x": "{{ output.x }}"}),
    "a fan_in of nothing": lambda nodes: nodes.update(collect={"type": "fan_in", "depends_on": "left"}),
    "a second start": lambda nodes: nodes.update(again={"type": "start"}),
}


def with_mistakes(names: set[str]) -> Nodes:
    nodes = deepcopy(GOOD)
    for name in sorted(names):
        MISTAKES[name](nodes)
    return nodes


ALONE = {name: found_in(with_mistakes({name})) for name in MISTAKES}


def test_each_mistake_alone_is_reported_and_the_rest_is_fine() -> None:
    assert found_in(GOOD) == set()
    assert {name: {code for code, _ in problems} for name, problems in ALONE.items()} == {
        "a misspelt key": {"unknown_key"},
        "a key of another type of node": {"unknown_key"},
        "a misspelt target": {"dag_unknown_node"},
        "a target that nobody knows": {"dag_unknown_node"},
        "a misspelt branch": {"dag_unknown_node"},
        "a source that nobody knows": {"dag_unknown_node"},
        "a target that is not a name": {"invalid_type"},
        "itself": {"dag_self_dependency"},
        "a cycle apart": {"dag_cycle", "dag_unreachable"},
        "an island": {"dag_self_dependency", "dag_unreachable"},
        "a look ahead": {"dag_not_an_ancestor"},
        "a look aside": {"dag_not_an_ancestor"},
        "a look at itself": {"dag_not_an_ancestor"},
        "no single node before": {"output_ambiguous"},
        "a fan_in of nothing": {"fan_in_without_fan_out"},
        "a second start": {"dag_many_starts"},
    }


@settings(deadline=None, max_examples=120)
@given(st.sets(st.sampled_from(sorted(MISTAKES))))
def test_mistakes_together_are_reported_like_each_alone_so_mending_brings_up_nothing(names: set[str]) -> None:
    assert found_in(with_mistakes(names)) == set().union(*(ALONE[name] for name in names))


def test_no_mistake_hides_another() -> None:
    for first, two in combinations(sorted(MISTAKES), 2):
        assert found_in(with_mistakes({first, two})) == ALONE[first] | ALONE[two], (first, two)


def test_all_mistakes_are_reported_at_once() -> None:
    assert found_in(with_mistakes(set(MISTAKES))) == set().union(*ALONE.values())


# No false alarms: whatever edges of a good file are broken, only these are reported

WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett")


@st.composite
def good_files(draw: st.DrawFn) -> Nodes:
    """A start and what follows it, with edges from either side and references to what comes before."""
    nodes: Nodes = {"alpha": {"type": "start", "next": []}}
    before: dict[str, set[str]] = {"alpha": set()}
    for word in WORDS[1 : draw(st.integers(2, len(WORDS)))]:
        sources = draw(st.sets(st.sampled_from(sorted(nodes)), min_size=1, max_size=3))
        before[word] = sources.union(*(before[source] for source in sources))
        nodes[word] = {
            "handler": "h",
            "next": [],
            "params": reads(draw(st.sampled_from(sorted(before[word])))),
        }
        follows_fan_out = any(
            nodes[source]["type"] == "fan_out" for source in sources if "type" in nodes[source]
        )
        kinds = ["task", "fan_out", "fan_in"] if follows_fan_out else ["task", "fan_out"]
        kind = draw(st.sampled_from(kinds))
        if kind == "fan_out":
            nodes[word] = {"type": kind, "source": [1], "task": {"handler": "h"}, "next": []}
        elif kind == "fan_in":
            nodes[word] = {"type": kind, "next": []}
        elif len(sources) == 1 and draw(st.booleans()):
            nodes[word]["params"]["y"] = "{{ output.y }}"
        if draw(st.booleans()):
            nodes[word]["depends_on"] = sorted(sources)
        else:
            for source in sources:
                nodes[source]["next"].append(word)
    return nodes


def _break(draw: st.DrawFn, nodes: Nodes, node_id: str, key: str) -> set[str]:
    """Break the edges that stand under a key of a node; the pointers at which that is reported."""
    node, pointer = nodes[node_id], f"/nodes/{node_id}/{key}"
    names = node[key]
    how = draw(st.sampled_from(["far", "near", "key", "odd key", "type", "itself"]))
    if how in ("far", "near"):
        place = draw(st.integers(0, len(names) - 1))
        names[place] = "zz" if how == "far" else names[place][:-1]
        return {f"{pointer}/{place}"}
    if how in ("key", "odd key"):
        wrong = key[:-1] if how == "key" else {"next": "then", "depends_on": "after"}[key]
        node[wrong] = node.pop(key)
        return {f"/nodes/{node_id}/{wrong}"}
    if how == "type":
        node[key] = 5
        return {pointer}
    names.append(node_id)
    return {f"{pointer}/{len(names) - 1}"}


@st.composite
def broken_files(draw: st.DrawFn) -> tuple[Nodes, set[str]]:
    nodes = draw(good_files())
    places = [
        (node_id, key) for node_id in nodes for key in ("next", "depends_on") if nodes[node_id].get(key)
    ]
    chosen = draw(st.sets(st.sampled_from(places), min_size=1, max_size=3))
    return nodes, set().union(*(_break(draw, nodes, *place) for place in sorted(chosen)))


@settings(deadline=None, max_examples=120)
@given(good_files())
def test_the_files_made_here_are_good(nodes: Nodes) -> None:
    assert found_in(nodes) == set()


@settings(deadline=None, max_examples=120)
@given(broken_files())
def test_a_broken_edge_is_reported_once_and_nothing_that_follows_from_it(
    broken: tuple[Nodes, set[str]],
) -> None:
    nodes, pointers = broken
    assert {pointer for _, pointer in found_in(nodes)} == pointers


# What hangs on a broken edge, and what does not


def test_a_name_near_to_none_may_mean_any_node_that_could_follow() -> None:
    nodes = "s: {type: start, next: [b]}\nb: {handler: h, next: zz}\nlonely: {handler: h}"
    assert found(nodes) == {("dag_unknown_node", "/nodes/b/next")}


def test_a_name_near_to_another_means_that_one() -> None:
    nodes = "s: {type: start, next: reprojct}\nreproject: {handler: h}\nlonely: {handler: h}"
    assert found(nodes) == {("dag_unknown_node", "/nodes/s/next"), ("dag_unreachable", "/nodes/lonely")}


def test_end_in_small_letters_means_the_end() -> None:
    nodes = "s: {type: start, next: b}\nb: {handler: h, next: end}\nlonely: {handler: h}"
    assert found(nodes) == {("dag_unknown_node", "/nodes/b/next"), ("dag_unreachable", "/nodes/lonely")}


def test_a_pointer_on_an_island_does_not_make_it_reachable() -> None:
    nodes = "s: {type: start}\na: {handler: h, next: zz}\nb: {handler: h}"
    assert ("dag_unreachable", "/nodes/a") in found(nodes)
    assert ("dag_unreachable", "/nodes/b") in found(nodes)


def test_a_self_dependency_and_a_cycle_do_not_hide_an_island() -> None:
    nodes = (
        "s: {type: start, next: a}\na: {handler: h, next: [a, b]}\nb: {handler: h, next: c}\n"
        "c: {handler: h, next: b}\nisland: {handler: h}"
    )
    assert found(nodes) == {
        ("dag_self_dependency", "/nodes/a/next/0"),
        ("dag_cycle", "/nodes/b"),
        ("dag_unreachable", "/nodes/island"),
    }


def test_nodes_on_a_cycle_may_read_from_each_other_but_not_from_what_is_apart() -> None:
    nodes = (
        "a: {handler: h, next: b, params: {x: '{{ nodes.b.output }}'}}\n"
        "b: {handler: h, next: a, params: {x: '{{ nodes.c.output }}', y: '{{ nodes.b.output }}'}}\n"
        "c: {handler: h, depends_on: b, params: {x: '{{ nodes.a.output }}'}}\nd: {handler: h}"
    )
    assert found(nodes) == {
        ("dag_cycle", "/nodes/a"),
        ("dag_not_an_ancestor", "/nodes/b/params/x"),
        ("dag_not_an_ancestor", "/nodes/b/params/y"),
    }


def test_a_node_of_an_unknown_type_may_be_the_fan_out_and_lead_by_its_branches() -> None:
    nodes = "o: {type: fanout, source: [1], task: {handler: h}, next: f}\nf: {type: fan_in}"
    assert found(nodes) == {("unknown_kind", "/nodes/o/type")}
    nodes = "s: {type: start, next: c}\nc: {type: cond, branches: {true: a, false: END}}\na: {handler: h}"
    assert found(nodes) == {("unknown_kind", "/nodes/c/type")}


@pytest.mark.parametrize(
    "node",
    [
        "{handler: h, next: *x}",
        "{handler: h, <<: *x}",
        "{handler: h, next: END, next: b}",
        "*x",
        "",
        "{type: task, handler: h, branches: {true: b, false: END}}",
        "{type: conditional, branches: [{default: true, nxt: b}]}",
        "{type: conditional, branches: [{default: true}], next: b}",
        "{type: conditional, branches: b}",
        "{type: conditional, branches: [b]}",
    ],
)
def test_an_unreadable_pointer_may_have_been_the_edge(node: str) -> None:
    last = "b: {handler: h, params: {x: '{{ nodes.a.output }}'}}"
    nodes = f"s: {{type: start, next: a}}\na: {node}\n{last}"
    assert {code for code, _ in found(nodes)}.isdisjoint({"dag_unreachable", "dag_not_an_ancestor"})


def test_an_unreadable_value_elsewhere_hides_nothing() -> None:
    nodes = "s: {type: start, next: a}\na: {handler: h, params: {x: *x}}\nb: {handler: h}"
    assert found(nodes) == {("yaml_alias", "/nodes/a/params/x"), ("dag_unreachable", "/nodes/b")}
