"""Parents and children in the simulated database: what the statements about them do, and what must hold."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tests.support.job_rows import USUAL, Rows
from tests.support.simulation.rows import ensure
from tests.support.simulation.workflows import CHILDREN

from cograil.model.job import (
    CancelRequested,
    Changes,
    ChildEnded,
    ChildRefused,
    ChildRequest,
    PreparedChildJob,
    Submitted,
)
from cograil.model.states import JOB_TERMINAL

if TYPE_CHECKING:
    from tests.support.simulation.database import Database

A_MOMENT = timedelta(microseconds=1)


class Families:
    """Which job was made for which node."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.links: dict[tuple[int, str], int] = {}  # the last child of a node
        self.stopped: set[int] = set()  # those that took too long
        self.unborn: dict[str, Rows] = {}

    def prepare(self, wanted: ChildRequest) -> PreparedChildJob | ChildRefused:
        """verbs/child_jobs.py: the job that a node wants, made when its parent's changes are written."""
        db, workflow = self.db, CHILDREN.get(wanted.workflow_id)
        if workflow is None:
            return ChildRefused("workflow_not_found", "no such workflow")
        has_children = any(node.subworkflow for node in workflow.nodes.values())
        rows = Rows(workflow, wanted.inputs, db.now, db.now + A_MOMENT if has_children else None)
        rows.is_child = True
        changes = rows.decide([Submitted()], db.now, db.random, USUAL, db.advance, is_revoked=True)
        state = rows.load([], db.now)
        state.job_id = str(db.new_id())
        self.unborn[state.job_id] = rows
        return PreparedChildJob(wanted.node_id, workflow.workflow_id, 1, state, changes)

    def write(self, job: int, changes: Changes) -> None:
        """link_children.sql, report_to_parents.sql and cancel_children.sql."""
        rows = self.db.jobs[job]
        for node_id in changes.stops_children:
            self.stopped.add(self.links[job, node_id])
            self.db.tell(self.links[job, node_id], CancelRequested("parent", "it took too long"))
        for child in changes.children:
            self._bear(job, child)
        if rows.parent is not None and changes.finished_at is not None:
            self._tell_parent(job, rows, rows.parent)
        if changes.cancels_children and "no cancel of children" not in self.db.mutants:
            for number in self._open_children(job):
                self.db.tell(number, CancelRequested("parent", ""))

    def _bear(self, job: int, child: PreparedChildJob) -> None:
        db, place = self.db, (job, child.node_id)
        before = self.links.get(place)
        is_over = before is None or db.jobs[before].status in JOB_TERMINAL or before in self.stopped
        ensure(is_over, "a node has one open child at most")
        rows = self.unborn.pop(child.state.job_id)
        rows.parent = place
        self.links[place] = db.add(rows)
        db.write(self.links[place], child.changes)

    def _tell_parent(self, job: int, rows: Rows, place: tuple[int, str]) -> None:
        parent, node = place
        if self.db.jobs[parent].status in JOB_TERMINAL or self.links[place] != job:
            return
        attempt = self.db.jobs[parent].nodes[node].attempt
        if "parents not told" not in self.db.mutants:
            self.db.tell(parent, ChildEnded(node, attempt, str(job), rows.status, rows.result, rows.error))

    def _open_children(self, job: int) -> list[int]:
        return [
            number
            for number, rows in enumerate(self.db.jobs)
            if rows.parent is not None and rows.parent[0] == job and rows.status not in JOB_TERMINAL
        ]

    # -- what must hold --------------------------------------------------------------------------------

    def check(self) -> None:
        """After every commit: a node that waits has a living child or its news, orphans were told to stop."""
        for (job, node), number in self.links.items():
            parent, child = self.db.jobs[job], self.db.jobs[number]
            if parent.status in JOB_TERMINAL:
                is_told = self._is_told(number)
                ensure(
                    child.status in JOB_TERMINAL or is_told, "an open child of an ended job was told to stop"
                )
            elif parent.nodes[node].status == "waiting":
                notices = [n for n in self.db.inbox[job] if isinstance(n, ChildEnded) and n.node_id == node]
                news = [n for n in notices if n.attempt == parent.nodes[node].attempt]
                is_open = child.status not in JOB_TERMINAL
                ensure(is_open + len(news) == 1, "a waiting node has one living child, or its news")

    def _is_told(self, job: int) -> bool:
        return any(isinstance(news, CancelRequested) for news in self.db.inbox[job])

    def check_end(self, job: int, rows: Rows) -> None:
        """Approvals are decided once, a subworkflow node ends as its last job, attempts are few enough."""
        decided = [event.node_id for event in rows.events if event.type == "approval_decided"]
        ensure(len(decided) == len(set(decided)), "an approval is decided once")
        for name, row in rows.nodes.items():
            number = self.links.get((job, name))
            timeouts = [e for e in rows.events if (e.type, e.node_id) == ("node_timeout", name)]
            was_late = any(event.data["attempt"] == row.attempt for event in timeouts)
            if number is not None and row.status != "cancelled" and not was_late:
                is_good = self.db.jobs[number].status == "completed"
                ensure((row.status == "completed") == is_good, "a node ends as its child did")
            if row.status != "cancelled":
                allowed = row.uncounted_attempts + rows.workflow.nodes[row.parent or name].retry.max_attempts
                ensure(row.attempt <= allowed, "no more attempts than allowed")
