"""Retry with other inputs, and what a preview says before it."""

from __future__ import annotations

from typing import Any

import pytest
from lab import Lab
from test_retry import SIDE, Handlers, _is

from cograil.errors import InvalidInput, NotFinished
from cograil.verbs.retry import RetryForecast, preview_retry

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
def handlers(lab: Lab) -> Handlers:
    return Handlers(lab)


async def preview(lab: Lab, job: str, node: str | None = None, **more: Any) -> RetryForecast:
    async with lab.db.transaction("preview") as tx:
        return await preview_retry(tx, lab.engine_context, job, node, **more)


async def test_edited_inputs_go_on_top_of_the_old_ones_for_what_runs_again(
    lab: Lab, handlers: Handlers
) -> None:
    async with lab.running():
        old = await lab.submit(WIDE, {"x": 2, "y": 3})
        await lab.ended(old)
        new = await lab.ended(await lab.retry(old, "b", inputs={"y": 30, "x": 20}))
    assert new["input_params"] == {"x": 20, "y": 30, "items": [1, 2]}
    assert new["result"]["c"] == {"x": 30}
    assert new["result"]["a"] == {"x": 2}, "kept, though its input was changed"
    assert (await lab.job(old))["input_params"] == {"x": 2, "y": 3, "items": [1, 2]}
    assert handlers.runs == {"a": 1, "b": 2, "c": 2, "whole": 1, "split__0": 1, "split__1": 1}
    assert (await lab.nodes(new["job_id"]))["c"]["input"] == {"x": 30, "first": 2}


async def test_edited_inputs_are_checked_like_those_of_a_submission(lab: Lab, handlers: Handlers) -> None:
    async with lab.running():
        old = await lab.submit(WIDE)
        await lab.ended(old)
    for wrong in ({"y": "three"}, {"z": 1}, {"y": None}):
        with pytest.raises(InvalidInput):
            await lab.retry(old, "b", inputs=wrong)
        with pytest.raises(InvalidInput):
            await preview(lab, old, "b", inputs=wrong)
    assert await lab.rows("select count(*) from cograil.jobs") == [(1,)]


async def test_a_preview_tells_what_is_kept_and_what_runs_again_and_changes_nothing(
    lab: Lab, handlers: Handlers
) -> None:
    async with lab.running():
        old = await lab.submit(WIDE)
        await lab.ended(old)
        before = await lab.job(old), await lab.nodes(old), await lab.events(old)
        seen = await preview(lab, old, "b", inputs={"y": 2, "x": 7})
        assert await lab.rows("select count(*) from cograil.jobs") == [(1,)]
        assert (await lab.job(old), await lab.nodes(old), await lab.events(old)) == before
        handlers.runs.clear()
        await lab.ended(await lab.retry(old, "b", inputs={"y": 2, "x": 7}))
    assert (seen.job_id, seen.is_in_place) == (old, False)
    assert (set(seen.kept), seen.again) == ({"a", "whole", "split", "gather"}, ("b", "c"))
    assert seen.changed == ("y",), "x has this value already"
    assert seen.outdated == {"whole": ("y",)}, "it read all of them"
    assert handlers.runs.keys() == set(seen.again)


async def test_a_preview_tells_which_kept_nodes_have_read_what_is_changed(
    lab: Lab, handlers: Handlers
) -> None:
    handlers.bad = {"split__1"}
    async with lab.running():
        old = await lab.submit(WIDE)
        assert (await lab.ended(old))["status"] == "failed"
    seen = await preview(lab, old, inputs={"x": 0, "items": []})
    assert (seen.reopened, seen.again) == (("split",), ("gather",))
    assert seen.outdated == {"a": ("x",), "whole": ("x", "items"), "split": ("items",)}
    assert (await preview(lab, old, "split", inputs={"items": []})).outdated == {"whole": ("items",)}


async def test_a_preview_of_a_retry_in_place_names_the_node_and_what_follows(
    lab: Lab, handlers: Handlers, eventually: Any
) -> None:
    handlers.bad = {"b"}
    async with lab.running():
        job = await lab.submit(SIDE)
        await eventually(lambda: _is(lab, job, d="skipped"))
        seen = await preview(lab, job, "b")
        assert (seen.is_in_place, seen.kept, seen.again) == (True, ("a",), ("b", "c", "d"))
        with pytest.raises(NotFinished, match="other inputs"):
            await lab.retry(job, "b", inputs={"x": 1})
        handlers.held.set()
        await lab.ended(job)
