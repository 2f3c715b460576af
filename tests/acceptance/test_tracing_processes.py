"""One trace for each job, as a collector sees it: from the submit to callbacks, with real processes."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.collectors import Collector, collecting
from tests.acceptance.instances import Running, Start

HANDLERS = """\
import logging

from cograil import handler


@handler("limping")
async def limping(ctx, text="x"):
    logging.getLogger("shop").warning("said inside a coroutine")
    if ctx.attempt == 1:
        raise RuntimeError("not the first time")
    return {"trace_parent": ctx.trace_parent}


@handler("in_thread")
def in_thread(ctx):
    logging.getLogger("shop").warning("said inside a thread")
    return {"trace_parent": ctx.trace_parent}


@handler("in_child", process=True)
def in_child(ctx):
    logging.getLogger("shop").warning("said inside a child")
    ctx.log.info("kept and said", job_id="not mine")
    return {"trace_parent": ctx.trace_parent}
"""
WORKFLOW = """\
workflow_id: travel
nodes:
  limp: {{handler: limping, retry: {{max_attempts: 2, initial_delay_seconds: 0}}, next: split}}
  split:
    type: fan_out
    source: [1, 2, 3]
    task: {{handler: echo, params: {{number: "{{{{ item }}}}"}}}}
    next: gather
  gather: {{type: fan_in, aggregation: collect, next: ask}}
  ask: {{type: http, http: {{url: "{url}/asked"}}, next: thread}}
  thread: {{handler: in_thread, next: sub}}
  sub: {{type: subworkflow, subworkflow: {{workflow_id: hello}}, next: child}}
  child: {{handler: in_child}}
