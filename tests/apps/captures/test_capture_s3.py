"""Objects in a real S3-compatible store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.apps.captures.capture_api import KEK_ID, SealingSite, encrypt
from tests.apps.captures.s3 import BUCKET, S3, running_s3

from cograil.apps.captures import object_store
from cograil.apps.captures.errors import StoreUnreachable, Unsealable
from cograil.apps.captures.ingest import workflow
from cograil.apps.captures.object_store import ObjectStore
from cograil.apps.captures.proof_verifier import verify


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with running_s3(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(autouse=True)
def _known(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def capture_settings() -> dict[str, Any]:
    return {"store_url": f"s3://{BUCKET}/uploads"}


async def test_an_object_of_s3_is_sealed(sealing_site: SealingSite, s3: S3) -> None:
    body, encrypted = encrypt(os.urandom(3 * 1024 * 1024 + 5), KEK_ID, sealing_site.capture_api.add_kek())
    await asyncio.to_thread(s3.put, f"uploads/{body['upload_object_key']}", encrypted)
    shown = await sealing_site.sealed(body)
    assert (shown["state"], shown["error"]) == ("SEALED", None)
    assert all(claim.holds for claim in verify(await sealing_site.proof(body["capture_id"])))


async def test_an_s3_object_that_is_missing_or_cut_short_is_an_error(
    sealing_site: SealingSite, s3: S3
) -> None:
    kek = sealing_site.capture_api.add_kek()
    missing, _ = encrypt(b"x", KEK_ID, kek)
    short, encrypted = encrypt(b"some evidence", KEK_ID, kek)
    await asyncio.to_thread(s3.put, f"uploads/{short['upload_object_key']}", encrypted[:-1])
    assert (await sealing_site.sealed(missing))["error_code"] == "object_missing"
    assert (await sealing_site.sealed(short))["error_code"] == "size_mismatch"


async def test_a_store_that_refuses_us_or_is_away_may_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        async with ObjectStore(f"s3://{BUCKET}").open("is-there") as opened:
            assert b"".join([chunk async for chunk in opened.chunks]) == b"yes"

    await ask()
    with monkeypatch.context() as changed:
        changed.setenv("AWS_SECRET_ACCESS_KEY", "another")
        with pytest.raises(StoreUnreachable):
            await ask()
    with pytest.raises(StoreUnreachable, match="bucket does not exist"):
        async with ObjectStore("s3://another-bucket").open("is-there"):
            pass
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StoreUnreachable):
        await ask()


async def test_a_key_cannot_lead_out_of_the_store() -> None:
    for key in ("../is-there", "a/../../is-there"):
        with pytest.raises(Unsealable) as error:
            async with ObjectStore(f"s3://{BUCKET}/uploads").open(key):
                pass
        assert error.value.code == "object_missing"


async def test_a_store_that_falls_silent_is_given_up_and_a_slow_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is limited is silence: a large object takes as long as the node that seals it may."""
    assert timedelta(seconds=workflow().nodes["seal"].timeout_seconds or 0) <= object_store.MAX_SECONDS
    head = (
        b"HTTP/1.1 200 OK\r\netag: x\r\nlast-modified: Fri, 03 Apr 2026 09:30:00 GMT\r\n"
        b"content-length: 1000\r\n\r\nonly so much"
    )

    async def say_so_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        await reader.read()  # until they go
        writer.close()

    async def read(key: str) -> list[bytes]:
        async with ObjectStore(f"s3://{BUCKET}").open(key) as opened:
            return [chunk async for chunk in opened.chunks]

    monkeypatch.setattr(object_store, "MAX_SILENCE", timedelta(seconds=0.2))
    async with await asyncio.start_server(say_so_much, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        with pytest.raises(StoreUnreachable):
            await read("large")
