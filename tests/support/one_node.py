"""A workflow of one node, and the warnings of its job."""

from __future__ import annotations

from tests.support.harness import Harness

ONE = """
workflow_id: one
nodes:
  a: {handler: %s, timeout_seconds: %s, retry: {max_attempts: %d, initial_delay_seconds: 0}}
"""


def one(handler: str = "echo", *, timeout: float = 60, attempts: int = 3) -> str:
    """A workflow of one node."""
    return ONE % (handler, timeout, attempts)


async def warnings(harness: Harness, job: str) -> list[str]:
    return [e["data"]["code"] for e in await harness.events(job) if e["event_type"] == "warning"]
