"""What a handler asks and tells while it runs, and the checkpointable form."""

from __future__ import annotations

import asyncio
import base64
import gc
import io
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import structlog
from tests.support.handler_attempts import Attempt, Recorder, eventually, failed, output

from cograil import logs
from cograil.model.outcome import Released, WorkItem
from cograil.runners.context import AttemptLost, Cancelled, Context
from cograil.runners.handler_log import Log
from cograil.runners.handler_registry import CheckpointableHandler

Json = Any


@pytest.fixture
async def attempt() -> AsyncIterator[Attempt]:
    with ThreadPoolExecutor(2) as threads:
        yield Attempt(threads)


# --- what a handler sees and tells


async def test_an_attempt_that_is_over_is_freed_without_the_collector(attempt: Attempt) -> None:
    async def in_loop(ctx: Context) -> None:
        ctx.log.info("here")
        ctx.output.write("stdout", "half a line")

    def in_thread(ctx: Context) -> None:
        ctx.log.info("in a thread")

    def failing(ctx: Context) -> None:
        ctx.log.info("about to fail")
        raise ValueError("it fails")

    def count_contexts() -> int:
        return len([each for each in gc.get_objects() if isinstance(each, Context)])

    gc.collect()
    gc.disable()
    try:
        before = count_contexts()  # those that other tests hold
        for function in (in_loop, in_thread, failing):
            await attempt(function)
            del attempt.ctx
        async with asyncio.timeout(
            10
        ):  # the thread of the executor drops its reference after its result is known
            while count_contexts() > before:  # noqa: ASYNC110  no event tells of it
                await asyncio.sleep(0.01)
    finally:
        gc.enable()
    assert len(attempt.channel.lines) == 4


async def test_a_log_that_outlives_its_attempt_drops_its_lines(attempt: Attempt) -> None:
    logs_kept = []

    async def work(ctx: Context) -> None:
        logs_kept.append(ctx.log)
        ctx.log.info("in time")

    await attempt(work)
    logs_kept[0].info("late")
    assert [line["message"] for line in attempt.channel.lines] == ["in time"]


async def test_the_context_knows_the_attempt_and_a_key_that_every_attempt_shares(attempt: Attempt) -> None:
    async def work(ctx: Context) -> Json:
        return {
            "ids": [ctx.task_id, ctx.job_id, ctx.node_id, ctx.attempt, ctx.tenant_id, ctx.correlation_id],
            "key": ctx.idempotency_key,
            "from": ctx.checkpoint_data,
            "params": ctx.params,
        }

    first = output(await attempt(work, checkpoint={"at": 5}))
    assert first["ids"] == ["7.job-1", "job-1", "node-1", 2, "default", None]
    assert first["from"] == {"at": 5}
    assert first["key"] == output(await attempt(work))["key"]


async def test_a_checkpoint_is_durable_when_it_returns_in_coroutines_and_in_threads(attempt: Attempt) -> None:
    seen = []

    async def in_loop(ctx: Context) -> None:
        await ctx.checkpoint({"at": 1}, phase="one")
        seen.append(list(attempt.channel.saved))

    def in_thread(ctx: Context) -> None:
        ctx.checkpoint({"at": 2}, phase="two")
        seen.append(list(attempt.channel.saved))

    def in_a_loop_of_its_own(ctx: Context) -> None:
        async def inner() -> None:
            await ctx.checkpoint({"at": 3})

        asyncio.run(inner())
        seen.append(list(attempt.channel.saved))

    for function in (in_loop, in_thread, in_a_loop_of_its_own):
        output(await attempt(function))
    assert [len(saved) for saved in seen] == [1, 2, 3]
    assert attempt.channel.saved == [({"at": 1}, "one"), ({"at": 2}, "two"), ({"at": 3}, "")]


async def test_a_thread_waits_until_its_checkpoint_is_acknowledged(attempt: Attempt) -> None:
    passed = []
    attempt.channel.before_saving.clear()

    def work(ctx: Context) -> None:
        ctx.progress(1)
        ctx.checkpoint({})
        passed.append(1)

    running = asyncio.create_task(attempt(work))
    await eventually(lambda: attempt.channel.progress)
    assert passed == []
    attempt.channel.before_saving.set()
    output(await running)
    assert passed == [1]


