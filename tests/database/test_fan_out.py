"""Fan-outs and fan-ins through the real database: chunks, aggregations, failed children, order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.model.outcome import Failed
from cograil.verbs.advance import advance_due

FAN = """
workflow_id: fan
nodes:
  split:
    type: fan_out
    source: "{{ inputs.items }}"
    %s
    task:
      handler: %s
      params: {item: "{{ item }}", index: "{{ index }}"}
      retry: {max_attempts: %d, backoff: fixed, initial_delay_seconds: %s}
    next: gather
  gather: {type: fan_in, aggregation: %s, next: last}
  last: {handler: echo, params: {all: "{{ nodes.gather.output }}"}}
"""


def fan(
    handler: str = "work",
    *,
    aggregation: str = "collect",
    attempts: int = 1,
    delay: float = 0,
    more: str = "",
) -> str:
    """A fan-out, its fan-in and a node that reads it."""
    return FAN % (more, handler, attempts, delay, aggregation)


@pytest.fixture(autouse=True)
def _handlers(harness: Harness) -> None:
    async def work(item: Any, index: int) -> dict[str, Any]:
        # The later ones are quicker: what comes first is not what is first.
        await asyncio.sleep(0 if index else 0.05)
        if item == "bad":
            raise ValueError(f"item {index} is bad")
        return {"value": item, "list": [item, index]}

    harness.registry.register(work)


async def gathered(harness: Harness, text: str, items: list[Any]) -> dict[str, Any]:
    async with harness.running():
        job = await harness.submit(text, {"items": items})
        ended = await harness.ended(job, 60)
    assert ended["status"] == "completed", ended["error"]
    assert ended["result"]["last"]["echoed_params"] == {"all": ended["result"]["gather"]}
    return dict(ended["result"]["gather"])


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_results_are_in_the_order_of_the_items(harness: Harness, count: int) -> None:
    output = await gathered(harness, fan(), list(range(count)))
    assert output["count"] == count
    assert [result["list"] for result in output["results"]] == [[n, n] for n in range(count)]


@pytest.mark.parametrize(
    ("aggregation", "items", "expected"),
    [
        ("concat", [7, 8], {"results": [7, 0, 8, 1], "count": 4}),
        ("concat", [], {"results": [], "count": 0}),
        ("sum", [7, 8, 0.5], {"total": 15.5, "count": 3}),
        ("sum", [], {"total": 0, "count": 0}),
        ("sum", [True, 2], {"total": 2, "count": 2}),
        ("first", [7, 8], {"result": {"value": 7, "list": [7, 0]}, "count": 2}),
        ("last", [7, 8], {"result": {"value": 8, "list": [8, 1]}, "count": 2}),
        ("first", [], {"result": None, "count": 0}),
        ("last", [], {"result": None, "count": 0}),
    ],
)
async def test_every_aggregation(
    harness: Harness, aggregation: str, items: list[Any], expected: dict[str, Any]
) -> None:
    assert await gathered(harness, fan(aggregation=aggregation), items) == expected


async def test_a_large_fan_out_is_made_in_chunks(harness: Harness) -> None:
    """No pass makes more than a thousand children, and each child is made once."""
    job = await harness.submit(fan("chunk_processor"), {"items": list(range(2500))})
    assert await _children(harness) == (1000,)
    sizes = []
    while (await harness.nodes(job))["split"]["children"]["expanded"] < 2500:
        async with harness.db.transaction("advance") as tx:
            await advance_due(tx, harness.engine_context, 10)
        sizes.append((await _children(harness))[0])
    assert sizes == [2000, 2500]
    await harness.cancel(job)


async def _children(harness: Harness) -> tuple[Any, ...]:
    return (await harness.rows("select count(*) from cograil.nodes where parent is not null"))[0]


async def test_a_large_fan_out_runs_to_its_end(harness: Harness) -> None:
    harness.registry.register(_quick, "quick")
    async with harness.running():
        job = await harness.submit(fan("quick", aggregation="sum"), {"items": list(range(2500))})
        ended = await harness.ended(job, 60)
    assert ended["result"]["gather"] == {"total": sum(range(2500)), "count": 2500}
    assert ended["result"]["split"]["fan_out_count"] == 2500
    runs = "select count(*), count(distinct node_id) from cograil.events where type = 'node_dispatched'"
    assert await harness.rows(runs) == [(2501, 2501)]


async def _quick(item: int, index: int) -> dict[str, Any]:
    return {"value": item}


async def test_a_failed_child_fails_the_fan_in_which_names_it_after_all_have_ended(harness: Harness) -> None:
    async with harness.running():
        job = await harness.submit(fan(), {"items": [1, "bad", 2, "bad"]})
        ended = await harness.ended(job)
    assert ended["status"] == "failed"
    statuses = await harness.statuses(job)
    assert [statuses[f"split__{n}"] for n in range(4)] == ["completed", "failed", "completed", "failed"]
    assert (statuses["gather"], statuses["last"]) == ("failed", "skipped")
    error = (await harness.nodes(job))["gather"]["error"]
    assert (error["code"], error["children"]) == ("children_failed", ["split__1", "split__3"])
    assert "2 of 4 children failed" in error["message"]


async def test_an_optional_fan_out_gathers_what_completed(harness: Harness) -> None:
    output = await gathered(harness, fan(more="required: false"), [1, "bad", 2])
    assert [result["value"] for result in output["results"]] == [1, 2]


@pytest.mark.parametrize("source", ["text", 5, {"a": 1}, None])
async def test_a_source_that_is_no_list_fails_the_node(harness: Harness, source: Any) -> None:
    job = await harness.submit(fan(), {"items": source})
    ended = await harness.job(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "fanout_not_a_list")


async def test_data_that_looks_like_a_template_stays_data(harness: Harness) -> None:
    evil = ["{{ inputs }}", {"{{ 1 + 1 }}": "{% raw %}"}, ["{{ nodes.last.output }}", "{# gone? #}"]]
    output = await gathered(harness, fan(), evil)
    assert [result["value"] for result in output["results"]] == evil


async def test_templates_of_children_see_item_and_index_at_any_depth(harness: Harness) -> None:
    text = """
