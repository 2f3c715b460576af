"""The people of the simulation: they cancel jobs, retry what failed, and answer approvals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.simulation.processes import Advancing, AnswerLost, Steps
from tests.support.simulation.rows import Aborted, Transaction

from cograil.engine.approvals import is_open
from cograil.model.job import CancelRequested, RetryRequested, Signalled
from cograil.model.states import JOB_TERMINAL

if TYPE_CHECKING:
    from tests.support.simulation.simulator import Simulation


class Client(Advancing):
    """Somebody who cancels a job, retries a failed node of it, or answers its approvals."""

    def __init__(self, world: Simulation, job: int, wish: str, after: float) -> None:
        super().__init__(world)
        self.job = job
        self.spawn(self.run(wish), after)

    def run(self, wish: str) -> Steps:
        rows = self.db.jobs[self.job]
        failed = sorted(name for name, row in rows.nodes.items() if row.status == "failed")
        try:
            if wish == "cancel":
                yield from self.advance(self._the_job, CancelRequested(), revoke=True)
            elif wish == "answer":
                yield from self.advance(self._the_question, Signalled("approve", "q", "ann"))
            elif failed:
                yield from self.advance(self._the_job, RetryRequested(self.world.pick(failed)))
        except (AnswerLost, Aborted):
            return

    def _the_job(self, tx: Transaction) -> None:
        self.db.lock_job(tx, self.job)
        if self.db.jobs[self.job].status in JOB_TERMINAL:
            raise Aborted  # AlreadyTerminal

    def _the_question(self, tx: Transaction) -> None:
        """verbs/signal.py: refused unless the approval is open."""
        self._the_job(tx)
        rows = self.db.jobs[self.job]
        if not is_open(rows.workflow.nodes["q"], rows.nodes.get("q"), tx.now):
            raise Aborted  # Conflict
