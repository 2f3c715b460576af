"""What a person asks a real `cograil up`: how is it doing, and what became of the jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.instances import Running, Start
from tests.conftest import Eventually

FLOWS = {
    "hello": "workflow_id: hello\nnodes: {a: {handler: echo}}",
    "failing": "workflow_id: failing\nnodes: {a: {handler: fail, retry: {max_attempts: 1}}}",
}

pytestmark = pytest.mark.usefixtures("used_data_dir")


async def test_an_instance_tells_how_it_is_doing(
    start: Start, eventually: Eventually, tmp_path: Path
) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    for name, text in FLOWS.items():
        (flows / f"{name}.yaml").write_text(text)
    up = start("up", "--port", "0", "--workflows", str(flows))
    await eventually(up.is_ready, 60)
    status, health = up.get("/health")
    assert (status, health["status"]) == (200, "healthy"), health
    assert health["checks"]["disk"]["details"]["free_bytes"] > 0
    async with up.lab() as lab:
        for name in FLOWS:
            await lab.ended(await submitted(lab, name))
    assert numbers(up, "/api/v1/metrics/workflows", "workflows", "success_rate") == {
        "failing": 0.0,
        "hello": 1.0,
    }
    assert up.get("/api/v1/metrics/failures")[1]["failures"][0]["workflow_id"] == "failing"
    buckets = up.get("/api/v1/metrics/throughput")[1]["buckets"]
    assert (len(buckets), sum(bucket["jobs_completed"] for bucket in buckets)) == (25, 1)
    assert up.get("/api/v1/orchestrator/status")[1]["status"] == "active"
    assert [worker["is_live"] for worker in up.get("/api/v1/workers")[1]["workers"]] == [True]
    nodes = up.get("/api/v1/nodes?status=failed")[1]["nodes"]
    assert [(node["workflow_id"], node["node_id"]) for node in nodes] == [("failing", "a")]
    assert up.get("/health/nonsense")[0] == 404


def numbers(up: Running, path: str, field: str, name: str) -> dict[str, Any]:
    return {workflow["workflow_id"]: workflow[name] for workflow in up.get(path)[1][field]}


async def submitted(lab: Any, workflow_id: str) -> str:
    """A job of a published workflow."""
    from cograil.verbs.submit import Submission, submit

    async with lab.db.transaction("submit") as tx:
        (job_id,) = await submit(tx, lab.engine_context, [Submission(workflow_id, {})])
    return str(job_id)
