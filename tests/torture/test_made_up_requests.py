"""Thousands of requests made up from the OpenAPI documents, other ones every time: no fault of ours.

Each one is repeated by its seed, which hypothesis prints when one fails.
"""

from __future__ import annotations

import asyncio

import pytest
from documented import of_api, of_gateway
from doors import open_door
from lab import open_lab
from made_up import MODES, Trial, open_gateway
from schemathesis import GenerationMode

pytestmark = [pytest.mark.torture, pytest.mark.timeout(3600)]

HELLO = "workflow_id: hello\nnodes: {greet: {handler: elsewhere}}"
EXAMPLES = 60


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("door", ["api", "gateway"])
async def test_no_request_is_answered_with_a_fault_of_ours(
    dsn: str, door: str, mode: GenerationMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COGRAIL_TESTING", "1")
    async with open_lab(dsn) as lab, open_door(lab, dsn) as api, open_gateway(api, dsn) as port:
        key = await api.make_key("admin")
        await api.post("/api/v1/workflows", {"source": HELLO}, key=key)
        job = await api.post("/api/v1/jobs", {"workflow_id": "hello"}, key=key)
        known = {"job_id": job.body["job_id"], "workflow_id": "hello", "node_id": "greet"}
        described, at = (of_api(), api.port) if door == "api" else (of_gateway(), port)
        trial = Trial(described, at, key, known)
        await asyncio.to_thread(trial.run, mode, EXAMPLES, is_random=True)
        api.instance.live.end()
        assert trial.wrong == []
        assert sum(trial.answers.values()) > 10 * len(described.operations)
        assert [str(finding) for finding in await lab.findings()] == []