def test_a_thread_is_not_held_for_ever_by_a_worker_that_stopped() -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> Context:
        item = WorkItem(7, 1, "j", "n", 1, "it", {}, 30)
        return Context(item, Recorder())

    ctx = loop.run_until_complete(begin())
    with ThreadPoolExecutor(1) as threads:
        saving = threads.submit(ctx.checkpoint, {})  # nobody runs the loop any more
        loop.close()
        assert isinstance(saving.exception(timeout=10), AttemptLost)


async def test_a_lost_attempt_learns_it_at_its_next_checkpoint_and_reports_nothing(attempt: Attempt) -> None:
    attempt.channel.owns = False
    met: list[type] = []

    async def in_loop(ctx: Context) -> Json:
        for _ in range(2):
            try:
                await ctx.checkpoint({})
            except Cancelled as error:
                met.append(type(error))
        assert ctx.cancelled
        return {"zombie": True}

    def in_thread(ctx: Context) -> None:
        ctx.checkpoint({})

    assert await attempt(in_loop) == Released()
    assert met == [AttemptLost, AttemptLost]
    assert await attempt(in_thread) == Released()


async def test_a_checkpoint_that_is_no_json_or_too_large_fails_for_good(attempt: Attempt) -> None:
    for data in ({"a": float("inf")}, {"a": "x" * 2_000_000}):

        async def work(ctx: Context, data: Json = data) -> None:
            await ctx.checkpoint(data)

        assert not failed(await attempt(work), "bad_checkpoint").retryable
    assert attempt.channel.saved == []


async def test_progress_is_passed_on_and_must_be_numbers(attempt: Attempt) -> None:
    async def work(ctx: Context, current: Json) -> None:
        ctx.progress(current, 10, "half\n" + "x" * 1000)

    output(await attempt(work, {"current": 5}))
    [(current, total, message)] = attempt.channel.progress
    assert (current, total, len(message)) == (5, 10, 256)
    assert message.startswith("half\\n")
    for wrong in ("5", None, True):
        assert "finite number" in failed(await attempt(work, {"current": wrong}), "handler_error").message


def test_log_lines_are_cut_escaped_and_counted() -> None:
    lines: list[dict[str, Json]] = []
    log = Log(lines.append, max_lines=5, max_line_bytes=100)
    log.info("plain", rows=3, rate=0.5, none=None, who="Zoë")
    log.warning("\x1b[31mred\0\nnext\u202e\ud800")
    log.error("ä" * 10_000, big="y" * 10_000)
    log.debug("odd", nan=float("nan"), huge=2**70, thing={"a": "\x07"}, long="z" * 500, after=1)
    log.info({"any": "object"})
    for _ in range(10):
        log.info("too many")

    assert lines[0]["level"] == "info"
    assert lines[0]["fields"] == {"rows": 3, "rate": 0.5, "none": None, "who": "Zoë"}
    assert lines[1]["message"] == "\\x1b[31mred\\x00\\nnext\\u202e\\ud800"
    assert lines[2]["message"] == "ä" * 50
    assert lines[3]["fields"]["nan"] == "nan"
    assert "\x07" not in lines[3]["fields"]["thing"]
    assert len(json.dumps(lines[3]["fields"])) < 200
    assert [line["message"] for line in lines[5:]] == ["log cut after 5 lines"]


def test_a_line_of_any_kind_is_cut_escaped_and_without_secrets() -> None:
    """B162. Of a key its id stays, by which it can be revoked; one that the end would cut is gone too."""
    lines: list[dict[str, Json]] = []
    log = Log(lines.append)
    key, secret = f"cog_{'a' * 16}_{'S' * 43}", "whsec_" + base64.b64encode(b"S" * 32).decode()
    log.info("x" * 10_000_000 + key)
    log.info(bytes(range(256)).decode("latin-1"))
    log.info(
        f"sent {key} and {secret}", header=f"Bearer {'S' * 20}", inside={"url": "postgresql://me:SSSS@db/x"}
    )
    log.info("x" * (16 * 1024 - 40) + key)
    assert len(lines[0]["message"]) == 16 * 1024
    assert not re.search("[\x00-\x1f\x7f-\x9f]", lines[1]["message"])
    assert "SSSS" not in json.dumps(lines)
    assert lines[2]["message"] == f"sent cog_{'a' * 16}_*** and whsec_***"
    assert lines[2]["fields"] == {"header": "Bearer ***", "inside": "{'url': 'postgresql://me:***@db/x'}"}