workflow_id: deep
nodes:
  split:
    type: fan_out
    source: [{name: ada, items: [1, 2]}, {name: bob, items: []}]
    task:
      handler: echo
      params:
        who: {is: ["{{ item.name }}", "{{ index }}", "no {{ index }}: {{ item.name | upper }}"]}
        items: "{{ item.items }}"
        all: "{{ inputs.z }}"
    next: gather
  gather: {type: fan_in}
"""
    async with harness.running():
        job = await harness.submit(text, {"z": 1.5})
        results = (await harness.ended(job))["result"]["gather"]["results"]
    assert [result["echoed_params"] for result in results] == [
        {"who": {"is": ["ada", 0, "no 0: ADA"]}, "items": [1, 2], "all": 1.5},
        {"who": {"is": ["bob", 1, "no 1: BOB"]}, "items": [], "all": 1.5},
    ]


MISSING = """
workflow_id: missing
nodes:
  split:
    type: fan_out
    source: "{{ inputs.items }}"
    task: {handler: echo, params: {x: "{{ item.x }}"}}
    next: gather
  gather: {type: fan_in}
"""


async def test_a_child_whose_params_cannot_be_rendered_fails_alone(harness: Harness) -> None:
    async with harness.running():
        job = await harness.submit(MISSING, {"items": [{"x": 1}, {"y": 1}]})
        await harness.ended(job)
    nodes = await harness.nodes(job)
    assert [nodes[f"split__{n}"]["status"] for n in range(2)] == ["completed", "failed"]
    assert nodes["split__1"]["error"]["code"] == "template_undefined"


async def test_a_job_with_such_a_child_can_be_retried_and_ends_again(harness: Harness) -> None:
    """The child never had params: there are none of an earlier attempt to use."""
    async with harness.running():
        job = await harness.submit(MISSING, {"items": [{"x": 1}, {"y": 1}]})
        await harness.ended(job)
        again = await harness.retry(job)
        assert (await harness.ended(again, 10))["status"] == "failed"
        bystander = await harness.submit("workflow_id: b\nnodes:\n  a: {handler: echo}\n")
        assert (await harness.ended(bystander))["status"] == "completed"


async def test_children_in_backoff_wake_their_job_whatever_other_jobs_are_in_the_same_pass(
    harness: Harness,
) -> None:
    """Two jobs of one workflow have children of the same names; one's news must not hide the other's wait."""
    text = fan("flaky", attempts=2, delay=0.3)
    first, second = await harness.submit_many(text, [{"items": [1, 2]}] * 2)
    worker = await harness.manual_worker()
    items = {(item.job_id, item.node_id): item for item in await worker.claim(4)}
    await worker.report(items[second, "split__0"], Failed("oops", "no"))
    await harness.advance()
    # In one pass: news of the first job's split__0, and of the second's split__1 while its split__0 waits.
    await worker.report(items[first, "split__0"], {"n": 1})
    await worker.report(items[second, "split__1"], {"n": 1})
    await harness.advance()
    rows = await harness.rows("select wake_at is not null from cograil.jobs where id = %(id)s", id=second)
    assert rows == [(True,)]


async def test_only_failed_children_are_tried_again(harness: Harness) -> None:
    runs: list[int] = []

    async def flaky(item: Any, index: int) -> dict[str, Any]:
        runs.append(index)
        if index == 1 and runs.count(1) < 3:
            raise ValueError("not yet")
        return {"n": index}

    harness.registry.register(flaky)
    output = await gathered(harness, fan("flaky", attempts=3), ["a", "b", "c"])
    assert sorted(runs) == [0, 1, 1, 1, 2]
    assert [result["n"] for result in output["results"]] == [0, 1, 2]


async def test_a_fan_out_of_a_fan_in_sees_its_results(harness: Harness) -> None:
    text = """
workflow_id: twice
nodes:
  one:
    type: fan_out
    source: "{{ inputs.items }}"
    task: {handler: work, params: {item: "{{ item }}", index: "{{ index }}"}}
    next: in1
  in1: {type: fan_in, aggregation: concat, next: two}
  two:
    type: fan_out
    source: "{{ nodes.in1.output.results }}"
    task: {handler: work, params: {item: "{{ item }}", index: "{{ index }}"}}
    next: in2
  in2: {type: fan_in, aggregation: sum}
"""
    async with harness.running():
        ended = await harness.ended(await harness.submit(text, {"items": [5, 6]}))
    assert ended["result"]["in1"]["results"] == [5, 0, 6, 1]
    assert ended["result"]["in2"] == {"total": 12, "count": 4}
