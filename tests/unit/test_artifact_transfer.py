"""Files between a workspace and real servers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tests.support.http_site import HERE, Open
from tests.support.tar_entries import entry, tar_gz

from cograil.apps.containers.runtime import artifact_transfer
from cograil.apps.containers.runtime.artifact_transfer import ArtifactTransfer, TransferFailed, TransferLimits
from cograil.egress import Destination, PublicOnly, open_request
from cograil.settings import OutboundSettings


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "room").mkdir()
    return tmp_path / "room"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact_transfer, "FIRST_PAUSE", 0.001)


def mover(room: Path, **limits: float) -> ArtifactTransfer:
    return ArtifactTransfer(room, PublicOnly(HERE), TransferLimits(**limits))  # type: ignore[arg-type]


async def test_a_file_is_fetched_whole(room: Path, open_site: Open) -> None:
    site = await open_site()
    content = os.urandom(3_000_000)
    site.answers(200, content, Content_Encoding="gzip")
    assert await mover(room).download(f"{site.url}/x?signature=secret", "deep/x") == len(content)
    assert (room / "deep/x").read_bytes() == content, "as it came, whatever its encoding is said to be"
    assert "accept-encoding" in site.requests[0][1]


@pytest.mark.parametrize(("status", "tries"), [(404, 1), (304, 1), (204, 1), (503, artifact_transfer.TRIES)])
async def test_only_200_is_a_file_and_only_faults_of_the_server_are_tried_again(
    room: Path, open_site: Open, status: int, tries: int
) -> None:
    site = await open_site()
    site.answers(status, b"no", Location="http://127.0.0.1:1/")
    with pytest.raises(TransferFailed, match=f"127.0.0.1 answered {status}") as caught:
        await mover(room).download(site.url + "/secret", "x")
    assert caught.value.code == "http_status"
    assert "secret" not in str(caught.value)
    assert len(site.requests) == tries
    assert os.listdir(room) == []


def moved(location: str, status: int = 302) -> bytes:
    head = f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nSet-Cookie: a=b\r\nContent-Length: 2"
    return f"{head}\r\nConnection: close\r\n\r\nno".encode()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_of_a_download_is_followed(room: Path, open_site: Open, status: int) -> None:
    """As github.com answers for archives; the other host is told nothing of the first request."""
    first, second = await open_site(), await open_site()
    second.answers(200, b"file")
    first.answer = moved(f"{second.url.replace('127.0.0.1', 'localhost')}/x#part", status)
    transfer = ArtifactTransfer(room, PublicOnly(OutboundSettings(allow_private=True)))
    assert await transfer.download(f"{first.url}/y?signature=secret", "x") == 4
    assert (room / "x").read_bytes() == b"file"
    request_text = str(second.requests[0]).lower()
    assert not [word for word in ("secret", "cookie", "referer", "authorization") if word in request_text]


async def test_a_relative_redirect_stays_on_its_host(room: Path, open_site: Open) -> None:
    site = await open_site()
    site.answer = moved("/y")
    with pytest.raises(TransferFailed, match="more than 5 redirects") as caught:
        await mover(room).download(f"{site.url}/x", "x")
    assert caught.value.code == "too_many_redirects"
    assert len(site.requests) == artifact_transfer.MAX_REDIRECTS + 1
    assert os.listdir(room) == []


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest",
        "http://10.0.0.1/",
        "file:///etc/passwd",
        "http://u:p@127.0.0.1/",
        "//[::1]/",
    ],
)
async def test_a_redirect_leads_nowhere_that_a_request_may_not_go(
    room: Path, open_site: Open, target: str
) -> None:
    site = await open_site()
    site.answer = moved(target)
    with pytest.raises(TransferFailed, match=r"127\.0\.0\.1 redirects") as caught:
        await mover(room).download(site.url, "x")
    assert caught.value.code == "outbound_refused"
    assert len(site.requests) == 1


async def test_a_redirect_from_https_to_http_is_not_followed(
    room: Path, open_site: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request is sent as one over http; what it was checked as decides."""
    site = await open_site()
    site.answer = moved(f"{site.url}/y")
    transfer = mover(room)
    checked = transfer._checked

    async def as_https(url: str) -> Destination:
        destination = await checked(url)
        return dataclasses.replace(destination, scheme="https") if url.endswith("/x") else destination

    def as_http(destination: Destination, *more: Any) -> Any:
        return open_request(dataclasses.replace(destination, scheme="http"), *more)

    monkeypatch.setattr(transfer, "_checked", as_https)
    monkeypatch.setattr(artifact_transfer, "open_request", as_http)
    with pytest.raises(TransferFailed, match="from https to http"):
        await transfer.download(f"{site.url}/x", "x")
    assert len(site.requests) == 1


