"""Approvals: who may answer, when an answer counts, and what silence means."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.cli import main
from cograil.errors import (
    AlreadyTerminal,
    Conflict,
    Forbidden,
    InvalidInput,
    JobNotFound,
    NodeNotFound,
    UsageError,
)
from cograil.model.job import Signalled
from cograil.verbs.signal import ApprovalAnswer, signal

ASK = """
workflow_id: ask
inputs:
  what: {type: string, default: it}
nodes:
  q: {type: approval, approval: {message: "release {{ inputs.what }}?", approvers: [ann, bob]}, next: done}
  done: {handler: echo, params: {decision: "{{ output.decision }}", by: "{{ output.by }}"}}
"""
TIMED = """
workflow_id: timed
nodes:
  q: {type: approval, required: REQUIRED, approval: {message: m, timeout_seconds: 3600, on_timeout: WAY}}
"""
FORM = """
workflow_id: form
nodes:
  q:
    type: approval
    approval:
      message: when?
      form:
        type: object
        properties: {window: {enum: [tonight, tomorrow]}, count: {type: integer, minimum: 1}}
        required: [window]
        additionalProperties: false
"""


async def answer(
    harness: Harness, job: str, name: str = "approve", node: str = "q", **more: Any
) -> ApprovalAnswer:
    async with harness.db.transaction("signal") as tx:
        return await signal(tx, harness.engine_context, job, Signalled(name, node, **more))


async def let_time_pass(harness: Harness, job: str) -> None:
    """The hour that the approval has is over."""
    past = "now() - interval '1 s'"
    query = f"update cograil.nodes set not_before = {past} where job_id = %(id)s and status = 'waiting'"
    await harness.rows(query, id=job)
    await harness.rows(f"update cograil.jobs set wake_at = {past} where id = %(id)s", id=job)


async def test_an_approval_asks_and_the_job_waits_for_nothing_else(harness: Harness) -> None:
    job = await harness.submit(ASK, {"what": "1.0"})
    assert await harness.advance() == 0
    node = (await harness.nodes(job))["q"]
    assert node["status"] == "waiting"
    wanted = {"message": "release 1.0?", "approvers": ["ann", "bob"], "form": None, "deadline": None}
    assert node["input"] == wanted
    assert await harness.event_types(job, "q") == ["node_ready", "approval_requested"]
    assert (await harness.rows("select wake_at from cograil.jobs"))[0][0] is None


async def test_an_answer_lets_the_job_go_on(harness: Harness) -> None:
    job = await harness.submit(ASK)
    reply = await answer(harness, job, by="ann", reason="fine", data={"x": 1})
    assert reply == ApprovalAnswer("approved", "running")
    output = {"decision": "approved", "by": "ann", "reason": "fine", "data": {"x": 1}}
    assert (await harness.nodes(job))["q"]["output"] == output
    event_types = ["node_ready", "approval_requested", "approval_decided", "node_completed"]
    assert await harness.event_types(job, "q") == event_types
    assert (await (await harness.manual_worker()).claim_one()).params == {"decision": "approved", "by": "ann"}


async def test_a_rejection_is_an_answer_too(harness: Harness) -> None:
    job = await harness.submit(ASK)
    assert await answer(harness, job, "reject", by="bob") == ApprovalAnswer("rejected", "running")
    assert (await (await harness.manual_worker()).claim_one()).params == {"decision": "rejected", "by": "bob"}


async def test_the_first_answer_counts_and_the_second_is_refused(harness: Harness) -> None:
    job = await harness.submit(ASK)
    await answer(harness, job, by="ann")
    before = await harness.events(job)
    with pytest.raises(Conflict, match="was answered already"):
        await answer(harness, job, "reject", by="bob")
    assert await harness.events(job) == before


async def test_one_of_many_concurrent_answers_counts(harness: Harness) -> None:
    job = await harness.submit(ASK)
    names = ["approve", "reject"] * 4
    results = await asyncio.gather(
        *(answer(harness, job, name, by="ann") for name in names), return_exceptions=True
    )
    (counted,) = [result for result in results if isinstance(result, ApprovalAnswer)]
    assert sum(isinstance(result, Conflict) for result in results) == 7
    assert (await harness.nodes(job))["q"]["output"]["decision"] == counted.decision
    assert (await harness.event_types(job, "q")).count("approval_decided") == 1


async def test_only_those_who_are_asked_may_answer(harness: Harness) -> None:
    job = await harness.submit(ASK)
    for by in ("eve", None, ""):
        with pytest.raises(Forbidden, match="its approvers are ann, bob"):
            await answer(harness, job, by=by)
    assert (await harness.statuses(job))["q"] == "waiting"


async def test_form_data_must_fit_the_form(harness: Harness) -> None:
    job = await harness.submit(FORM)
    for data, pointer in (
        ({"window": "never"}, "/data/window"),
        ({"window": "tonight", "count": 0}, "/data/count"),
        ({"window": "tonight", "else": 1}, "/data"),
        (None, "/data"),
        ("tonight", "/data"),
    ):
        with pytest.raises(InvalidInput) as raised:
            await answer(harness, job, data=data)
        assert raised.value.problems[0].pointer == pointer
    await answer(harness, job, data={"window": "tonight", "count": 2})
    assert (await harness.nodes(job))["q"]["output"]["data"] == {"window": "tonight", "count": 2}


async def test_a_rejection_may_leave_the_form_empty(harness: Harness) -> None:
    job = await harness.submit(FORM)
    assert await answer(harness, job, "reject") == ApprovalAnswer("rejected", "completed")


async def test_words_that_cannot_be_kept_are_refused(harness: Harness) -> None:
    job = await harness.submit(FORM)
    for bad in ({"by": "x" * 65}, {"reason": "x" * 2001}, {"reason": "a\0b"}, {"by": "a\0"}):
        with pytest.raises(InvalidInput):
            await answer(harness, job, "reject", **bad)
    with pytest.raises(InvalidInput):
        await answer(harness, job, data={"window": "tonight", "count": float("inf")})


async def test_an_answer_nobody_waits_for_is_refused(harness: Harness) -> None:
    job = await harness.submit(ASK.replace("nodes:\n", "nodes:\n  first: {handler: echo, next: q}\n"))
    with pytest.raises(Conflict, match="is pending"):
        await answer(harness, job, by="ann")
    with pytest.raises(Conflict, match="not an approval node"):
        await answer(harness, job, node="first", by="ann")
    with pytest.raises(NodeNotFound):
        await answer(harness, job, node="nowhere", by="ann")
    with pytest.raises(JobNotFound):
        await answer(harness, "019a8f2e-77aa-7c3e-9d54-0b6f3c1a2d4e", by="ann")
    with pytest.raises(UsageError, match="unknown signal 'perhaps'"):
        await answer(harness, job, "perhaps", by="ann")
    await harness.cancel(job)
    with pytest.raises(AlreadyTerminal):
        await answer(harness, job, by="ann")


async def test_an_answer_after_the_deadline_is_too_late(harness: Harness) -> None:
    job = await harness.submit(TIMED.replace("WAY", "reject").replace("REQUIRED", "true"))
    await let_time_pass(harness, job)
    with pytest.raises(Conflict, match="its time is up"):
        await answer(harness, job)
    await harness.advance()
    wanted = {"decision": "rejected", "by": None, "reason": "timeout", "data": None}
    assert (await harness.nodes(job))["q"]["output"] == wanted
    assert (await harness.job(job))["status"] == "completed"


async def test_silence_fails_the_node_if_that_is_wanted(harness: Harness) -> None:
    job = await harness.submit(TIMED.replace("WAY", "fail").replace("REQUIRED", "true"))
    await let_time_pass(harness, job)
    await harness.advance()
    ended = await harness.job(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "approval_timeout")
    assert "within 3600 seconds" in ended["error"]["message"]


async def test_an_approval_that_failed_is_asked_again_by_a_retry(harness: Harness) -> None:
    text = TIMED.replace("WAY", "fail").replace("REQUIRED", "false")
    job = await harness.submit(text + "  other: {handler: echo}\n")
    await let_time_pass(harness, job)
    await harness.advance()
    assert (await harness.statuses(job))["q"] == "failed"
    await harness.retry(job, "q")
    assert (await harness.statuses(job))["q"] == "waiting"
    await answer(harness, job)
    assert (await harness.statuses(job))["q"] == "completed"


async def test_a_cancelled_job_asks_nobody_any_more(harness: Harness) -> None:
    job = await harness.submit(ASK)
    assert await harness.cancel(job) == "cancelled"
    assert await harness.statuses(job) == {"q": "cancelled", "done": "cancelled"}


async def test_an_orchestrator_wakes_for_the_deadline_by_itself(harness: Harness) -> None:
    job = await harness.submit(
        TIMED.replace("WAY", "reject").replace("3600", "0.3").replace("REQUIRED", "true")
    )
    async with harness.orchestrator():
        assert (await harness.ended(job))["status"] == "completed"


async def test_the_commands_answer_and_their_exit_codes_tell(
    harness: Harness, dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COGRAIL_DATABASE_URL", dsn)
    job, other = await harness.submit(ASK), await harness.submit(FORM)

    async def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        code = await asyncio.to_thread(main, [*arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    assert (await run("approve", job, "q", "--by", "eve"))[1]["error"]["code"] == "forbidden"
    code, output = await run("approve", job, "q", "--by", "ann", "--reason", "fine")
    assert (code, output["decision"], output["by"], output["job_status"]) == (0, "approved", "ann", "running")
    assert (await run("reject", job, "q", "--by", "bob"))[0] == 4
    assert (await run("approve", job, "nowhere"))[0] == 3
    assert (await run("approve", other, "q", "--data", "{"))[0] == 2
    assert (await run("approve", other, "q", "--data", '{"window": "never"}'))[0] == 2
    code, output = await run("signal", other, "q", "approve", "--data", '{"window": "tonight"}')
    assert (code, output["data"], output["job_status"]) == (0, {"window": "tonight"}, "completed")


async def test_the_node_need_not_be_named_when_one_waits(
    harness: Harness, dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COGRAIL_DATABASE_URL", dsn)
    first = await harness.submit(ASK)
    two = await harness.submit(
        "workflow_id: two\nnodes:\n  a: {type: approval, approval: {message: m}}\n"
        "  b: {type: approval, approval: {message: m}}\n"
    )

    async def run(*arguments: str) -> tuple[int, str]:
        code = await asyncio.to_thread(main, list(arguments))
        return code, capsys.readouterr().err

    assert await run("approve", first, "--by", "ann") == (0, f"q is approved; job {first} is running\n")
    assert await run("reject", first, "--by", "ann") == (
        4,
        f"error: no approval of job {first} waits for an answer\n",
    )
    code, output = await run("reject", two)
    assert (code, "2 approvals wait for an answer: a, b; name one of these nodes" in output) == (2, True)
    assert (await run("reject", two, "b"))[0] == 0
    assert await run("approve", two) == (0, f"a is approved; job {two} is completed\n")


async def test_a_signal_that_was_left_in_the_inbox_counts_too(harness: Harness) -> None:
    job = await harness.submit(ASK)
    query = """insert into cograil.inbox (job_id, kind, node_id, output)
        values (%(id)s, 'signal', 'q', '{"name": "approve", "by": "ann"}')"""
    await harness.rows(query, id=job)
    await harness.rows(query, id=job)
    await harness.advance()
    assert (await harness.nodes(job))["q"]["output"]["by"] == "ann"
    assert (await harness.event_types(job, "q"))[-1] == "warning"  # the second