"""
CALLER = ("11111111111111111111111111111111", "2222222222222222")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


def submit(up: Running, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    return post(up, "/api/v1/jobs", body, Prefer="wait=20", **headers)


def post(up: Running, path: str, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    content = json.dumps(body).encode()
    request = urllib.request.Request(up.url + path, content, {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=30) as answer:
        job: dict[str, Any] = json.load(answer)
    return job


async def traced(start: Start, eventually: Any, tmp_path: Path, collector: Collector, **more: str) -> Running:
    """`cograil up` that sends its spans to the collector."""
    (tmp_path / "shop.py").write_text(HANDLERS)
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "travel.yaml").write_text(WORKFLOW.format(url=collector.url))
    (tmp_path / "flows" / "hello.yaml").write_text("workflow_id: hello\nnodes: {a: {handler: echo}}\n")
    (tmp_path / "flows" / "broken.yaml").write_text(
        "workflow_id: broken\nnodes: {a: {handler: fail, retry: {max_attempts: 1}}}\n"
    )
    variables = {"COGRAIL_OUTBOUND__ALLOW": "127.0.0.1"} | more
    up = start("up", "--port", "0", "--app", "shop", "--workflows", "flows", "--json", **variables)
    await eventually(up.is_ready, timeout=30)
    return up


@pytest.mark.usefixtures("used_data_dir")
async def test_a_job_is_one_trace_from_its_caller_to_its_callback(
    start: Start, eventually: Any, tmp_path: Path, collector: Collector
) -> None:
    up = await traced(start, eventually, tmp_path, collector, **collector.variables())
    body = {
        "workflow_id": "travel",
        "callback": {"url": collector.url + "/told", "events": ["cograil.job.completed"]},
    }
    job = submit(up, body, traceparent=f"00-{CALLER[0]}-{CALLER[1]}-01")
    assert job["status"] == "completed", job
    await eventually(lambda: collector.named("deliver cograil.job.completed"), timeout=20)
    await eventually(lambda: collector.named("job travel"), timeout=20)
    await eventually(lambda: collector.named("process travel.child"), timeout=20)

    inner = [
        span for span in collector.spans if span.attributes.get("cograil.job.id") not in (None, job["job_id"])
    ]
    spans = [span for span in collector.spans if span not in inner]
    assert sorted(span.name for span in inner) == ["job hello", "process hello.a", "send default"]
    assert {span.trace_id for span in inner} == {CALLER[0]}, "a subworkflow is part of it"
    assert {span.trace_id for span in spans} == {CALLER[0]}, "one trace, that of the caller"
    (sent,) = [span for span in spans if span.name == "send default"]
    assert {span.parent_id for span in inner if span.kind == "producer"} == {sent.span_id}
    assert (sent.kind, sent.parent_id) == ("producer", CALLER[1])
    first, second = collector.named("process travel.limp")
    assert (first.attributes["cograil.attempt"], first.is_error, first.links) == (1, True, ())
    assert (second.attributes["cograil.attempt"], second.is_error, second.links) == (
        2,
        False,
        (first.span_id,),
    )
    children = collector.named("process travel.split")
    (joined,) = collector.named("process travel.gather")
    assert sorted(span.attributes["cograil.node.id"] for span in children) == [
        "split__0",
        "split__1",
        "split__2",
    ]
    assert sorted(joined.links) == sorted(span.span_id for span in children)
    (asking,) = collector.named("process travel.ask")
    (request,) = collector.named("GET")
    assert (request.kind, request.parent_id) == ("client", asking.span_id)
    assert request.attributes["http.response.status_code"] == 200
    (delivered,) = collector.named("deliver cograil.job.completed")
    (whole,) = collector.named("job travel")
    (threaded,), (childs,) = collector.named("process travel.thread"), collector.named("process travel.child")
    below = (first, second, *children, joined, asking, delivered, whole, threaded, childs)
    assert {span.parent_id for span in below} == {sent.span_id}
    assert {span.kind for span in (first, second, *children, asking)} == {"consumer"}
    assert len(spans) == len(below) + 2, sorted(span.name for span in spans)

    by_path = {request.path: request.trace for request in collector.requests}
    assert by_path == {"/asked": (CALLER[0], request.span_id), "/told": (CALLER[0], delivered.span_id)}
    (event,) = [json.loads(request.body) for request in collector.requests if request.path == "/told"]
    assert event["traceparent"] == sent.trace_parent, "CloudEvents has an attribute for it"
    attributes = second.attributes
    assert attributes["messaging.system"] == "cograil"
    assert (attributes["cograil.job.id"], attributes["cograil.workflow.version"]) == (job["job_id"], 1)
    assert second.resource["service.name"] == "cograil"
    assert job["result"]["child"]["trace_parent"] == childs.trace_parent, "a handler can hand it on"
    lines = [json.loads(line) for line in up.output.splitlines() if '"event"' in line]
    inside = {line["event"]: line for line in lines if line["event"].startswith("said inside")}
    for where, node in (("a coroutine", "limp"), ("a thread", "thread"), ("a child", "child")):
        line = inside[f"said inside {where}"]
        assert (line["job_id"], line["node_id"]) == (job["job_id"], node)
        assert (line["trace_id"], line["attempt"]) == (CALLER[0], 2 if node == "limp" else 1)
    (kept,) = [line for line in lines if line["event"] == "kept and said"]
    assert (kept["job_id"], kept["node_id"], kept["attempt"]) == (job["job_id"], "child", 1)
    assert (kept["trace_id"], kept["level"], kept["fields"]) == (CALLER[0], "info", {"job_id": "not mine"})
    (failed,) = [line for line in lines if line["event"] == "attempt failed"]
    assert (failed["job_id"], failed["trace_id"]) == (job["job_id"], CALLER[0])


@pytest.mark.usefixtures("used_data_dir")
async def test_every_way_in_begins_a_trace_or_goes_on_with_the_callers(
    start: Start, eventually: Any, tmp_path: Path, collector: Collector
) -> None:
    up = await traced(start, eventually, tmp_path, collector, **collector.variables())
    parents = [f"00-{digit * 32}-{digit * 16}-01" for digit in "345"]
    shell = start("submit", "hello", "--wait", "--json", TRACEPARENT=parents[0], **collector.variables())
    assert shell.ended() == 0, shell.output
    async with up.lab() as lab:
        ((plain,),) = await lab.rows("select cograil.submit('hello')::text")
        ((submitted,),) = await lab.rows(
            f"select cograil.submit('hello', trace_parent => '{parents[1]}')::text"
        )
        for job_id in (plain, submitted):
            assert (await lab.ended(job_id))["status"] == "completed"
    quiet = submit(up, {"workflow_id": "hello"}, traceparent=f"00-{'6' * 32}-{'6' * 16}-00")
    failed = submit(up, {"workflow_id": "broken"})
    again = post(up, f"/api/v1/jobs/{failed['job_id']}/retry", {}, traceparent=parents[2])

    await eventually(lambda: len(collector.of_job(again["job_id"])) == 3, timeout=20)
    await eventually(lambda: len(collector.named("job hello")) == 3, timeout=20)
    await eventually(lambda: len(collector.named("process hello.a")) == 3, timeout=20)

    def tree(job_id: str) -> tuple[str, str, set[str]]:
        """The trace, what its first span hangs from, and what the others hang from."""
        spans = collector.of_job(job_id)
        sent = next((span for span in spans if span.name == "send default"), None)
        (trace,) = {span.trace_id for span in spans}
        rest = {span.parent_id for span in spans if span is not sent}
        return trace, sent.parent_id if sent else "", rest - ({sent.span_id} if sent else set())

    by_shell = next(
        span for span in collector.named("send default") if span.resource["cograil.part"] == "cli"
    )
    assert (by_shell.trace_id, by_shell.parent_id) == ("3" * 32, "3" * 16)
    assert tree(by_shell.attributes["cograil.job.id"]) == ("3" * 32, "3" * 16, set())
    assert tree(plain)[1:] == ("", set()), "it begins a trace of its own, and all hangs from that"
    assert tree(submitted) == ("4" * 32, "", {"4" * 16}), "who wrote SQL has the span, all hangs from that"
    assert collector.of_job(quiet["job_id"]) == [], "the caller does not want it to be traced"
    assert tree(failed["job_id"])[0] != tree(again["job_id"])[0] == "5" * 32
    (retried,) = [span for span in collector.of_job(again["job_id"]) if span.kind == "producer"]
    (first,) = [span for span in collector.of_job(failed["job_id"]) if span.kind == "producer"]
    assert (retried.linked_traces, retried.links) == ((first.trace_id,), (first.span_id,))
    (whole,) = [span for span in collector.of_job(failed["job_id"]) if span.name == "job broken"]
    assert (whole.is_error, whole.attributes["cograil.job.status"]) == (True, "failed")


@pytest.mark.usefixtures("used_data_dir")
async def test_without_a_collector_a_trace_is_handed_on_as_it_came(
    start: Start, eventually: Any, tmp_path: Path, collector: Collector
) -> None:
    up = await traced(start, eventually, tmp_path, collector)
    trace_parent = f"00-{CALLER[0]}-{CALLER[1]}-01"
    body = {"workflow_id": "travel", "callback": {"url": collector.url + "/told"}}
    job = submit(up, body, traceparent=trace_parent)
    assert job["result"]["child"]["trace_parent"] == trace_parent
    await eventually(lambda: len(collector.requests) == 4, timeout=20)
    assert {request.trace for request in collector.requests} == {CALLER}
    assert collector.spans == []
    assert submit(up, {"workflow_id": "hello"})["status"] == "completed"
