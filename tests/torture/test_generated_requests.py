"""Thousands of requests made up from the OpenAPI documents, other ones every time: no fault of ours.

Each one is repeated by its seed, which hypothesis prints when one fails.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from documented import of_api, of_apps, of_gateway
from doors import open_door
from lab import open_lab, quick_settings
from made_up import MODES, Trial, open_gateway
from schemathesis import GenerationMode

pytestmark = [pytest.mark.torture, pytest.mark.timeout(3600)]

HELLO = "workflow_id: hello\nnodes: {greet: {handler: elsewhere}}"
EXAMPLES = 60


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("door", ["api", "gateway", *sorted(of_apps())])
async def test_no_generated_request_is_answered_with_a_500(
    dsn: str, door: str, mode: GenerationMode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COGRAIL_TESTING", "1")
    settings = quick_settings(
        data_dir=tmp_path, documents={"data_dir": tmp_path / "documents"}, companies={"sync_seconds": 0.01}
    )
    async with open_lab(dsn, settings) as lab, open_door(lab, dsn) as api, open_gateway(api, dsn) as port:
        key = await api.make_key("admin")
        await api.post("/api/v1/workflows", {"source": HELLO}, key=key)
        job = await api.post("/api/v1/jobs", {"workflow_id": "hello"}, key=key)
        known = {"job_id": job.body["job_id"], "workflow_id": "hello", "node_id": "greet"}
        described = {"api": of_api(), "gateway": of_gateway(), **of_apps()}[door]
        at = port if door == "gateway" else api.port
        trial = Trial(described, at, key, known)
        await asyncio.to_thread(trial.run, mode, EXAMPLES, is_random=True)
        api.context.subscribers.end()
        assert trial.wrong == []
        assert sum(trial.answers.values()) > 10 * len(described.operations)
        await lab.rows("delete from cograil.leases")  # of runs that nobody makes here
        assert [str(finding) for finding in await lab.findings()] == []
