"""Workflows and handlers that show every state a job can be in while cograil is upgraded.

The handlers wait for a file, the door, so a test decides how long; they tell which program ran them.
"""

from __future__ import annotations

APP = """
import asyncio
from pathlib import Path

import cograil
from cograil import Context, handler


async def door():
    while not Path("door").exists():
        await asyncio.sleep(0.02)


@handler("tell")
async def tell(**params) -> dict:
    return {"by": cograil.__file__}


@handler("gate")
async def gate(ctx: Context) -> dict:
    began = ctx.checkpoint_data or {"by": cograil.__file__}
    await ctx.checkpoint(began)
    await door()
    return {"began": began["by"], "by": cograil.__file__}


@handler("stepping")
async def stepping(ctx: Context) -> dict:
    first = await ctx.step("first", lambda: cograil.__file__)
    await door()
    return {"first": first, "second": await ctx.step("second", lambda: cograil.__file__)}


@handler("flaky")
async def flaky() -> dict:
    if not Path("door").exists():
        raise RuntimeError("not yet")
    return {"by": cograil.__file__}
"""

QUICKLY = "retry: {max_attempts: 9, backoff: fixed, initial_delay_seconds: 0.1}"

# What a program of the first schema understands.
CORE = {
    "done": """
  a: {handler: tell, next: b}
  b: {handler: tell, params: {after: "{{ nodes.a.output.by }}"}}
""",
    "chain": f"""
  a: {{handler: tell, next: b}}
  b: {{handler: gate, {QUICKLY}, next: c}}
  c: {{handler: tell, params: {{after: "{{{{ nodes.b.output.by }}}}"}}}}
""",
    "backoff": """
  b: {handler: flaky, retry: {max_attempts: 10, backoff: fixed, initial_delay_seconds: 3}, next: c}
  c: {handler: tell}
""",
    "fan": f"""
  split:
    type: fan_out
    source: [1, 2, 3]
    task: {{handler: gate}}
    {QUICKLY}
    next: gather
  gather: {{type: fan_in, next: c}}
  c: {{handler: tell}}
""",
}

LATER = {
    "ask": """
  b: {type: approval, approval: {message: "Go on?"}, next: c}
  c: {handler: tell, params: {after: "{{ nodes.b.output.decision }}"}}
""",
    "parent": """
  b: {type: subworkflow, subworkflow: {workflow_id: chain}, next: c}
  c: {handler: tell, params: {after: "{{ nodes.b.output.result }}"}}
""",
    "quiet": "\n  b: {handler: tell}\n",
    "steps": f"\n  b: {{handler: stepping, {QUICKLY}}}\n",
    "narrow": f"\n  b: {{handler: gate, limits: {{concurrency: 1}}, {QUICKLY}}}\n",
    "single_file": f"\n  b: {{handler: gate, {QUICKLY}}}\n",
}
TOP = {"single_file": "limits: {concurrency: 1}\n"}
TWICE = ("narrow", "single_file")  # of these the second job is held by the first


def text_of(name: str) -> str:
    """The file of this workflow."""
    return f"workflow_id: {name}\n{TOP.get(name, '')}nodes:{(CORE | LATER)[name]}"
