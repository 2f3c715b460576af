"""What an orchestrator remembers of the jobs it advanced: their nodes, valid while `jobs.seq` is unchanged.

Memory is only a copy. It is installed after the commit, and asked under the job's lock: whoever else
wrote the job in between raised its `seq`, and then it is loaded again. Every change of a node appends an
event, so the number says it all. Jobs with fan-outs are not remembered: their children come and go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from cograil.engine.states import JOB_TERMINAL
from cograil.model.job import Changes, JobState, NodeState
from cograil.model.workflow import NodeType, Workflow

Nodes = dict[str, NodeState]


class Memory:
    """Nodes by job, the least recently advanced forgotten first."""

    def __init__(self, size: int = 20_000) -> None:
        self._size = size  # in nodes
        self._held = 0
        self._jobs: OrderedDict[str, tuple[int, Nodes]] = OrderedDict()

    def recall(self, states: Iterable[JobState]) -> set[str]:
        """Fill in the nodes of the jobs that are as they were left; which these are."""
        known = set()
        for state in states:
            seq, nodes = self._jobs.get(state.job_id, (-1, {}))
            if seq == state.seq:
                state.nodes = dict(nodes)
                known.add(state.job_id)
        return known

    def note(
        self,
        states: Mapping[str, JobState],
        decided: Mapping[str, Changes],
        workflows: Mapping[int, Workflow],
    ) -> None:
        """Remember what was committed."""
        for job_id, changes in decided.items():
            self._forget(job_id)
            state = states[job_id]
            if changes.status not in JOB_TERMINAL and not _has_fan_out(workflows[state.definition_id]):
                nodes = state.nodes | {write.state.node_id: write.state for write in changes.nodes}
                self._jobs[job_id] = (changes.seq, nodes)
                self._held += len(nodes)
        while self._held > self._size:
            self._forget(next(iter(self._jobs)))

    def _forget(self, job_id: str) -> None:
        _, nodes = self._jobs.pop(job_id, (0, {}))
        self._held -= len(nodes)


def _has_fan_out(workflow: Workflow) -> bool:
    return any(node.type is NodeType.FAN_OUT for node in workflow.nodes.values())
