"""Trying a handler by itself, on a server that is there for tests."""

from __future__ import annotations

import pytest
from doors import Api

LIST, TRY = "/api/v1/test/handlers", "/api/v1/test/handler"


@pytest.fixture
def testing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_TESTING", "1")


@pytest.mark.parametrize("value", [None, "", "0", "false", "off"])
async def test_nothing_can_be_tried_unless_the_server_is_for_tests(
    api: Api, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("COGRAIL_TESTING", raising=False)
    if value is not None:
        monkeypatch.setenv("COGRAIL_TESTING", value)
    async with api.lab.running():
        for answer in (await api.get(LIST), await api.post(f"{TRY}/echo"), await api.post(f"{TRY}/nothing")):
            assert (answer.status, answer.code) == (403, "not_testing")
    assert await api.lab.rows("select count(*) from cograil.jobs") == [(0,)]


@pytest.mark.usefixtures("testing")
async def test_a_handler_is_run_once_with_these_parameters(api: Api) -> None:
    """What looks like a template in a parameter is not one."""
    params = {"n": 1, "text": "{{ env.HOME }}", "nested": {"a": ["{{ inputs }}", None]}}
    async with api.lab.running():
        assert {"name": "echo", "workers": 1} in (await api.get(LIST)).body["handlers"]
        done = await api.post(f"{TRY}/echo", {"params": params})
    assert (done.status, done.body["status"], done.body["handler"]) == (200, "completed", "echo")
    assert done.body["output"]["echoed_params"] == params
    assert (await api.get(f"/api/v1/jobs/{done.body['job_id']}")).body["job"]["status"] == "completed"
    assert (await api.get("/api/v1/workflows")).body["workflows"] == []  # a draft


@pytest.mark.usefixtures("testing")
async def test_a_handler_that_fails_says_why_and_is_not_tried_again(api: Api) -> None:
    async with api.lab.running():
        failed = await api.post(f"{TRY}/fail", {"params": {"error_message": "no luck"}})
    assert (failed.status, failed.body["status"]) == (200, "failed")
    assert "no luck" in failed.body["error"]["message"]
    assert await api.lab.rows("select attempt from cograil.nodes") == [(1,)]


@pytest.mark.usefixtures("testing")
async def test_a_handler_that_no_worker_has_is_not_found(api: Api) -> None:
    async with api.lab.running():
        unknown = await api.post(f"{TRY}/nothing")
    assert (unknown.status, unknown.code) == (404, "not_found")
    assert (await api.post(f"{TRY}/echo")).status == 404  # nobody works any more


@pytest.mark.usefixtures("testing")
async def test_a_handler_that_takes_longer_is_left_to_its_job(api: Api) -> None:
    hand = await api.lab.hand()
    late = await api.post(f"{TRY}/echo", {"timeout_seconds": 1})
    assert (late.status, late.body["status"]) == (202, "dispatched")
    await hand.report(await hand.claim_one(), {})
    await api.lab.advance()
    shown = (await api.get(f"/api/v1/jobs/{late.body['job_id']}")).body
    assert shown["job"]["status"] == "completed"
