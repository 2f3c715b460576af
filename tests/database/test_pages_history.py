"""The pages of nodes: what each attempt was given, and nodes, children and questions as they once were."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from tests.support.api_client import ApiClient
from tests.support.harness import Harness, ManualWorker
from tests.support.page_client import PageClient

from cograil.model.outcome import Failed
from cograil.store import job_snapshot as store
from cograil.ui.pages import node_page

PART = "workflow_id: part\nnodes:\n  work: {handler: echo, retry: {max_attempts: 1}}\n"
FAMILY = """
workflow_id: family
nodes:
  guess: {handler: guess, required: false, retry: {max_attempts: 1}, next: sub}
  sub:
    type: subworkflow
    retry: {max_attempts: 2, initial_delay_seconds: 0}
    subworkflow:
      workflow_id: part
      inputs: {n: "{{ nodes.guess.output | default('nothing', true) | tojson }}"}
"""
FAN = """
workflow_id: fan
nodes:
  spread:
    type: fan_out
    source: [7, 8, 9]
    task: {handler: echo, params: {item: "{{ item }}"}}
    next: gather
  gather: {type: fan_in}
"""
ASK = """
workflow_id: ask
nodes:
  question: {type: approval, approval: {message: Well?, timeout_seconds: 0.01, on_timeout: fail}}
  other: {type: approval, approval: {message: And this?}}
"""
WRONG = """
workflow_id: wrong
nodes:
  task: {handler: wrong, params: {n: 1}, retry: {max_attempts: 9, initial_delay_seconds: 0}}
