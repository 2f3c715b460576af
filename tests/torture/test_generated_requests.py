"""Thousands of requests made up from the OpenAPI documents, other ones every time: no fault of ours.

Each one is repeated by its seed, which hypothesis prints when one fails.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from schemathesis import GenerationMode
from tests.support.api_client import serve_api
from tests.support.generated_requests import MODES, RequestFuzzer, open_gateway
from tests.support.harness import open_harness, quick_settings
from tests.support.openapi_check import api_checker, app_checkers, gateway_checker

pytestmark = [pytest.mark.torture, pytest.mark.timeout(3600)]

HELLO = "workflow_id: hello\nnodes: {greet: {handler: elsewhere}}"
EXAMPLES = 60


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("door", ["api", "gateway", *sorted(app_checkers())])
async def test_no_generated_request_is_answered_with_a_500(
    dsn: str, door: str, mode: GenerationMode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COGRAIL_TESTING", "1")
    settings = quick_settings(
        data_dir=tmp_path, documents={"data_dir": tmp_path / "documents"}, companies={"sync_seconds": 0.01}
    )
    async with open_harness(dsn, settings) as lab, serve_api(lab, dsn) as api, open_gateway(api, dsn) as port:
        key = await api.make_key("admin")
        await api.post("/api/v1/workflows", {"source": HELLO}, key=key)
        job = await api.post("/api/v1/jobs", {"workflow_id": "hello"}, key=key)
        known = {"job_id": job.body["job_id"], "workflow_id": "hello", "node_id": "greet"}
        described = {"api": api_checker(), "gateway": gateway_checker(), **app_checkers()}[door]
        at = port if door == "gateway" else api.port
        trial = RequestFuzzer(described, at, key, known)
        await asyncio.to_thread(trial.run, mode, EXAMPLES, is_random=True)
        api.context.subscribers.end()
        assert trial.wrong == []
        assert sum(trial.answers.values()) > 10 * len(described.operations)
        await lab.rows("delete from cograil.leases")  # of runs that nobody makes here
        assert [str(finding) for finding in await lab.findings()] == []
