"""The outputs of a workflow, as its callers see them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.cli import main

INNER = """
workflow_id: inner
nodes: {a: {handler: echo, params: {v: 7, secret: hidden}}}
outputs: {v: "{{ nodes.a.output.echoed_params.v }}"}
"""
OUTER = """
workflow_id: outer
nodes:
  sub: {type: subworkflow, subworkflow: {workflow_id: inner}, next: b}
  b: {handler: echo, params: {got: "{{ output.result }}"}}
"""
LONG = """
workflow_id: long
nodes: {a: {handler: echo, params: {lines: LINES}}}
outputs: {lines: "{{ nodes.a.output.echoed_params.lines }}"}
""".replace("LINES", json.dumps([{"number": number, "text": "x" * 80} for number in range(30)]))


async def run(*words: str) -> int:
    return await asyncio.to_thread(main, list(words))


async def test_jobs_parents_and_the_shell_see_exactly_the_outputs(
    harness: Harness, dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    await harness.publish(INNER)
    async with harness.running():
        alone, outer, long = (
            await harness.submit(INNER),
            await harness.submit(OUTER),
            await harness.submit(LONG),
        )
        assert (await harness.ended(alone))["result"] == {"v": 7}
        assert (await harness.ended(outer))["result"]["b"]["echoed_params"]["got"] == {"v": 7}
        await harness.ended(long)
    monkeypatch.setenv("COGRAIL_DATABASE_URL", dsn)
    assert await run("show", alone, "--result") == 0
    assert json.loads(capsys.readouterr().out) == {"v": 7}
    assert await run("show", long) == 0
    shown = capsys.readouterr()
    assert f"more lines: `cograil show {long} --result` prints all of it" in shown.err
    assert '"number": 29' not in shown.out
    assert await run("show", long, "--result") == 0
    assert len(json.loads(capsys.readouterr().out)["lines"]) == 30