async def test_an_upload_follows_no_redirect(room: Path, open_site: Open) -> None:
    site = await open_site()
    site.answer = moved("/y", 307)
    (room / "x").write_text("x")
    with pytest.raises(TransferFailed, match="answered 307"):
        await mover(room).upload("x", f"{site.url}/x")
    assert len(site.requests) == 1


async def test_an_answer_that_is_cut_leaves_nothing(room: Path, open_site: Open) -> None:
    site = await open_site()
    site.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nabc"
    with pytest.raises(TransferFailed) as caught:
        await mover(room, stall_seconds=0.2).download(site.url, "x")
    assert caught.value.code in ("stalled", "unreachable")
    assert os.listdir(room) == []


async def test_a_server_that_never_answers_is_not_waited_for_for_ever(room: Path, open_site: Open) -> None:
    """Neither for a file, nor for the word that one was taken."""
    site = await open_site()
    site.is_silent = True
    (room / "x").write_text("x")
    transfer = mover(room, stall_seconds=0.1, answer_seconds=0.2)
    for moved in (transfer.download(site.url, "y"), transfer.upload("x", site.url)):
        before = site.connections
        async with asyncio.timeout(20):
            with pytest.raises(TransferFailed) as caught:
                await moved
        assert caught.value.code == "stalled"
        assert site.connections == before + artifact_transfer.TRIES
    assert os.listdir(room) == ["x"]


async def test_a_server_that_reads_nothing_is_not_sent_to_for_ever(room: Path) -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    gone = asyncio.Event()
    with (room / "x").open("wb") as file:
        file.truncate(64 << 20)
    server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1024)
    async with server, asyncio.timeout(20):
        with pytest.raises(TransferFailed) as caught:
            await mover(room, stall_seconds=0.3).upload(
                "x", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            )
        gone.set()
    assert caught.value.code == "stalled"


