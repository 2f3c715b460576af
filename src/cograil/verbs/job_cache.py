"""Cache of the jobs that an orchestrator advanced: their nodes, and outputs that are small.

An entry is a copy that is valid while `jobs.seq` is unchanged. It is stored after the commit and read
under the lock of the job. Every change of a node appends an event and raises `seq`, so an entry with
another `seq` is stale and the job is loaded again. Jobs with fan-outs are not cached, because their
children change too often.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cograil.model.job import Changes, JobState, NodeState
from cograil.model.states import JOB_TERMINAL
from cograil.model.workflow import Workflow

NODE_BYTES = 1000  # about the size of the state of a node
MAX_OUTPUT = 4096  # larger outputs are loaded when a template reads them

CachedOutputs = dict[str, bytes | None]


class CachedJob(NamedTuple):
    """One job as of `seq`."""

    seq: int
    nodes: dict[str, NodeState]
    outputs: CachedOutputs
    size: int


NOT_CACHED = CachedJob(-1, {}, {}, 0)


class JobCache:
    """Jobs by their id. The least recently advanced job is evicted first."""

    def __init__(self, size: int = 32 * 1024 * 1024) -> None:
        self._max_bytes = size
        self._bytes = 0  # roughly
        self._jobs: OrderedDict[str, CachedJob] = OrderedDict()

    def clear(self) -> None:
        """Remove all jobs. Call it when the database may have been restored to an earlier time."""
        self._jobs.clear()
        self._bytes = 0

    def fill_nodes(self, states: Iterable[JobState]) -> dict[str, CachedOutputs]:
        """Set the nodes of the jobs whose entry is valid; return the outputs of these jobs by job id."""
        outputs = {}
        for state in states:
            job = self._jobs.get(state.job_id, NOT_CACHED)
            if job.seq == state.seq:
                state.nodes = dict(job.nodes)
                outputs[state.job_id] = job.outputs
        return outputs

    def update(
        self,
        states: Mapping[str, JobState],
        decided: Mapping[str, Changes],
        workflows: Mapping[int, Workflow],
    ) -> None:
        """Store the jobs of a committed pass."""
        for job_id, changes in decided.items():
            before = self._remove(job_id)
            state = states[job_id]
            if changes.status not in JOB_TERMINAL and not workflows[state.definition_id].has_fan_outs:
                outputs = before.outputs if before.seq == state.seq else {}
                self._store(job_id, state, changes, outputs)
        while self._bytes > self._max_bytes:
            self._remove(next(iter(self._jobs)))

    def _store(self, job_id: str, state: JobState, changes: Changes, outputs: CachedOutputs) -> None:
        """Store one job. The pass is over and nothing else refers to its nodes: they are not copied."""
        nodes = state.nodes
        for write in changes.nodes:
            node = write.state
            nodes[node.node_id] = node
            outputs.pop(node.node_id, None)
            if node.status == "completed" and (write.output is None or len(write.output) <= MAX_OUTPUT):
                outputs[node.node_id] = write.output
        size = NODE_BYTES * len(nodes) + sum(map(len, filter(None, outputs.values())))
        self._jobs[job_id] = CachedJob(changes.seq, nodes, outputs, size)
        self._bytes += size

    def _remove(self, job_id: str) -> CachedJob:
        job = self._jobs.pop(job_id, NOT_CACHED)
        self._bytes -= job.size
        return job
