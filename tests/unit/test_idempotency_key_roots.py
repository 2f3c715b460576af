"""Idempotency keys over chains of retries: the key of a node changes only after it has completed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cograil.definitions import read_workflow
from cograil.engine.retry_keys import Rerun, plan_keys
from cograil.model.idempotency_keys import KeyRoots, child_roots, key_root
from cograil.model.job import NodeState
from cograil.verbs.retry import decide_takeover

WORKFLOW = read_workflow(
    """
workflow_id: w
nodes:
  a: {handler: echo, next: b}
  b: {handler: echo, next: split}
  split: {type: fan_out, source: [0, 1, 2, 3, 4], task: {handler: echo}, next: d}
  c: {handler: echo, next: d}
  d: {handler: echo}
"""
)
ITEMS = 5
CHILDREN = [f"split__{index}" for index in range(ITEMS)]
KEYED = ["a", "b", "c", "d", *CHILDREN]
ENDS = st.sampled_from(["completed", "failed"])


def keys_of(roots: KeyRoots) -> dict[str, str]:
    return {name: roots.root_of(name, "split" if name in CHILDREN else None) for name in KEYED}


@given(st.data())
def test_a_key_changes_only_for_what_had_completed_and_runs_again(data: Any) -> None:
    job, text = "job0", None
    done: set[str] = set()
    for number in range(1, 5):
        done |= {name for name in KEYED if name not in done and data.draw(ENDS) == "completed"}
        nodes = {name: NodeState(name, "completed" if name in done else "failed") for name in "abcd"}
        children = [name for name in CHILDREN if name in done]
        failed = ITEMS - len(children)
        nodes["split"] = NodeState(
            "split", "completed", total=ITEMS, expanded=ITEMS, ended=ITEMS, failed=failed
        )
        named = data.draw(st.sampled_from([None, *KEYED, "split"]))
        takeover = decide_takeover(WORKFLOW, nodes, named)
        is_whole = "split" not in takeover.kept | takeover.reopened
        child = None
        if named in CHILDREN:
            child = NodeState(named, "completed" if named in done else "failed", parent="split", index=0)
        else:
            child = None if named is None else nodes[named]
        again = Rerun(nodes, takeover.kept, takeover.reopened, {"split": children} if is_whole else {}, child)
        before = keys_of(KeyRoots.read(text, job))
        new_job = f"job{number}"
        plan = plan_keys(WORKFLOW, KeyRoots.read(text, job), again, new_job, is_new=False)
        after = keys_of(KeyRoots.read(plan.roots, new_job))
        rerun = {name for name in "abcd" if name not in takeover.kept}
        rerun |= set(CHILDREN) if is_whole else {named} & set(CHILDREN)
        changed = {name for name in KEYED if after[name] != before[name]}
        assert changed == done & rerun
        assert all(after[name] == new_job for name in changed)
        plain = {name for name in changed if name not in CHILDREN or not is_whole}
        assert plain <= set(plan.new)
        assert not set(plan.new) & set(plan.same)
        done -= rerun
        job, text = new_job, plan.roots


def test_new_keys_are_those_of_the_new_job() -> None:
    nodes = {"a": NodeState("a", "failed")}
    again = Rerun(nodes, frozenset(), frozenset(), {}, None)
    plan = plan_keys(WORKFLOW, KeyRoots.read(None, "old"), again, "new", is_new=True)
    assert (plan.roots, plan.same) == (None, ())
    assert "a" in plan.new


@pytest.mark.parametrize("completed", [[], CHILDREN[:1], CHILDREN[1:], CHILDREN])
def test_the_fewer_children_are_named(completed: list[str]) -> None:
    roots = KeyRoots(["old"])
    roots.renew_children("new", "split", ITEMS, completed)
    assert {name for name in CHILDREN if roots.root_of(name, "split") == "new"} == set(completed)
    assert len(roots.of) <= 2


def test_most_jobs_have_no_roots_and_children_have_their_nodes() -> None:
    assert key_root(None, "job", "a") is None
    inner = child_roots(None, "job", "sub")
    assert key_root(inner, "child", "pay") == "job/sub"
    assert key_root(child_roots(inner, "child", "deep"), "grandchild", "pay") == "job/sub/deep"