async def test_a_slow_server_that_goes_on_is_waited_for(room: Path) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n")
        for _ in range(8):
            await asyncio.sleep(0.2)  # so slow it is
            writer.write(b"x")
        writer.close()

    server = await asyncio.start_server(slow, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        assert await mover(room, stall_seconds=1.0).download(url, "x") == 8


async def test_an_endless_download_is_cut(room: Path, open_site: Open) -> None:
    site = await open_site()
    site.answer, site.is_endless = b"HTTP/1.1 200 OK\r\n\r\n", True
    with pytest.raises(TransferFailed) as caught:
        await mover(room, file_bytes=5_000_000).download(site.url, "x")
    assert caught.value.code == "too_large"
    assert os.listdir(room) == []


async def test_requests_go_only_where_the_guard_lets_them(room: Path, open_site: Open) -> None:
    site = await open_site()
    (room / "x").write_text("x")
    strict = ArtifactTransfer(room, PublicOnly(OutboundSettings()))
    for moved in (strict.download(site.url, "y"), strict.upload("x", site.url)):
        with pytest.raises(TransferFailed) as caught:
            await moved
        assert caught.value.code == "outbound_refused"
    assert site.connections == 0


async def test_a_file_is_put_with_its_length(room: Path, open_site: Open) -> None:
    site = await open_site()
    content = os.urandom(3_000_000)
    (room / "x").write_bytes(content)
    assert await mover(room).upload("x", f"{site.url}/put?signature=s") == len(content)
    first, headers, body = site.requests[0]
    assert first == "PUT /put?signature=s HTTP/1.1"
    assert (headers["content-type"], headers["content-length"]) == ("application/octet-stream", "3000000")
    assert "transfer-encoding" not in headers
    assert body == content


@pytest.mark.parametrize(("status", "tries"), [(403, 1), (500, artifact_transfer.TRIES)])
async def test_a_put_is_tried_again_from_the_beginning_unless_it_was_refused(
    room: Path, open_site: Open, status: int, tries: int
) -> None:
    site = await open_site()
    site.answers(status)
    (room / "x").write_bytes(b"content")
    with pytest.raises(TransferFailed):
        await mover(room).upload("x", site.url)
    assert [body for _, _, body in site.requests] == [b"content"] * tries


async def test_a_sparse_giant_is_not_sent(room: Path, open_site: Open) -> None:
    site = await open_site()
    with (room / "x").open("wb") as file:
        file.truncate(100 << 30)
    with pytest.raises(TransferFailed) as caught:
        await mover(room).upload("x", site.url)
    assert caught.value.code == "too_large"
    assert site.connections == 0


async def test_a_file_that_becomes_shorter_while_it_is_sent_is_not_sent(room: Path) -> None:
    async def shorten(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            os.truncate(room / "x", 0)
            while await reader.read(1 << 20):
                pass
        writer.close()
        over.set()

    over = asyncio.Event()
    with (room / "x").open("wb") as file:
        file.truncate(64 << 20)
    server = await asyncio.start_server(shorten, "127.0.0.1", 0, limit=1024)
    async with server:
        with pytest.raises(TransferFailed) as caught:
            await mover(room).upload("x", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        await over.wait()
    assert caught.value.code == "workspace_changed"


async def test_files_behind_a_link_are_neither_sent_nor_read(room: Path, open_site: Open) -> None:
    site = await open_site()
    (room / "x").symlink_to("/etc/passwd")
    for moved in (
        mover(room).upload("x", site.url),
        mover(room).read("x"),
        mover(room).pack("x", "y.tar.gz"),
    ):
        with pytest.raises(TransferFailed) as caught:
            await moved
        assert caught.value.code == "not_a_regular_file"
    assert site.requests == []


async def test_files_are_written_read_packed_unpacked_and_listed(room: Path) -> None:
    transfer = mover(room)
    await transfer.write("é", "src/x")
    assert await transfer.read("src/x") == "é".encode()
    assert await transfer.pack("src", "all.tar.gz") == 1
    assert (await transfer.unpack("all.tar.gz", "copy")).files == 1
    assert await transfer.list(".", excludes=["*.gz"]) == ["copy/x", "src/x"]
    (room / "bad.tar.gz").write_bytes(tar_gz(entry(b"../x", b"x")))
    with pytest.raises(TransferFailed) as caught:
        await transfer.unpack("bad.tar.gz", "copy")
    assert caught.value.code == "unsafe_path"


async def test_a_file_that_is_too_large_to_be_told_is_not_read(room: Path) -> None:
    (room / "x").write_bytes(bytes(100))
    with pytest.raises(TransferFailed) as caught:
        await mover(room, read_bytes=99).read("x")
    assert caught.value.code == "too_large"


async def test_large_files_pass_through_little_memory(room: Path, open_site: Open) -> None:
    site = await open_site()
    site.answer, site.is_endless = b"HTTP/1.1 200 OK\r\n\r\n", True
    with (room / "x").open("wb") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    with pytest.raises(TransferFailed):
        await mover(room, file_bytes=64 << 20).download(site.url, "y")
    await mover(room).pack("x", "x.tar.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


async def test_a_name_is_looked_up_while_many_archives_are_packed(
    room: Path, open_site: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both take threads, and there are few."""
    going, packing = threading.Event(), threading.Semaphore(0)

    def slow(*_: object, **__: object) -> int:
        packing.release()
        going.wait(20)
        return 0

    monkeypatch.setattr(artifact_transfer, "write_archive", slow)
    site = await open_site()
    site.answers(200, b"x")
    transfer = mover(room)
    packed = [asyncio.create_task(transfer.pack("a", "b")) for _ in range(64)]
    try:
        assert await asyncio.get_running_loop().run_in_executor(None, packing.acquire, True, 10)
        async with asyncio.timeout(10):
            assert await transfer.download(f"http://localhost:{site.port}/", "x") == 1
    finally:
        going.set()
        await asyncio.gather(*packed)
