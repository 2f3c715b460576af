"""Container jobs on a port of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from tests.apps.containers.container_site import site_settings
from tests.support.harness import Harness, open_harness

from cograil.app_registry import PortContext
from cograil.apps.containers.app import app
from cograil.apps.containers.settings import ContainerSettings
from cograil.apps.containers.standalone_port import container_front
from cograil.http.server.port import bind, serving
from cograil.processes.api_server import open_api
from cograil.processes.process_readiness import ProcessHealth


async def ask_readiness(lab: Harness, dsn: str, runtime: str) -> tuple[int, Any]:
    """What /readyz says where this runs containers; the rest is served either way."""
    own = lab.settings.section(ContainerSettings).model_copy(update={"runtime": runtime})
    settings = lab.settings.model_copy(update={"containers": own})
    health = ProcessHealth(lab.db, {}, app.readiness(settings, True))
    listening = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    async with (
        open_api(dsn, settings) as instance,
        serving(container_front(PortContext(instance, health.checks, Starlette())), listening),
        httpx2.AsyncClient() as client,
    ):
        assert (await client.get(f"{url}/livez")).json() == {"status": "healthy"}
        assert (await client.get(f"{url}/v1/jobs")).json() == {"jobs": []}
        assert (await client.get(f"{url}/other")).status_code == 404
        ready = await client.get(f"{url}/readyz")
        return ready.status_code, ready.json()


async def test_the_container_port_is_ready_only_with_a_runtime(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the rest of the process does without it; in the words of the original."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    async with open_harness(dsn, site_settings(tmp_path)) as lab:
        answers = {runtime: await ask_readiness(lab, dsn, runtime) for runtime in ("none", "sandbox")}
    status, body = answers["none"]
    assert (status, body["status"], body["checks"]["orchestrator"]["status"]) == (503, *["unhealthy"] * 2)
    assert "no container engine answers" in body["checks"]["orchestrator"]["message"]
    assert answers["sandbox"] == (
        200,
        {"status": "healthy", "checks": {"orchestrator": {"status": "healthy", "message": ""}}},
    )
