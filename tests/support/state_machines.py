"""What the state machines of property tests share."""

from __future__ import annotations

ONE = "workflow_id: w\nnodes:\n  a: {handler: echo}\n"
LONG = 100_000.0  # seconds: no real time ends anything here


class Died(Exception):
    """The process ends before its transaction."""
