"""`cograil.testing`, as people use it in tests of their own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cograil import Context as AnyContext
from cograil import Fail, Retry
from cograil.errors import InvalidInput, UsageError
from cograil.testing import Answer, Context, Timeout, run_workflow

EXAMPLES = Path(__file__).parents[2] / "examples"

ORDERS = """
workflow_id: orders
inputs:
  amount: {type: number}
nodes:
  load: {handler: load, params: {amount: "{{ inputs.amount }}"}, next: ask}
  ask:
    type: conditional
    condition: "{{ inputs.amount > 100 }}"
    branches: {true: approve, false: charge}
  approve:
    type: approval
    approval: {message: "Pay?", timeout_seconds: 86400, on_timeout: fail}
    next: charge
  charge:
    handler: charge
    params: {amount: "{{ inputs.amount }}"}
    depends_on: {any_of: [ask, approve]}
    retry: {max_attempts: 4, backoff: fixed, initial_delay_seconds: 60}
    next: pause
  pause: {type: wait, wait: {seconds: 3600}, next: each}
  each:
    type: fan_out
    source: [1, 2, 3]
    task: {handler: double, params: {number: "{{ item }}"}}
    next: all
  all: {type: fan_in}
"""


def load(ctx: AnyContext, amount: float) -> dict[str, float]:
    ctx.progress(1, 2, "asking the bank")
    ctx.log.info("loaded", amount=amount)
    return {"amount": amount}


async def charge(ctx: AnyContext, amount: float) -> dict[str, Any]:
    await ctx.checkpoint({"seen": ctx.attempt})
    receipt = await ctx.step("receipt", lambda: f"r-{amount:g}")
    if ctx.attempt < 3:
        raise Retry("busy")
    return {"receipt": receipt, "before": ctx.checkpoint_data}


HANDLERS = {"load": load, "charge": charge, "double": lambda number: {"twice": number * 2}}


def test_a_handler_is_tested_without_anything() -> None:
    ctx = Context(attempt=2, checkpoint={"page": 4})
    assert load(ctx, 7.0) == {"amount": 7.0}
    assert ctx.progresses == [(1, 2, "asking the bank")]
    assert [(line.level, line.message, line.fields) for line in ctx.logged] == [
        ("info", "loaded", {"amount": 7.0})
    ]
    assert ctx.checkpoint_data == {"page": 4}
    assert ctx.idempotency_key.endswith("/node")
    assert Context().idempotency_key == ctx.idempotency_key
    ctx.cancel("enough")
    assert ctx.cancelled


def test_a_coroutine_handler_is_tested_in_a_loop() -> None:
    ctx = Context(attempt=3)
    assert asyncio.run(charge(ctx, 2.0)) == {"receipt": "r-2", "before": None}
    assert ctx.checkpoints == [{"seen": 3}]
    assert ctx.steps == {"receipt": "r-2"}
    again = Context(steps=ctx.steps, attempt=4)
    assert asyncio.run(charge(again, 99.0))["receipt"] == "r-2"


def test_a_context_refuses_what_a_worker_refuses() -> None:
    with pytest.raises(Fail, match="checkpoint"):
        Context().checkpoint({1, 2})
    with pytest.raises(Fail, match=r"Context\(transaction="):
        Context().transaction()

    @asynccontextmanager
    async def mine(connection: Any) -> Any:
        yield "tx"

    async def use() -> Any:
        async with Context(transaction=mine).transaction() as tx:
            return tx

    assert asyncio.run(use()) == "tx"


def test_a_workflow_runs_with_waits_and_back_offs_that_take_no_time() -> None:
    job = run_workflow(ORDERS, {"amount": 5}, handlers=HANDLERS)
    assert job.status == "completed"
    assert job.path == ["load", "ask", "charge", "pause", "each__0", "each__1", "each__2", "each", "all"]
    assert job.output("charge") == {"receipt": "r-5", "before": {"seen": 2}}
    assert [call.attempt for call in job.calls("charge")] == [1, 2, 3]
    assert len({call.idempotency_key for call in job.calls("charge")}) == 1
    assert job.duration == timedelta(minutes=2, hours=1)
    assert job.nodes["approve"].status == "skipped"
    assert job.calls("double")[2].params == {"number": 3}


def test_the_same_inside_a_running_loop() -> None:
    async def test() -> None:
        assert run_workflow(ORDERS, {"amount": 5}, handlers=HANDLERS).status == "completed"

    asyncio.run(test())


@pytest.mark.parametrize("answer", [True, "approve", {}, Answer(after=timedelta(hours=3))])
def test_an_approval_is_answered(answer: Any) -> None:
    job = run_workflow(ORDERS, {"amount": 500}, handlers=HANDLERS, approvals={"approve": answer})
    assert job.status == "completed"
    assert job.output("approve")["decision"] == "approved"


def test_nobody_answers() -> None:
    start = datetime(2030, 5, 1, tzinfo=UTC)
    job = run_workflow(ORDERS, {"amount": 500}, handlers=HANDLERS, clock=start)
    assert job.started_at == start
    assert job.duration >= timedelta(days=1)
    assert job.nodes["approve"].status == "failed"
    assert not job.calls("charge")


def test_stubs_are_values_exceptions_and_lists_of_them() -> None:
    stubs = {"load": {}, "double": {}, "charge": [ValueError("odd"), Timeout(), Retry, {"receipt": "x"}]}
    job = run_workflow(ORDERS, {"amount": 5}, handlers=stubs)
    assert job.output("charge") == {"receipt": "x"}
    assert [event.data["error"]["code"] for event in job.events if event.type == "node_retry"] == [
        "handler_error",
        "timeout",
        "handler_error",
    ]
    failed = run_workflow(ORDERS, {"amount": 5}, handlers={**stubs, "charge": Fail("no money", code="poor")})
    assert (failed.status, failed.error["code"]) == ("failed", "poor")
    assert failed.nodes["pause"].skip_reason == "upstream_failed"


def test_mistakes_of_a_test_are_said() -> None:
    with pytest.raises(UsageError, match=r"needs the handler 'lost': .* handlers=\{'lost': \.\.\.\}"):
        run_workflow("workflow_id: w\nnodes:\n  a: {handler: lost}\n")
    with pytest.raises(InvalidInput, match="amount"):
        run_workflow(ORDERS, {"amount": "many"})
    with pytest.raises(UsageError, match=r"approvals=\{'ask': True\}"):
        run_workflow("workflow_id: w\nnodes:\n  ask: {type: approval, approval: {message: Yes?}}\n")


def test_a_subworkflow_runs_too() -> None:
    parent = """
workflow_id: parent
nodes:
  sub: {type: subworkflow, subworkflow: {workflow_id: child, inputs: {number: 4}}, next: after}
  after: {handler: echo, params: {got: "{{ nodes.sub.output.result.d.twice }}"}}
"""
    child = """
workflow_id: child
nodes:
  d: {handler: double, params: {number: "{{ inputs.number }}"}}
"""
    job = run_workflow(parent, handlers=HANDLERS, subworkflows=[child])
    assert job.status == "completed", job.error
    assert [child.status for child in job.children] == ["completed"]
    assert job.calls("echo")[0].params == {"got": 8}


def test_the_examples_of_the_repository_run() -> None:
    import examples.test_shop as shop

    for name in dir(shop):
        if name.startswith("test_"):
            getattr(shop, name)()
    job = run_workflow(EXAMPLES / "hello.yaml", {"name": "Ada"})
    assert "ADA" in str(job.output("shout"))