def test_no_line_of_a_process_has_a_secret() -> None:
    out = io.StringIO()
    logs.configure("info", "json", out)
    try:
        structlog.get_logger("any").info("a key", given=f"cog_{'a' * 16}_{'S' * 43}", at="http://a:80/x@y")
        logging.getLogger("library").error("no connection to %s", "postgresql://me:SSSS@db/x?a=b:c@d")
        try:
            raise ValueError("Bearer " + "S" * 20)
        except ValueError:
            structlog.get_logger("any").exception("oh")
    finally:
        logs.configure("info", "auto")
    assert "SSSS" not in out.getvalue()
    first = json.loads(out.getvalue().splitlines()[0])
    assert (first["given"], first["at"]) == (f"cog_{'a' * 16}_***", "http://a:80/x@y")


# --- the checkpointable form


class Phases(CheckpointableHandler):
    """Counts to three, remembering each step; `crash_after` breaks it once."""

    async def execute(self, params: dict[str, Json], checkpoint: Json = None) -> AsyncGenerator[Json, None]:
        for step in range((checkpoint or {"step": 0})["step"] + 1, 4):
            yield {"type": "checkpoint", "phase": f"p{step}", "data": {"step": step}}
            if step == params.get("crash_after") and checkpoint is None:
                raise RuntimeError("crash")
            yield {"type": "progress", "current": step, "total": 3, "message": "on"}
        yield {"type": "result", "output": {"steps": 3}}


async def test_a_generator_goes_on_from_the_data_of_its_last_checkpoint(attempt: Attempt) -> None:
    failed(await attempt(Phases, {"crash_after": 2}), "handler_error")
    assert attempt.channel.saved == [({"step": 1}, "p1"), ({"step": 2}, "p2")]

    last, _ = attempt.channel.saved[-1]
    assert output(await attempt(Phases, {"crash_after": 2}, checkpoint=last)) == {"steps": 3}
    assert attempt.channel.saved[2:] == [({"step": 3}, "p3")]
    assert attempt.channel.progress == [(1, 3, "on"), (3, 3, "on")]


async def test_a_checkpoint_item_is_durable_before_the_generator_is_resumed(attempt: Attempt) -> None:
    seen = []

    async def work() -> AsyncIterator[Json]:
        for step in range(3):
            yield {"type": "checkpoint", "data": step}
            seen.append(len(attempt.channel.saved))
        yield {"type": "result", "output": {}}

    output(await attempt(work))
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([], "without a result"),
        ([{"type": "checkpoint", "phase": "p", "data": {}}], "without a result"),
        ([{"type": "result", "output": {}}, {"type": "progress", "current": 1}], "after its result"),
        ([{"type": "result", "output": [1]}], "JSON object"),
        ([{"type": "result"}], "invalid item"),
        ([{"type": "checkpoint"}], "invalid item"),
        ([{"type": "answer", "output": {}}], "invalid item"),
        (["text"], "invalid item"),
        ([{"type": "progress", "current": float("nan")}], "finite number"),
        ([{"type": "progress", "current": 1, "total": "many"}], "finite number"),
    ],
)
async def test_a_generator_that_breaks_the_form_fails_for_good(
    attempt: Attempt, items: list[Json], words: str
) -> None:
    async def work() -> AsyncIterator[Json]:
        for item in items:
            yield item

    outcome = failed(await attempt(work), "bad_result")
    assert words in outcome.message
    assert not outcome.retryable


@pytest.mark.parametrize("ending", ["lost", "timeout", "bad item"])
async def test_a_generator_that_is_broken_off_is_closed(attempt: Attempt, ending: str) -> None:
    attempt.channel.owns = ending != "lost"
    closed = []

    async def work() -> AsyncIterator[Json]:
        try:
            yield {"type": "checkpoint", "data": {}}
            if ending == "timeout":
                await asyncio.Event().wait()
            yield "invalid item"
        finally:
            closed.append(True)

    outcome = await attempt(work, timeout=0.01 if ending == "timeout" else 30)
    assert closed
    assert (outcome == Released()) == (ending == "lost")
