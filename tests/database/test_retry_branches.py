"""Retry and choices: what is behind a branch that a kept choice did not take is not said to run again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.api_client import ApiClient
from tests.support.counted_handlers import Handlers, has_statuses, preview
from tests.support.harness import Harness

from cograil.errors import Conflict

CHOICE = """
workflow_id: choice
inputs: {size: {type: integer, default: 1}}
nodes:
  begin: {handler: count, next: choose}
  choose:
    type: conditional
    branches:
      - {name: large, condition: "inputs.size > 10", next: pack}
      - {name: small, default: true, next: post}
  pack: {handler: count, next: weigh}
  weigh: {handler: count, next: send}
  post: {handler: count, next: send}
  send: {handler: count, next: told}
  told: {handler: count}
"""


@pytest.fixture
def handlers(harness: Harness) -> Handlers:
    return Handlers(harness)


async def ended(harness: Harness) -> str:
    async with harness.running():
        job = await harness.submit(CHOICE)
        await harness.ended(job)
    return job


@pytest.mark.parametrize("node", ["pack", "weigh"])
async def test_a_retry_from_behind_an_untaken_branch_is_refused_and_says_which_choice(
    harness: Harness, handlers: Handlers, node: str
) -> None:
    job = await ended(harness)
    for ask in (preview, Harness.retry):
        with pytest.raises(Conflict, match=r"branch 'large' of 'choose', which took 'small'.*from 'choose'"):
            await ask(harness, job, node)
    with pytest.raises(Conflict):  # the choice is kept, and has read the old one
        await preview(harness, job, node, inputs={"size": 100})
    assert await harness.rows("select count(*) from cograil.jobs") == [(1,)]


async def test_nodes_skipped_by_a_kept_choice_are_shown_as_skipped(
    harness: Harness, handlers: Handlers
) -> None:
    handlers.bad = {"send"}
    job = await ended(harness)
    seen = await preview(harness, job)
    assert (seen.skipped, seen.again) == (("pack", "weigh"), ("send", "told"))
    handlers.bad.clear()
    async with harness.running():
        again = await harness.retry(job)
        assert (await harness.ended(again))["status"] == "completed"
    skipped = {name for name, status in (await harness.statuses(again)).items() if status == "skipped"}
    assert skipped == set(seen.skipped)


async def test_a_choice_that_is_made_again_may_take_another_branch(
    harness: Harness, handlers: Handlers
) -> None:
    job = await ended(harness)
    seen = await preview(harness, job, "choose", inputs={"size": 100})
    assert seen.skipped == ()
    assert {"choose", "pack", "weigh", "post", "send"} <= set(seen.again)
    handlers.runs.clear()
    async with harness.running():
        await harness.ended(await harness.retry(job, "choose", inputs={"size": 100}))
    assert handlers.runs == {"pack": 1, "weigh": 1, "send": 1, "told": 1}


async def test_in_place_too_what_no_branch_leads_to_stays_skipped(
    harness: Harness, handlers: Handlers, eventually: Any
) -> None:
    text = """
workflow_id: place
nodes:
  work: {handler: count, next: [join, tell]}
  choose:
    type: conditional
    branches:
      - {name: never, condition: "1 > 2", next: join}
      - {name: other, default: true, next: after}
  join: {handler: count, depends_on: work}
  after: {handler: count}
  tell: {handler: count}
  slow: {handler: hold}
"""
    handlers.bad = {"work"}
    async with harness.running():
        job = await harness.submit(text)
        await eventually(lambda: has_statuses(harness, job, tell="skipped", after="completed"))
        seen = await preview(harness, job, "work")
        assert (seen.is_in_place, seen.again, seen.skipped) == (True, ("work", "tell"), ("join",))
        handlers.bad.clear()
        await harness.retry(job, "work")
        handlers.held.set()
        await harness.ended(job)
    assert (await harness.statuses(job))["join"] == "skipped"


async def test_the_api_refuses_and_shows_the_same(api: ApiClient) -> None:
    handlers = Handlers(api.harness)
    job = await ended(api.harness)
    for body in ({"preview": True}, {}):
        answer = await api.post(f"/api/v1/jobs/{job}/nodes/pack/retry", body)
        assert (answer.status, answer.code) == (409, "conflict")
        assert "'choose'" in answer.body["detail"]
    seen = await api.post(f"/api/v1/jobs/{job}/retry", {"from_node": "send", "preview": True})
    assert seen.body["skipped"] == ["pack", "weigh"]
    assert handlers.runs["pack"] == 0
