"""A service of one stage, and the end of its jobs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.conftest import Eventually

from cograil.apps.documents.service_client import ask
from cograil.apps.documents.services import Kind, Service, guarded_service_app
from cograil.apps.documents.settings import DocumentSettings
from cograil.http.server.port import bind, serving


@contextlib.asynccontextmanager
async def service(kind: Kind, root: Path, port: int = 0, **more: Any) -> AsyncIterator[str]:
    """A service on this data directory; where it is."""
    settings = DocumentSettings(ocr_jobs=1, **more)
    stage_service = Service(kind, root, settings, pulse_seconds=0.2)
    listening = bind("127.0.0.1", port)
    async with stage_service.running(), serving(guarded_service_app(stage_service, "127.0.0.1"), listening):
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def ended(url: str, job_id: str, eventually: Eventually) -> dict[str, Any]:
    async def look() -> Any:
        status, record = await ask(url, "GET", f"/jobs/{job_id}")
        assert status == 200
        return record if record["state"] in ("DONE", "ERROR") else None

    return dict(await eventually(look, timeout=40))
