"""The handlers that come with cograil do what their docs say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.handler_attempts import Attempt, failed, output

from cograil.model.outcome import Failed, Released
from cograil.runners import builtin_handlers
from cograil.runners.handler_registry import default_registry

Json = Any
MB = 1024 * 1024
BUILTINS = ["hello_world", "echo", "sleep", "fail"]
BUILTINS += ["flaky_echo", "multi_phase", "size_check", "chunk_processor"]


@pytest.fixture
async def attempt() -> AsyncIterator[Attempt]:
    with ThreadPoolExecutor(1) as threads:
        yield Attempt(threads, extra="ignore")


def test_all_builtin_handlers_are_registered_and_run_in_the_loop() -> None:
    for name in BUILTINS:
        spec = default_registry.get(name)
        assert spec is not None
        assert spec.kind == "async"
        assert spec.call is getattr(builtin_handlers, name)


@pytest.mark.parametrize(
    ("name", "params", "result"),
    [
        ("hello_world", {}, {"message": "Hello, World!"}),
        ("hello_world", {"name": "Ada", "unknown": 1}, {"message": "Hello, Ada!"}),
        ("sleep", {"seconds": "0"}, {"slept_for": 0.0}),
        ("sleep", {"duration_seconds": 0.001}, {"slept_for": 0.001}),
        ("echo", {}, {"echoed_params": {}, "handler": "echo", "task_id": "7.job-1"}),
        ("echo", {"a": [1], "b": None},
         {"echoed_params": {"a": [1], "b": None}, "handler": "echo", "task_id": "7.job-1"}),
        ("flaky_echo", {"failure_rate": 0, "a": 1},
         {"echoed_params": {"failure_rate": 0, "a": 1}, "handler": "flaky_echo", "task_id": "7.job-1"}),
        ("chunk_processor", {"chunk_id": 3, "chunk_data": [1, 2]},
         {"chunk_id": 3, "processed": True, "item_count": 2}),
        ("chunk_processor", {"chunk_id": "c"}, {"chunk_id": "c", "processed": True, "item_count": 0}),
        ("multi_phase", {"phases": "2"},
         {"phases_completed": 2, "completed_phases": ["phase_1", "phase_2"], "resumed_after": 0}),
    ],
)  # fmt: skip
async def test_each_builtin_handler_returns_what_it_promises(
    attempt: Attempt, name: str, params: Json, result: Json
) -> None:
    assert output(await attempt(getattr(builtin_handlers, name), params)) == result


@pytest.mark.parametrize(
    ("size", "route"),
    [
        (0, "light"),
        (100 * MB - 1, "light"),
        (100 * MB, "medium"),
        (1024 * MB - 1, "medium"),
        (1024 * MB, "heavy"),
        ("5000000000", "heavy"),
    ],
)
async def test_size_check_routes_by_size(attempt: Attempt, size: Json, route: str) -> None:
    result = output(await attempt(builtin_handlers.size_check, {"size_bytes": size}))
    assert result == {"size_bytes": int(size), "route": route, "recommended_queue": route}


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("size_check", {}),
        ("size_check", {"size_bytes": -1}),
        ("sleep", {"seconds": -1}),
        ("flaky_echo", {"failure_rate": 2}),
        ("multi_phase", {"phases": 0}),
        ("chunk_processor", {}),
    ],
)
async def test_senseless_params_are_refused(attempt: Attempt, name: str, params: Json) -> None:
    failed(await attempt(getattr(builtin_handlers, name), params), "invalid_params")


async def test_fail_fails_and_may_be_final(attempt: Attempt) -> None:
    assert await attempt(builtin_handlers.fail, {"error_message": "boom"}) == Failed("handler_error", "boom")
    final = await attempt(builtin_handlers.fail, {"error_message": "boom", "retryable": "false"})
    assert final == Failed("failed", "boom", retryable=False)


async def test_flaky_echo_fails_with_something_to_retry(attempt: Attempt) -> None:
    assert failed(await attempt(builtin_handlers.flaky_echo, {"failure_rate": 1}), "handler_error").retryable


async def test_sleep_ends_when_it_is_cancelled(attempt: Attempt) -> None:
    running = asyncio.create_task(attempt(builtin_handlers.sleep, {"seconds": 600}))
    await asyncio.sleep(0)
    attempt.ctx.cancel("shutdown")
    assert await running == Released()


async def test_echo_in_steps_saves_each_and_goes_on_from_the_last(attempt: Attempt) -> None:
    params = {"steps": 3, "step_delay": 0, "x": 1}
    whole = output(await attempt(builtin_handlers.echo, params))
    assert whole["steps_completed"] == 3
    assert whole["completed_steps"] == [1, 2, 3]
    assert whole["echoed_params"] == params
    assert [phase for _, phase in attempt.channel.saved] == ["step_1", "step_2", "step_3"]

    after_two, _ = attempt.channel.saved[1]
    attempt.channel.saved.clear()
    assert output(await attempt(builtin_handlers.echo, params, checkpoint=after_two)) == whole
    assert [phase for _, phase in attempt.channel.saved] == ["step_3"]


async def test_multi_phase_goes_on_after_its_last_checkpoint(attempt: Attempt) -> None:
    attempt.channel.fails_after = 2
    failed(await attempt(builtin_handlers.multi_phase), "handler_error")
    last, phase = attempt.channel.saved[-1]
    assert phase == "phase_2"

    attempt.channel.fails_after = None
    result = output(await attempt(builtin_handlers.multi_phase, checkpoint=last))
    assert result["completed_phases"] == ["phase_1", "phase_2", "phase_3"]
    assert result["resumed_after"] == 2
    assert attempt.channel.progress[-1] == (3, 3, "phase_3")


def test_every_one_of_them_is_documented() -> None:
    docs = Path(__file__).parents[2].joinpath("docs/reference/handlers.md").read_text()
    assert [name for name in BUILTINS if f"### `{name}" not in docs] == []
