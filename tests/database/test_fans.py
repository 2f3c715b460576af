"""Fan-outs and fan-ins through the real database: chunks, aggregations, failed children, order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab import Lab

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
def _handlers(lab: Lab) -> None:
    async def work(item: Any, index: int) -> dict[str, Any]:
        # The later ones are quicker: what comes first is not what is first.
        await asyncio.sleep(0 if index else 0.05)
        if item == "bad":
            raise ValueError(f"item {index} is bad")
        return {"value": item, "list": [item, index]}

    lab.registry.register(work)


async def gathered(lab: Lab, text: str, items: list[Any]) -> dict[str, Any]:
    async with lab.running():
        job = await lab.submit(text, {"items": items})
        ended = await lab.ended(job, 60)
    assert ended["status"] == "completed", ended["error"]
    assert ended["result"]["last"]["echoed_params"] == {"all": ended["result"]["gather"]}
    return dict(ended["result"]["gather"])


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_results_are_in_the_order_of_the_items(lab: Lab, count: int) -> None:
    output = await gathered(lab, fan(), list(range(count)))
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
    lab: Lab, aggregation: str, items: list[Any], expected: dict[str, Any]
) -> None:
    assert await gathered(lab, fan(aggregation=aggregation), items) == expected


async def test_a_large_fan_out_is_made_in_chunks(lab: Lab) -> None:
    """No pass makes more than a thousand children, and each child is made once."""
    job = await lab.submit(fan("chunk_processor"), {"items": list(range(2500))})
    assert await _children(lab) == (1000,)
    sizes = []
    while (await lab.nodes(job))["split"]["children"]["expanded"] < 2500:
        async with lab.db.transaction("advance") as tx:
            await advance_due(tx, lab.engine_context, 10)
        sizes.append((await _children(lab))[0])
    assert sizes == [2000, 2500]
    await lab.cancel(job)


async def _children(lab: Lab) -> tuple[Any, ...]:
    return (await lab.rows("select count(*) from cograil.nodes where parent is not null"))[0]


async def test_a_large_fan_out_runs_to_its_end(lab: Lab) -> None:
    lab.registry.register(_quick, "quick")
    async with lab.running():
        job = await lab.submit(fan("quick", aggregation="sum"), {"items": list(range(2500))})
        ended = await lab.ended(job, 60)
    assert ended["result"]["gather"] == {"total": sum(range(2500)), "count": 2500}
    assert ended["result"]["split"]["fan_out_count"] == 2500
    runs = "select count(*), count(distinct node_id) from cograil.events where type = 'node_dispatched'"
    assert await lab.rows(runs) == [(2501, 2501)]


async def _quick(item: int, index: int) -> dict[str, Any]:
    return {"value": item}


async def test_a_failed_child_fails_the_fan_in_which_names_it_after_all_have_ended(lab: Lab) -> None:
    async with lab.running():
        job = await lab.submit(fan(), {"items": [1, "bad", 2, "bad"]})
        ended = await lab.ended(job)
    assert ended["status"] == "failed"
    statuses = await lab.statuses(job)
    assert [statuses[f"split__{n}"] for n in range(4)] == ["completed", "failed", "completed", "failed"]
    assert (statuses["gather"], statuses["last"]) == ("failed", "skipped")
    error = (await lab.nodes(job))["gather"]["error"]
    assert (error["code"], error["children"]) == ("children_failed", ["split__1", "split__3"])
    assert "2 of 4 children failed" in error["message"]


async def test_an_optional_fan_out_gathers_what_completed(lab: Lab) -> None:
    output = await gathered(lab, fan(more="required: false"), [1, "bad", 2])
    assert [result["value"] for result in output["results"]] == [1, 2]


@pytest.mark.parametrize("source", ["text", 5, {"a": 1}, None])
async def test_a_source_that_is_no_list_fails_the_node(lab: Lab, source: Any) -> None:
    job = await lab.submit(fan(), {"items": source})
    ended = await lab.job(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "fanout_not_a_list")


async def test_data_that_looks_like_a_template_stays_data(lab: Lab) -> None:
    evil = ["{{ inputs }}", {"{{ 1 + 1 }}": "{% raw %}"}, ["{{ nodes.last.output }}", "{# gone? #}"]]
    output = await gathered(lab, fan(), evil)
    assert [result["value"] for result in output["results"]] == evil


async def test_templates_of_children_see_item_and_index_at_any_depth(lab: Lab) -> None:
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
    async with lab.running():
        job = await lab.submit(text, {"z": 1.5})
        results = (await lab.ended(job))["result"]["gather"]["results"]
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


async def test_a_child_whose_params_cannot_be_rendered_fails_alone(lab: Lab) -> None:
    async with lab.running():
        job = await lab.submit(MISSING, {"items": [{"x": 1}, {"y": 1}]})
        await lab.ended(job)
    nodes = await lab.nodes(job)
    assert [nodes[f"split__{n}"]["status"] for n in range(2)] == ["completed", "failed"]
    assert nodes["split__1"]["error"]["code"] == "template_undefined"


async def test_a_job_with_such_a_child_can_be_retried_and_ends_again(lab: Lab) -> None:
    """The child never had params: there are none of an earlier attempt to use."""
    async with lab.running():
        job = await lab.submit(MISSING, {"items": [{"x": 1}, {"y": 1}]})
        await lab.ended(job)
        again = await lab.retry(job)
        assert (await lab.ended(again, 10))["status"] == "failed"
        bystander = await lab.submit("workflow_id: b\nnodes:\n  a: {handler: echo}\n")
        assert (await lab.ended(bystander))["status"] == "completed"


async def test_children_in_backoff_wake_their_job_whatever_other_jobs_are_in_the_same_pass(lab: Lab) -> None:
    """Two jobs of one workflow have children of the same names; one's news must not hide the other's wait."""
    text = fan("flaky", attempts=2, delay=0.3)
    first, second = await lab.submit_many(text, [{"items": [1, 2]}] * 2)
    hand = await lab.hand()
    items = {(item.job_id, item.node_id): item for item in await hand.claim(4)}
    await hand.report(items[second, "split__0"], Failed("oops", "no"))
    await lab.advance()
    # In one pass: news of the first job's split__0, and of the second's split__1 while its split__0 waits.
    await hand.report(items[first, "split__0"], {"n": 1})
    await hand.report(items[second, "split__1"], {"n": 1})
    await lab.advance()
    rows = await lab.rows("select wake_at is not null from cograil.jobs where id = %(id)s", id=second)
    assert rows == [(True,)]


async def test_only_failed_children_are_tried_again(lab: Lab) -> None:
    runs: list[int] = []

    async def flaky(item: Any, index: int) -> dict[str, Any]:
        runs.append(index)
        if index == 1 and runs.count(1) < 3:
            raise ValueError("not yet")
        return {"n": index}

    lab.registry.register(flaky)
    output = await gathered(lab, fan("flaky", attempts=3), ["a", "b", "c"])
    assert sorted(runs) == [0, 1, 1, 1, 2]
    assert [result["n"] for result in output["results"]] == [0, 1, 2]


async def test_a_fan_out_of_a_fan_in_sees_its_results(lab: Lab) -> None:
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
    async with lab.running():
        ended = await lab.ended(await lab.submit(text, {"items": [5, 6]}))
    assert ended["result"]["in1"]["results"] == [5, 0, 6, 1]
    assert ended["result"]["in2"] == {"total": 12, "count": 4}
