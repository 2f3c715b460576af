"""Bodies of clients of the original are taken, which do not say that they are JSON; at these doors only."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path

import pytest
from tests.apps.documents import sample_documents
from tests.apps.documents.document_site import DocumentSite
from tests.apps.documents.held_documents import held
from tests.apps.documents.stage_services import service
from tests.support.api_client import ApiClient, ApiResponse, serve_api

TYPES = ["", "content-type: text/plain", "content-type: application/x-www-form-urlencoded"]


async def post(api: ApiClient, path: str, body: bytes, *headers: str) -> ApiResponse:
    """As a client sends it that says nothing more."""
    lines = ["host: localhost", "connection: close", f"content-length: {len(body)}", *filter(None, headers)]
    head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{line}\r\n" for line in lines)
    return await api.raw(head.encode() + b"\r\n" + body)


@pytest.mark.parametrize("kind", TYPES)
async def test_a_body_need_not_say_that_it_is_json(site: DocumentSite, dsn: str, kind: str) -> None:
    key = await held(site, "a.cbz", "b.cbz")
    async with serve_api(site.lab, dsn, site.settings) as api:
        changed = await post(api, "/apps/documents/config", b'{"ocr_concurrency": 2}', kind)
        assert (changed.status, changed.body) == (200, {"applied": {"ocr_concurrency": 2}})
        decided = await post(api, f"/apps/documents/duplicates/{key}", b'{"action": "DISCARD"}', kind)
        assert (decided.status, decided.body["action"]) == (202, "DISCARD")


async def test_a_body_that_is_not_json_is_refused_all_the_same(site: DocumentSite, dsn: str) -> None:
    async with serve_api(site.lab, dsn, site.settings) as api:
        for body in (b"", b"{", b"prep_concurrency=3", b"[1]", b"\xff"):
            answer = await post(api, "/apps/documents/config", body)
            assert (answer.status, answer.body["status"]) == (400, 400), body
        packed = await post(api, "/apps/documents/config", b"{}", "content-encoding: gzip")
        assert packed.status == 415
        page = await post(api, "/apps/documents/config", b"{}", TYPES[1], "origin: http://elsewhere.example")
        assert page.status == 403  # a page of another site may send such a body from somebody's browser


async def test_other_apis_still_require_the_content_type(site: DocumentSite, dsn: str) -> None:
    async with serve_api(site.lab, dsn, site.settings) as api:
        assert (await post(api, "/api/v1/jobs", b"{}")).status == 415


async def test_a_stage_service_does_not_require_the_content_type(tmp_path: Path) -> None:
    order = {
        "jobId": "one",
        "inputPath": str(sample_documents.tiny(tmp_path / "a.cbz")),
        "workDir": str(tmp_path / "w"),
    }
    async with service("prep", tmp_path) as url:

        def send() -> int:
            with urllib.request.urlopen(f"{url}/jobs/prep", json.dumps(order).encode(), timeout=10) as answer:
                return int(answer.status)

        assert await asyncio.to_thread(send) == 202
