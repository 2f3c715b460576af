"""What an orchestrator remembers of the jobs it advanced: their nodes, and outputs that are small.

Memory is only a copy, valid while `jobs.seq` is unchanged. It is installed after the commit, and asked
under the job's lock: whoever else wrote the job in between raised its `seq`, and then it is loaded
again. Every change of a node appends an event, so the number says it all. Jobs with fan-outs are not
remembered: their children come and go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cograil.model.job import Changes, JobState, NodeState
from cograil.model.states import JOB_TERMINAL
from cograil.model.workflow import Workflow

NODE_BYTES = 1000  # about what the state of a node takes
MAX_OUTPUT = 4096  # larger ones are read again when somebody asks for them

Outputs = dict[str, bytes | None]


class Remembered(NamedTuple):
    """One job as it was left."""

    seq: int
    nodes: dict[str, NodeState]
    outputs: Outputs
    size: int


NOTHING = Remembered(-1, {}, {}, 0)


class Memory:
    """Jobs by their id, the least recently advanced forgotten first."""

    def __init__(self, size: int = 32 * 1024 * 1024) -> None:
        self._size = size  # in bytes, roughly
        self._held = 0
        self._jobs: OrderedDict[str, Remembered] = OrderedDict()

    def clear(self) -> None:
        """Forget all jobs: the database may have been set back to before they were as they are here."""
        self._jobs.clear()
        self._held = 0

    def recall(self, states: Iterable[JobState]) -> dict[str, Outputs]:
        """Fill in the nodes of the jobs that are as they were left; their outputs, by job."""
        known = {}
        for state in states:
            job = self._jobs.get(state.job_id, NOTHING)
            if job.seq == state.seq:
                state.nodes = dict(job.nodes)
                known[state.job_id] = job.outputs
        return known

    def note(
        self,
        states: Mapping[str, JobState],
        decided: Mapping[str, Changes],
        workflows: Mapping[int, Workflow],
    ) -> None:
        """Remember what was committed."""
        for job_id, changes in decided.items():
            before = self._forget(job_id)
            state = states[job_id]
            if changes.status not in JOB_TERMINAL and not workflows[state.definition_id].has_fan_outs:
                known = before.outputs if before.seq == state.seq else {}
                self._remember(job_id, state, changes, known)
        while self._held > self._size:
            self._forget(next(iter(self._jobs)))

    def _remember(self, job_id: str, state: JobState, changes: Changes, outputs: Outputs) -> None:
        """The pass is over: its nodes and outputs are ours to keep, no copies are made."""
        nodes = state.nodes
        for write in changes.nodes:
            node = write.state
            nodes[node.node_id] = node
            outputs.pop(node.node_id, None)
            if node.status == "completed" and (write.output is None or len(write.output) <= MAX_OUTPUT):
                outputs[node.node_id] = write.output
        size = NODE_BYTES * len(nodes) + sum(map(len, filter(None, outputs.values())))
        self._jobs[job_id] = Remembered(changes.seq, nodes, outputs, size)
        self._held += size

    def _forget(self, job_id: str) -> Remembered:
        job = self._jobs.pop(job_id, NOTHING)
        self._held -= job.size
        return job
