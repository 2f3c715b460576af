"""Thirteen bugs of the service before this one, and the test that prevents the return of each.

 1  events of artifacts were lost on their way        test_container_job_artifacts: every kind of artifact
 2  jobs that fetched their inputs were reaped        test_container_ends: cancel while inputs are fetched
 3  a timeout stopped nothing                         test_container_ends: runs for too long;
                                                      test_container_takeovers
 4  a failed input left a job `accepted`              test_container_job_artifacts: a failed input fails the job
 5  cancel was not told, not counted, and undone      test_container_ends, test_container_metrics;
                                                      below: while it is made
 6  a restart forgot whom to tell, told logs anew     test_container_restarts
 7  a missing output was waited for                   test_container_job_artifacts: a failed output is told
 8  dependents ran, plans were not checked            test_container_job_artifacts, test_container_api:
                                                      could not be carried out
 9  an open relay, no policy for addresses            test_container_job_artifacts: pass the guard;
                                                      below: no relay
10  a breaker that let all through, lost events       test_posting: a breaker opens; test_relay_faults
11  stamps of the engine in lines, an event a chunk   test_container_runtimes: a line is whole;
                                                      test_container_ends: fifty at once
12  re-encoded bodies broke signatures                below: large numbers are signed as they are sent
13  secrets in containers; archives of themselves     below: no key; test_workspace, test_workspace_extracting
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.apps.containers.container_site import ContainerSite, is_signed, working
from tests.apps.containers.fault_proxy import open_fault_proxy

from cograil.apps.containers.runtime.docker_engine import ContainerEngine


async def test_5_a_cancel_while_the_container_is_made_is_not_undone(
    site: ContainerSite, engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine has heard the request, and its answer is still out."""
    for operation in ("create", "[0-9a-f]+/start"):
        (tmp_path / operation[:3]).mkdir()
        async with open_fault_proxy(engine_url, tmp_path / operation[:3]) as proxy:
            monkeypatch.setenv("DOCKER_HOST", proxy.url)
            proxy.lose(f"POST .*/containers/{operation}", "silent")
            id = f"made-{operation[:3].strip('[')}"
            async with working(site.lab):
                await site.start(id, "sleep 600")
                async with asyncio.timeout(20):
                    while not proxy.lost:  # noqa: ASYNC110  it is looked at
                        await asyncio.sleep(0.02)
                assert (await site.call("DELETE", f"/{id}")).status == 204
                assert (await site.heard(id, "exit"))["exitCode"] == 137
                await site.swept()
                assert (await site.show(id))["status"] == "cancelled"
            assert site.kinds(id) == ["exit"]


async def test_9_the_service_is_not_an_open_relay(site: ContainerSite) -> None:
    answer = await site.api.call("POST", f"/internal/events?url={site.receiver.url}", {"type": "x"})
    assert answer.status == 404
    assert site.receiver.requests == []


async def test_12_large_numbers_are_signed_as_they_are_sent(site: ContainerSite) -> None:
    artifacts = [{"id": "n", "type": "read", "in": "n.json", "depends": "job"}]
    numbers = "9007199254740993, -9223372036854775808, 1e-7, 0.1"
    async with working(site.lab):
        await site.start("numbers", f"echo '[{numbers}]' > n.json", artifacts=artifacts)
        event = await site.heard("numbers", "artifact")
    assert event["content"] == json.loads(f"[{numbers}]")
    assert all(is_signed(request) for request in site.requests("numbers"))
    assert b"9007199254740993,-9223372036854775808" in site.requests("numbers")[-1].body


async def test_13_the_key_of_the_caller_is_nowhere_in_the_container(
    site: ContainerSite, engine: ContainerEngine
) -> None:
    async with working(site.lab):
        await site.start("secret", "env; sleep 600", meta={"who": "somebody"})
        await site.heard("secret", "log")
        (held,) = await engine.held({"cograil.node": "run"})
        shown = json.dumps(await engine._docker.containers.container(held.container).show())
        assert (await site.call("DELETE", "/secret")).status == 204
        await site.swept()
    for text in (shown, json.dumps(site.lines("secret"))):
        assert site.key not in text
        assert json.dumps(site.key)[1:-1] not in text
        assert site.receiver.url not in text
        assert "somebody" not in text
