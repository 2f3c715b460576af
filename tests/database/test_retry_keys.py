"""Idempotency keys along retries: what had not completed keeps its key, what had completed gets a new one."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.errors import NotFinished
from cograil.runners.context import Context, Fail
from cograil.verbs.retry import preview_retry

SHOP = """
workflow_id: shop
nodes:
  order: {handler: note, next: pay}
  pay: {handler: note, retry: {max_attempts: 1}, next: ship}
  ship: {handler: note}
"""
FAN = """
workflow_id: fan
nodes:
  split:
    type: fan_out
    source: [0, 1, 2]
    task: {handler: note, retry: {max_attempts: 1}}
    next: after
  after: {handler: note}
"""
INNER = "workflow_id: inner\nnodes: {pay: {handler: note, retry: {max_attempts: 1}}}"
OUTER = """
workflow_id: outer
nodes:
  sub: {type: subworkflow, subworkflow: {workflow_id: inner}, retry: {max_attempts: 1}}
"""


class Notes:
    """The keys that each node had, in order; nodes in `bad` fail after that."""

    def __init__(self, harness: Harness) -> None:
        self.keys: dict[str, list[str]] = defaultdict(list)
        self.bad: set[str] = set()

        async def note(ctx: Context) -> dict[str, Any]:
            self.keys[ctx.node_id].append(ctx.idempotency_key)
            if ctx.node_id in self.bad:
                raise Fail(f"{ctx.node_id} is bad")
            return {}

        harness.registry.register(note, "note")


@pytest.fixture
def notes(harness: Harness) -> Notes:
    return Notes(harness)


async def test_a_node_that_had_not_completed_keeps_its_key_over_many_retries(
    harness: Harness, notes: Notes
) -> None:
    notes.bad = {"pay"}
    async with harness.running():
        first = job = await harness.submit(SHOP)
        for _ in range(3):
            await harness.ended(job)
            job = await harness.retry(job)
        notes.bad = set()
        await harness.ended(job)
        last = await harness.retry(job, "ship")
        await harness.ended(last)
    assert notes.keys["order"] == [f"{first}/order"]
    assert set(notes.keys["pay"]) == {f"{first}/pay"}
    assert len(notes.keys["pay"]) >= 4
    assert [key for key in notes.keys["ship"] if not key.startswith(last)] == [f"{first}/ship"]


async def test_a_node_that_had_completed_runs_again_with_a_new_key_and_keeps_that(
    harness: Harness, notes: Notes
) -> None:
    notes.bad = {"ship"}
    async with harness.running():
        first = await harness.submit(SHOP)
        await harness.ended(first)
        notes.bad = {"pay"}
        second = await harness.retry(first, "pay")
        await harness.ended(second)
        notes.bad = set()
        third = await harness.retry(second)
        await harness.ended(third)
    assert notes.keys["pay"] == [f"{first}/pay", f"{second}/pay", f"{second}/pay"]
    assert set(notes.keys["ship"]) == {f"{first}/ship"}


async def test_new_keys_can_be_forced_for_all_that_runs(harness: Harness, notes: Notes) -> None:
    notes.bad = {"pay"}
    async with harness.running():
        first = await harness.submit(SHOP)
        await harness.ended(first)
        notes.bad = set()
        second = await harness.retry(first, new_keys=True)
        await harness.ended(second)
    assert notes.keys["pay"] == [f"{first}/pay", f"{second}/pay"]


async def test_in_place_the_key_stays_and_cannot_be_changed(harness: Harness, notes: Notes) -> None:
    text = SHOP + "  hold: {type: approval, approval: {message: m}}\n"
    notes.bad = {"pay"}
    async with harness.running():
        job = await harness.submit(text)
        while (await harness.statuses(job))["pay"] != "failed":
            pass
        with pytest.raises(NotFinished, match="only a new job can have new idempotency keys"):
            await harness.retry(job, "pay", new_keys=True)
        notes.bad = set()
        await harness.retry(job, "pay")
        while (await harness.statuses(job))["ship"] != "completed":
            pass
    assert set(notes.keys["pay"]) == {f"{job}/pay"}
    assert len(notes.keys["pay"]) == 2


async def test_children_of_a_fan_out_keep_their_keys_one_by_one(harness: Harness, notes: Notes) -> None:
    notes.bad = {"split__1"}
    async with harness.running():
        first = await harness.submit(FAN)
        await harness.ended(first)
        second = await harness.retry(first)
        await harness.ended(second)
        third = await harness.retry(second, "split")  # as a whole
        await harness.ended(third)
        notes.bad = set()
        fourth = await harness.retry(third, "split__0")  # and what had not completed
        await harness.ended(fourth)
    assert set(notes.keys["split__1"]) == {f"{first}/split__1"}
    assert notes.keys["split__0"] == [f"{first}/split__0", f"{third}/split__0", f"{fourth}/split__0"]
    assert notes.keys["split__2"] == [f"{first}/split__2", f"{third}/split__2"]


async def test_jobs_of_subworkflows_have_the_key_of_their_node(harness: Harness, notes: Notes) -> None:
    await harness.publish(INNER)
    notes.bad = {"pay"}
    async with harness.running():
        first = await harness.submit(OUTER)
        await harness.ended(first)
        notes.bad = set()
        second = await harness.retry(first)
        await harness.ended(second)
        third = await harness.retry(second, "sub")
        await harness.ended(third)
    assert notes.keys["pay"] == [f"{first}/sub/pay", f"{first}/sub/pay", f"{third}/sub/pay"]


async def test_a_preview_says_which_keys_are_new(harness: Harness, notes: Notes) -> None:
    notes.bad = {"ship"}
    async with harness.running():
        job = await harness.submit(SHOP)
        await harness.ended(job)
        async with harness.db.transaction("preview") as tx:
            plain = await preview_retry(tx, harness.engine_context, job)
            again = await preview_retry(tx, harness.engine_context, job, "pay")
            forced = await preview_retry(tx, harness.engine_context, job, new_keys=True)
    assert (plain.same_keys, plain.new_keys) == (("ship",), ())
    assert (again.same_keys, again.new_keys) == (("ship",), ("pay",))
    assert (forced.same_keys, forced.new_keys) == ((), ("ship",))
