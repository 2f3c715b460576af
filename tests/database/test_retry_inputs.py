"""Retry with other inputs, and what a preview says before it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.counted_handlers import SIDE, Handlers, has_statuses, preview
from tests.support.harness import Harness

from cograil.errors import InvalidInput, NotFinished

WIDE = """
workflow_id: wide
inputs:
  x: {type: integer, default: 7}
  y: {type: integer, default: 1}
  items: {type: array, default: [1, 2]}
nodes:
  a: {handler: count, params: {x: "{{ inputs.x }}"}, next: [b, split]}
  b: {handler: count, params: {x: "{{ inputs.y }}"}, next: c}
  c: {handler: count, params: {x: "{{ nodes.b.output.x }}", first: "{{ nodes.a.output.x }}"}}
  whole: {handler: count, params: {x: "{{ inputs }}"}}
  split:
    type: fan_out
    source: "{{ inputs['items'] }}"
    task: {handler: count, params: {x: "{{ item }}"}, retry: {max_attempts: 1}}
    next: gather
  gather: {type: fan_in}
"""


@pytest.fixture
def handlers(harness: Harness) -> Handlers:
    return Handlers(harness)


async def test_edited_inputs_go_on_top_of_the_old_ones_for_what_runs_again(
    harness: Harness, handlers: Handlers
) -> None:
    async with harness.running():
        old = await harness.submit(WIDE, {"x": 2, "y": 3})
        await harness.ended(old)
        new = await harness.ended(await harness.retry(old, "b", inputs={"y": 30, "x": 20}))
    assert new["input_params"] == {"x": 20, "y": 30, "items": [1, 2]}
    assert new["result"]["c"] == {"x": 30}
    assert new["result"]["a"] == {"x": 2}, "kept, though its input was changed"
    assert (await harness.job(old))["input_params"] == {"x": 2, "y": 3, "items": [1, 2]}
    assert handlers.runs == {"a": 1, "b": 2, "c": 2, "whole": 1, "split__0": 1, "split__1": 1}
    assert (await harness.nodes(new["job_id"]))["c"]["input"] == {"x": 30, "first": 2}


async def test_edited_inputs_are_checked_like_those_of_a_submission(
    harness: Harness, handlers: Handlers
) -> None:
    async with harness.running():
        old = await harness.submit(WIDE)
        await harness.ended(old)
    for wrong in ({"y": "three"}, {"z": 1}, {"y": None}):
        with pytest.raises(InvalidInput):
            await harness.retry(old, "b", inputs=wrong)
        with pytest.raises(InvalidInput):
            await preview(harness, old, "b", inputs=wrong)
    assert await harness.rows("select count(*) from cograil.jobs") == [(1,)]


async def test_a_preview_tells_what_is_kept_and_what_runs_again_and_changes_nothing(
    harness: Harness, handlers: Handlers
) -> None:
    async with harness.running():
        old = await harness.submit(WIDE)
        await harness.ended(old)
        before = await harness.job(old), await harness.nodes(old), await harness.events(old)
        seen = await preview(harness, old, "b", inputs={"y": 2, "x": 7})
        assert await harness.rows("select count(*) from cograil.jobs") == [(1,)]
        assert (await harness.job(old), await harness.nodes(old), await harness.events(old)) == before
        handlers.runs.clear()
        await harness.ended(await harness.retry(old, "b", inputs={"y": 2, "x": 7}))
    assert (seen.job_id, seen.is_in_place) == (old, False)
    assert (set(seen.kept), seen.again) == ({"a", "whole", "split", "gather"}, ("b", "c"))
    assert seen.changed == ("y",), "x has this value already"
    assert seen.outdated == {"whole": ("y",)}, "it read all of them"
    assert handlers.runs.keys() == set(seen.again)


async def test_a_preview_tells_which_kept_nodes_have_read_what_is_changed(
    harness: Harness, handlers: Handlers
) -> None:
    handlers.bad = {"split__1"}
    async with harness.running():
        old = await harness.submit(WIDE)
        assert (await harness.ended(old))["status"] == "failed"
    seen = await preview(harness, old, inputs={"x": 0, "items": []})
    assert (seen.reopened, seen.again) == (("split",), ("gather",))
    assert seen.outdated == {"a": ("x",), "whole": ("x", "items"), "split": ("items",)}
    assert (await preview(harness, old, "split", inputs={"items": []})).outdated == {"whole": ("items",)}


async def test_a_preview_of_a_retry_in_place_names_the_node_and_what_follows(
    harness: Harness, handlers: Handlers, eventually: Any
) -> None:
    handlers.bad = {"b"}
    async with harness.running():
        job = await harness.submit(SIDE)
        await eventually(lambda: has_statuses(harness, job, d="skipped"))
        seen = await preview(harness, job, "b")
        assert (seen.is_in_place, seen.kept, seen.again) == (True, ("a",), ("b", "c", "d"))
        with pytest.raises(NotFinished, match="other inputs"):
            await harness.retry(job, "b", inputs={"x": 1})
        handlers.held.set()
        await harness.ended(job)
