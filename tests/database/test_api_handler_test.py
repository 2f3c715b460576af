"""Trying a handler by itself, on a server that is there for tests."""

from __future__ import annotations

import pytest
from tests.support.api_client import ApiClient

LIST, TRY = "/api/v1/test/handlers", "/api/v1/test/handler"


@pytest.fixture
def testing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_TESTING", "1")


@pytest.mark.parametrize("value", [None, "", "0", "false", "off"])
async def test_handler_tests_need_a_server_that_is_for_tests(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("COGRAIL_TESTING", raising=False)
    if value is not None:
        monkeypatch.setenv("COGRAIL_TESTING", value)
    async with api.harness.running():
        for answer in (await api.get(LIST), await api.post(f"{TRY}/echo"), await api.post(f"{TRY}/nothing")):
            assert (answer.status, answer.code) == (403, "not_testing")
    assert await api.harness.rows("select count(*) from cograil.jobs") == [(0,)]


@pytest.mark.usefixtures("testing")
async def test_a_handler_is_run_once_with_these_parameters(api: ApiClient) -> None:
    """What looks like a template in a parameter is not one."""
    params = {"n": 1, "text": "{{ env.HOME }}", "nested": {"a": ["{{ inputs }}", None]}}
    async with api.harness.running():
        assert {"name": "echo", "workers": 1} in (await api.get(LIST)).body["handlers"]
        done = await api.post(f"{TRY}/echo", {"params": params})
    assert (done.status, done.body["status"], done.body["handler"]) == (200, "completed", "echo")
    assert done.body["output"]["echoed_params"] == params
    assert (await api.get(f"/api/v1/jobs/{done.body['job_id']}")).body["job"]["status"] == "completed"
    assert (await api.get("/api/v1/workflows")).body["workflows"] == []  # a draft


@pytest.mark.usefixtures("testing")
async def test_a_handler_that_fails_says_why_and_is_not_tried_again(api: ApiClient) -> None:
    async with api.harness.running():
        failed = await api.post(f"{TRY}/fail", {"params": {"error_message": "no luck"}})
    assert (failed.status, failed.body["status"]) == (200, "failed")
    assert "no luck" in failed.body["error"]["message"]
    assert await api.harness.rows("select attempt from cograil.nodes") == [(1,)]


@pytest.mark.usefixtures("testing")
async def test_a_handler_that_no_worker_has_is_not_found(api: ApiClient) -> None:
    async with api.harness.running():
        unknown = await api.post(f"{TRY}/nothing")
    assert (unknown.status, unknown.code) == (404, "not_found")
    assert (await api.post(f"{TRY}/echo")).status == 404  # nobody works any more


@pytest.mark.usefixtures("testing")
async def test_a_handler_that_takes_longer_is_left_to_its_job(api: ApiClient) -> None:
    worker = await api.harness.manual_worker()
    late = await api.post(f"{TRY}/echo", {"timeout_seconds": 1})
    assert (late.status, late.body["status"]) == (202, "dispatched")
    await worker.report(await worker.claim_one(), {})
    await api.harness.advance()
    shown = (await api.get(f"/api/v1/jobs/{late.body['job_id']}")).body
    assert shown["job"]["status"] == "completed"
