"""Every change that is asked for at the door of an app is in the audit log, once."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from tests.apps.captures.capture_api import sample
from tests.apps.documents.document_site import DocumentSite
from tests.support.api_client import ApiClient
from tests.support.audit_clerk import Clerk
from tests.support.harness import Harness, quick_settings

from cograil.app_registry import installed_apps
from cograil.settings import Settings

CHANGING = {
    f"{endpoint.method} {endpoint.path}"
    for app in installed_apps()
    if app.api
    for endpoint in app.api().endpoints
    if endpoint.method != "GET"
}


@pytest.fixture
def harness_settings(tmp_path: Path) -> Settings:
    """All apps are on, and what is known of a company is old at once."""
    return quick_settings(
        data_dir=tmp_path,
        documents={"data_dir": tmp_path / "documents", "quiet_seconds": 0.1},
        companies={"sync_seconds": 0.01, "cooldown_seconds": 0},
    )


@pytest.fixture
async def clerk(api: ApiClient) -> Clerk:
    """A folder of documents is that of the default tenant."""
    return Clerk(api, await api.make_key("admin"), "default")


async def test_audit_log_has_each_change_and_nothing_else(harness: Harness, clerk: Clerk) -> None:
    await clerk.ask("POST /v1/jobs", {"id": "one", "image": "busybox"})
    await clerk.ask("DELETE /v1/jobs/{id}", id="one")
    await clerk.ask("DELETE /v1/jobs/{id}", entries=0, id="one")  # it was over
    taken = sample(capture_id=str(uuid4()))
    await clerk.ask("POST /v1/captures", taken)
    await clerk.ask("POST /v1/captures", taken, entries=0)  # it was there
    await clerk.ask("POST /documents/capture", sample(capture_id=str(uuid4())))
    await clerk.ask("POST /apps/documents/config", {"ocr_concurrency": 2})
    await clerk.ask("POST /apps/documents/duplicates/{key}", {"action": "DISCARD"}, key=await held(harness))
    await _companies(harness, clerk)
    assert clerk.done - {"GET /v1/requests/{id}"} == CHANGING


async def held(harness: Harness) -> str:
    """The key of a document that came twice."""
    house = DocumentSite(harness, harness.settings)
    for name in ("first.cbz", "again.cbz"):
        house.drop(name)
        await house.look()
    (document,) = await house.documents()
    return document.key


async def _companies(harness: Harness, clerk: Clerk) -> None:
    """A look that begins a run is a change too."""
    made = await clerk.ask("POST /v1/requests", {"siren": "552032534"})
    id = made["request"]["id"]
    await clerk.ask("GET /v1/requests/{id}", entries=0, id=id)  # a run is under way
    await _let_go(harness)
    await clerk.ask("GET /v1/requests/{id}", id=id)
    await _let_go(harness)
    await clerk.ask("POST /v1/requests/{id}:refresh-company", id=id)
    await harness.rows("delete from cograil.leases")


async def _let_go(harness: Harness) -> None:
    """Somebody ended the job of the run, and not the run."""
    ((job_id,),) = await harness.rows("select job_id::text from cograil_companies.company_enrichments")
    await harness.cancel(job_id)