"""


@pytest.fixture
def browser(api: ApiClient) -> PageClient:
    return PageClient(api)


async def end(harness: Harness, worker: ManualWorker, node_id: str, outcome: Any) -> None:
    """Report the attempt that is there, and let what it means happen."""
    (item,) = await worker.claim()
    assert item.node_id == node_id
    assert await worker.report(item, outcome)
    while await harness.advance():
        pass


async def seqs(harness: Harness, job_id: str, node_id: str, kind: str) -> list[int]:
    events = await harness.events(job_id)
    return [e["seq"] for e in events if (e["node_id"], e["event_type"]) == (node_id, kind)]


async def given(browser: PageClient, path: str) -> Any:
    """What the page says the node was given; None when it says that it was given nothing."""
    page = await browser.get(path)
    assert page.status == 200
    match = re.search(rb'data-copy="([^"]*)" aria-label="Copy Input"', page.raw)
    return None if match is None else orjson.loads(match[1].replace(b"&#34;", b'"').replace(b"&#39;", b"'"))


async def twice_begun(harness: Harness) -> str:
    """A job whose second attempt at a child job is given what the first one could not have."""
    await harness.publish(PART)
    job_id = await harness.submit(FAMILY)
    worker = await harness.manual_worker()
    await end(harness, worker, "guess", Failed("no", "no idea", retryable=False))
    await harness.retry(job_id, "guess")
    (work, guess) = sorted(await worker.claim(2), key=lambda item: item.job_id == job_id)
    assert await worker.report(guess, {"n": 2})
    assert await worker.report(work, Failed("no", "no", retryable=False))
    while await harness.advance():
        pass
    await end(harness, worker, "work", {})
    return job_id


async def test_an_attempt_that_was_given_something_else_is_shown_with_it(
    browser: PageClient, harness: Harness
) -> None:
    job_id = await twice_begun(harness)
    first, second = await seqs(harness, job_id, "sub", "child_started")
    own = f"/ui/jobs/{job_id}/nodes/sub"
    assert (await given(browser, own))["inputs"] == {"n": '{"n":2}'}
    assert (await given(browser, f"{own}?at={first}"))["inputs"] == {"n": '"nothing"'}
    assert (await given(browser, f"{own}?at={second}"))["inputs"] == {"n": '{"n":2}'}
    assert await given(browser, f"{own}?at={first - 2}") is None
    page = await browser.get(own)
    assert page.raw.count(b'data-name="Child job"') == 2  # each attempt, with the job that it was
    assert b'aria-label="Input of attempt 1"' in page.raw
    async with harness.db.transaction("test") as tx:
        node = await store.show_node(tx, job_id, "sub", "default")
    assert node is not None
    assert [earlier["input"]["inputs"] for earlier in node["earlier_inputs"]] == [{"n": '"nothing"'}]


async def test_a_question_that_is_asked_again_was_another_one_before(
    browser: PageClient, harness: Harness
) -> None:
    job_id = await harness.submit(ASK)
    await harness.rows("select pg_sleep(0.02)")
    await harness.advance()
    assert (await harness.statuses(job_id))["question"] == "failed"
    before = await given(browser, f"/ui/jobs/{job_id}/nodes/question")
    await harness.retry(job_id, "question")
    asked_seq, _ = await seqs(harness, job_id, "question", "approval_requested")
    now = await given(browser, f"/ui/jobs/{job_id}/nodes/question")
    assert now["deadline"] > before["deadline"]
    assert await given(browser, f"/ui/jobs/{job_id}/nodes/question?at={asked_seq}") == before


async def test_a_task_keeps_its_input_over_all_attempts_and_so_keeps_one(
    harness: Harness, browser: PageClient
) -> None:
    job_id = await harness.submit(WRONG)
    worker = await harness.manual_worker()
    for _ in range(3):
        await end(harness, worker, "task", Failed("no", "no"))
    assert await harness.rows("select input::text, earlier_inputs from cograil.nodes") == [('{"n":1}', None)]
    page = await browser.get(f"/ui/jobs/{job_id}/nodes/task")
    assert b"Input of attempt" not in page.raw


async def test_the_last_of_many_events_are_shown(
    harness: Harness, browser: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_page, "EVENTS", 8)
    job_id = await harness.submit(WRONG)
    worker = await harness.manual_worker()
    for _ in range(5):
        await end(harness, worker, "task", Failed("no", "no"))
    page = await browser.get(f"/ui/jobs/{job_id}/nodes/task")
    numbers = re.findall(rb'data-name="Attempt" class="right">(\d)', page.raw)
    assert numbers[-1] == b"6"


async def test_an_attempt_that_was_handed_back_did_not_go_on_running(
    harness: Harness, browser: PageClient
) -> None:
    job_id = await harness.submit(WRONG)
    worker = await harness.manual_worker()
    (item,) = await worker.claim()
    await worker.release(item)
    await harness.advance()
    page = await browser.get(f"/ui/jobs/{job_id}/nodes/task")
    outcomes = re.findall(rb'data-name="Outcome"><span class="badge (\w+)', page.raw)
    assert outcomes == [b"released", b"dispatched"]


async def test_children_are_shown_as_they_were(browser: PageClient, harness: Harness) -> None:
    job_id = await harness.submit(FAN)
    worker = await harness.manual_worker()
    items = await worker.claim(3)
    for item in sorted(items, key=lambda item: item.node_id):
        assert await worker.report(item, {"done": item.node_id})
        while await harness.advance():
            pass
    first, second, _ = [
        (await seqs(harness, job_id, f"spread__{index}", "node_completed"))[0] for index in range(3)
    ]
    own = f"/ui/jobs/{job_id}/nodes/spread"

    async def strip(at: int) -> str:
        answer = await browser.get(f"{own}/strip?at={at}", accept="*/*")
        return str(orjson.loads(answer.raw)["strip"])

    assert (await strip(first), await strip(second)) == ("cdd", "ccd")
    page = await browser.get(f"{own}?at={first}")
    assert b"1 completed" in page.raw
    assert f"spread__1?at={first}".encode() in page.raw
    assert page.raw.count(b'<span class="badge completed">') == 1
    child = await browser.get(f"{own}__1?at={first}")
    assert b'<span class="badge completed">' not in child.raw
    assert b"{\n  &#34;done" not in child.raw
    assert await given(browser, f"{own}__1?at={first}") == {"item": 8}
    child = await browser.get(f"{own}__1?at={second}")
    assert b'<span class="badge completed">' in child.raw
    assert (await browser.get(f"{own}__1?at=9999")).status == 404


async def test_the_moment_of_the_past_is_that_of_its_event_also_of_a_child(
    browser: PageClient, harness: Harness
) -> None:
    job_id = await harness.submit(FAN)
    worker = await harness.manual_worker()
    (item,) = await worker.claim()
    await harness.rows("select pg_sleep(0.03)")
    assert await worker.report(item, {})
    await harness.advance()
    (done,) = await seqs(harness, job_id, item.node_id, "node_completed")
    (begun,) = await seqs(harness, job_id, "spread", "node_started")
    moments = []
    for seq in (begun, done):
        answer = await browser.get(f"/ui/jobs/{job_id}/at?seq={seq}", accept="*/*")
        moments.append(orjson.loads(answer.raw)["now"])
    assert moments[1] - moments[0] >= 30
    page = await browser.get(f"/ui/jobs/{job_id}/nodes/spread?at={begun}")
    assert b"<dt>Took</dt><dd>0 ms</dd>" in page.raw  # until then, not until now
