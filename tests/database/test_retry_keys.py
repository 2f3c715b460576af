"""Idempotency keys along retries: what had not completed keeps its key, what had completed gets a new one."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from lab import Lab

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

    def __init__(self, lab: Lab) -> None:
        self.keys: dict[str, list[str]] = defaultdict(list)
        self.bad: set[str] = set()

        async def note(ctx: Context) -> dict[str, Any]:
            self.keys[ctx.node_id].append(ctx.idempotency_key)
            if ctx.node_id in self.bad:
                raise Fail(f"{ctx.node_id} is bad")
            return {}

        lab.registry.register(note, "note")


@pytest.fixture
def notes(lab: Lab) -> Notes:
    return Notes(lab)


async def test_what_had_not_completed_keeps_its_key_over_many_retries(lab: Lab, notes: Notes) -> None:
    notes.bad = {"pay"}
    async with lab.running():
        first = job = await lab.submit(SHOP)
        for _ in range(3):
            await lab.ended(job)
            job = await lab.retry(job)
        notes.bad = set()
        await lab.ended(job)
        last = await lab.retry(job, "ship")
        await lab.ended(last)
    assert notes.keys["order"] == [f"{first}/order"]
    assert set(notes.keys["pay"]) == {f"{first}/pay"}
    assert len(notes.keys["pay"]) >= 4
    assert [key for key in notes.keys["ship"] if not key.startswith(last)] == [f"{first}/ship"]


async def test_what_had_completed_runs_again_with_a_new_key_and_keeps_that(lab: Lab, notes: Notes) -> None:
    notes.bad = {"ship"}
    async with lab.running():
        first = await lab.submit(SHOP)
        await lab.ended(first)
        notes.bad = {"pay"}
        second = await lab.retry(first, "pay")
        await lab.ended(second)
        notes.bad = set()
        third = await lab.retry(second)
        await lab.ended(third)
    assert notes.keys["pay"] == [f"{first}/pay", f"{second}/pay", f"{second}/pay"]
    assert set(notes.keys["ship"]) == {f"{first}/ship"}


async def test_new_keys_can_be_forced_for_all_that_runs(lab: Lab, notes: Notes) -> None:
    notes.bad = {"pay"}
    async with lab.running():
        first = await lab.submit(SHOP)
        await lab.ended(first)
        notes.bad = set()
        second = await lab.retry(first, new_keys=True)
        await lab.ended(second)
    assert notes.keys["pay"] == [f"{first}/pay", f"{second}/pay"]


async def test_in_place_the_key_stays_and_cannot_be_changed(lab: Lab, notes: Notes) -> None:
    text = SHOP + "  hold: {type: approval, approval: {message: m}}\n"
    notes.bad = {"pay"}
    async with lab.running():
        job = await lab.submit(text)
        while (await lab.statuses(job))["pay"] != "failed":
            pass
        with pytest.raises(NotFinished, match="only a new job can have new idempotency keys"):
            await lab.retry(job, "pay", new_keys=True)
        notes.bad = set()
        await lab.retry(job, "pay")
        while (await lab.statuses(job))["ship"] != "completed":
            pass
    assert set(notes.keys["pay"]) == {f"{job}/pay"}
    assert len(notes.keys["pay"]) == 2


async def test_children_of_a_fan_out_keep_their_keys_one_by_one(lab: Lab, notes: Notes) -> None:
    notes.bad = {"split__1"}
    async with lab.running():
        first = await lab.submit(FAN)
        await lab.ended(first)
        second = await lab.retry(first)
        await lab.ended(second)
        third = await lab.retry(second, "split")  # as a whole
        await lab.ended(third)
        notes.bad = set()
        fourth = await lab.retry(third, "split__0")  # and what had not completed
        await lab.ended(fourth)
    assert set(notes.keys["split__1"]) == {f"{first}/split__1"}
    assert notes.keys["split__0"] == [f"{first}/split__0", f"{third}/split__0", f"{fourth}/split__0"]
    assert notes.keys["split__2"] == [f"{first}/split__2", f"{third}/split__2"]


async def test_jobs_of_subworkflows_have_the_key_of_their_node(lab: Lab, notes: Notes) -> None:
    await lab.publish(INNER)
    notes.bad = {"pay"}
    async with lab.running():
        first = await lab.submit(OUTER)
        await lab.ended(first)
        notes.bad = set()
        second = await lab.retry(first)
        await lab.ended(second)
        third = await lab.retry(second, "sub")
        await lab.ended(third)
    assert notes.keys["pay"] == [f"{first}/sub/pay", f"{first}/sub/pay", f"{third}/sub/pay"]


async def test_a_preview_says_which_keys_are_new(lab: Lab, notes: Notes) -> None:
    notes.bad = {"ship"}
    async with lab.running():
        job = await lab.submit(SHOP)
        await lab.ended(job)
        async with lab.db.transaction("preview") as tx:
            plain = await preview_retry(tx, lab.engine_context, job)
            again = await preview_retry(tx, lab.engine_context, job, "pay")
            forced = await preview_retry(tx, lab.engine_context, job, new_keys=True)
    assert (plain.same_keys, plain.new_keys) == (("ship",), ())
    assert (again.same_keys, again.new_keys) == (("ship",), ("pay",))
    assert (forced.same_keys, forced.new_keys) == ((), ("ship",))
