"""Where a handler broke: kept once, in the event, and shown with the node."""

from __future__ import annotations

from lab import Lab

from cograil.store.job_queries import find_traceback

ONCE = "workflow_id: w\nnodes:\n  a: {handler: breaks, retry: {max_attempts: 1}}\n"


async def breaks() -> dict[str, int]:
    raise ValueError("here it breaks")


async def test_the_traceback_of_the_last_failed_attempt_is_found(lab: Lab) -> None:
    lab.registry.register(breaks, "breaks")
    async with lab.running():
        job = await lab.ended(await lab.submit(ONCE))
    assert job["status"] == "failed"
    async with lab.db.single("test") as tx:
        traceback = await find_traceback(tx, job["job_id"], "a")
        assert traceback is not None
        assert "in breaks" in traceback
        assert "ValueError: here it breaks" in traceback
        assert await find_traceback(tx, job["job_id"], "nobody") is None
