"""Requests made up from the OpenAPI documents, good and bad: none is answered with a fault of ours.

And every answer is as the document says. tests/torture has many more of them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from schemathesis import GenerationMode
from tests.support.api_client import ApiClient
from tests.support.generated_requests import MODES, RequestFuzzer, open_gateway
from tests.support.harness import quick_settings
from tests.support.openapi_check import OpenApiChecker, api_checker, app_checkers, gateway_checker

from cograil.settings import Settings

HELLO = "workflow_id: hello\nnodes: {greet: {handler: elsewhere}}"
EXAMPLES = 3
APP_EXAMPLES = 10
PASSED_ON = 1  # most routes of the gateway pass on what they are asked, all of them in one way


async def tried(
    api: ApiClient, described: OpenApiChecker, port: int, mode: GenerationMode, examples: int = EXAMPLES
) -> RequestFuzzer:
    """All operations, by an admin, on something that is there."""
    key = await api.make_key("admin")
    await api.post("/api/v1/workflows", {"source": HELLO}, key=key)
    job = await api.post("/api/v1/jobs", {"workflow_id": "hello"}, key=key)
    known = {"job_id": job.body["job_id"], "workflow_id": "hello", "node_id": "greet"}
    trial = RequestFuzzer(described, port, key, known)
    await asyncio.to_thread(trial.run, mode, examples)
    return trial


@pytest.fixture
def harness_settings(tmp_path: Path) -> Settings:
    """All apps are on."""
    return quick_settings(
        data_dir=tmp_path, documents={"data_dir": tmp_path / "documents"}, companies={"sync_seconds": 0.01}
    )


@pytest.fixture(autouse=True)
def testing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_TESTING", "1")


@pytest.mark.parametrize("mode", MODES)
async def test_no_request_to_the_api_is_answered_with_a_fault_of_ours(
    api: ApiClient, mode: GenerationMode
) -> None:
    trial = await tried(api, api_checker(), api.port, mode)
    api.context.subscribers.end()
    assert trial.wrong == []
    assert len(trial.tried) == len(api_checker().operations)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["captures", "companies", "containers", "documents"])
async def test_no_request_to_an_app_is_answered_with_a_fault_of_ours(
    api: ApiClient, name: str, mode: GenerationMode
) -> None:
    described = app_checkers()[name]
    trial = await tried(api, described, api.port, mode, APP_EXAMPLES)
    assert trial.wrong == []
    assert len(trial.tried) == len(described.operations)
    await api.harness.rows("delete from cograil.leases")  # of runs that nobody makes here


@pytest.mark.parametrize("mode", MODES)
async def test_no_request_to_the_gateway_is_answered_with_a_fault_of_ours(
    api: ApiClient, dsn: str, mode: GenerationMode
) -> None:
    async with open_gateway(api, dsn) as port:
        trial = await tried(api, gateway_checker(), port, mode, PASSED_ON)
    assert trial.wrong == []
    assert len(trial.tried) == len(gateway_checker().operations)
