"""What an orchestrator remembers, and when it must not be believed."""

from __future__ import annotations

from datetime import UTC, datetime

from cograil.definitions import read_workflow
from cograil.model.job import Changes, JobState, NodeState, NodeWrite
from cograil.verbs.job_cache import MAX_OUTPUT, JobCache

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CHAIN = read_workflow("workflow_id: w\nnodes:\n  a: {handler: echo, next: b}\n  b: {handler: echo}\n")
FAN = read_workflow(
    "workflow_id: f\nnodes:\n"
    "  a: {type: fan_out, source: [1], task: {handler: echo}, next: b}\n  b: {type: fan_in}\n"
)


def job(seq: int = 3, job_id: str = "j") -> JobState:
    return JobState(job_id, "default", 1, "running", b"{}", seq, NOW)


def completed(node_id: str, output: bytes) -> NodeWrite:
    return NodeWrite(NodeState(node_id, "completed", 1), True, output=output)


def noted(
    memory: JobCache, state: JobState, *writes: NodeWrite, seq: int = 5, status: str = "running"
) -> None:
    memory.update({state.job_id: state}, {state.job_id: Changes(status, seq, nodes=list(writes))}, {1: CHAIN})


def test_committed_rows_are_cached_while_the_version_is_the_same() -> None:
    memory = JobCache()
    noted(memory, job(), completed("a", b"1"))
    again = job(seq=5)
    assert memory.fill_nodes([again]) == {"j": {"a": b"1"}}
    assert again.nodes["a"].status == "completed"
    assert memory.fill_nodes([job(seq=6)]) == {}, "somebody else wrote the job"


def test_outputs_of_earlier_passes_stay_known_unless_somebody_wrote_in_between() -> None:
    memory = JobCache()
    noted(memory, job(), completed("a", b"1"))
    noted(memory, job(seq=5), completed("b", b"2"), seq=8)
    assert memory.fill_nodes([job(seq=8)]) == {"j": {"a": b"1", "b": b"2"}}
    noted(memory, job(seq=9), completed("b", b"3"), seq=11)
    assert memory.fill_nodes([job(seq=11)]) == {"j": {"b": b"3"}}


def test_a_large_output_is_read_again_and_an_ended_job_or_a_fan_out_forgotten() -> None:
    memory = JobCache()
    noted(memory, job(), completed("a", b"x" * (MAX_OUTPUT + 1)))
    assert memory.fill_nodes([job(seq=5)]) == {"j": {}}
    noted(memory, job(seq=5), seq=6, status="completed")
    assert memory.fill_nodes([job(seq=6)]) == {}
    memory.update({"j": job()}, {"j": Changes("running", 5)}, {1: FAN})
    assert memory.fill_nodes([job(seq=5)]) == {}


def test_the_least_recently_advanced_is_forgotten_first() -> None:
    memory = JobCache(size=2500)
    for name in ("j1", "j2", "j3"):
        noted(memory, job(job_id=name), completed("a", b"1"))
    noted(memory, job(5, "j2"), completed("a", b"2"), seq=7)
    noted(memory, job(job_id="j4"), completed("a", b"1"))
    assert set(memory.fill_nodes([job(5, "j1"), job(7, "j2"), job(5, "j3"), job(5, "j4")])) == {"j2", "j4"}
