"""Bodies of clients of the original are taken, which do not say that they are JSON; at these doors only."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path

import pytest
from tests.documents import drawn
from tests.documents.house import House
from tests.documents.test_duplicates import held
from tests.documents.test_services import service
from tests.support.api_client import ApiClient, ApiResponse, serve_api

TYPES = ["", "content-type: text/plain", "content-type: application/x-www-form-urlencoded"]


async def post(api: ApiClient, path: str, body: bytes, *headers: str) -> ApiResponse:
    """As a client sends it that says nothing more."""
    lines = ["host: localhost", "connection: close", f"content-length: {len(body)}", *filter(None, headers)]
    head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{line}\r\n" for line in lines)
    return await api.raw(head.encode() + b"\r\n" + body)


@pytest.mark.parametrize("kind", TYPES)
async def test_a_body_need_not_say_that_it_is_json(house: House, dsn: str, kind: str) -> None:
    key = await held(house, "a.cbz", "b.cbz")
    async with serve_api(house.lab, dsn, house.settings) as api:
        changed = await post(api, "/apps/documents/config", b'{"ocr_concurrency": 2}', kind)
        assert (changed.status, changed.body) == (200, {"applied": {"ocr_concurrency": 2}})
        decided = await post(api, f"/apps/documents/duplicates/{key}", b'{"action": "DISCARD"}', kind)
        assert (decided.status, decided.body["action"]) == (202, "DISCARD")


async def test_what_is_no_json_is_refused_all_the_same(house: House, dsn: str) -> None:
    async with serve_api(house.lab, dsn, house.settings) as api:
        for body in (b"", b"{", b"prep_concurrency=3", b"[1]", b"\xff"):
            answer = await post(api, "/apps/documents/config", body)
            assert (answer.status, answer.body["status"]) == (400, 400), body
        packed = await post(api, "/apps/documents/config", b"{}", "content-encoding: gzip")
        assert packed.status == 415
        page = await post(api, "/apps/documents/config", b"{}", TYPES[1], "origin: http://elsewhere.example")
        assert page.status == 403  # a page of another site may send such a body from somebody's browser


async def test_other_doors_ask_as_before(house: House, dsn: str) -> None:
    async with serve_api(house.lab, dsn, house.settings) as api:
        assert (await post(api, "/api/v1/jobs", b"{}")).status == 415


async def test_a_service_does_not_ask_either(tmp_path: Path) -> None:
    order = {"jobId": "one", "inputPath": str(drawn.tiny(tmp_path / "a.cbz")), "workDir": str(tmp_path / "w")}
    async with service("prep", tmp_path) as url:

        def send() -> int:
            with urllib.request.urlopen(f"{url}/jobs/prep", json.dumps(order).encode(), timeout=10) as answer:
                return int(answer.status)

        assert await asyncio.to_thread(send) == 202
