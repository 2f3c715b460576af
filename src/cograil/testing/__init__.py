"""Test handlers and workflows without a database.

    from cograil.testing import Context, run_workflow

    def test_charge():
        ctx = Context(attempt=2)
        assert charge(ctx, order_id=7, amount=9.5)["receipt"] == "7-9.50"
        assert ctx.progresses[-1].message == "asking the bank"

    def test_orders():
        job = run_workflow("orders.yaml", {"order_id": 7}, handlers={"charge": {"receipt": "r"}})
        assert job.status == "completed"
        assert job.path == ["load", "charge", "ship"]

`run_workflow` drives the engine itself, on jobs in memory and with a clock of its own: waits, back-offs and
deadlines take no time. See docs/how-to/testing.md.
"""

from __future__ import annotations

from cograil.testing.handler_context import Context, LogLine, Progress
from cograil.testing.handler_stubs import Timeout
from cograil.testing.run_result import Call, JobResult, NodeResult
from cograil.testing.workflow_runner import Answer, run_workflow

__all__ = [
    "Answer",
    "Call",
    "Context",
    "JobResult",
    "LogLine",
    "NodeResult",
    "Progress",
    "Timeout",
    "run_workflow",
]
