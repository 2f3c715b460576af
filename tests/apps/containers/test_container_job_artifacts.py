"""Files in and out of container jobs: each kind, what depends on what, what a container may leave behind."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from typing import Any

from tests.apps.containers.container_site import IMAGE, ContainerSite, open_file_server, working


def packed(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.replace("__", "/"))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def unpacked(raw: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:gz") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}  # type: ignore[union-attr]


def statuses(site: ContainerSite, id: str) -> dict[str, str]:
    return {event["artifactId"]: event["status"] for event in site.events_of(id, "artifact")}


async def test_every_kind_of_artifact_before_and_after_the_job(site: ContainerSite) -> None:
    archive = packed(**{"repo-main__nextjs__a.txt": b"A", "repo-main__other__b.txt": b"B"})
    async with open_file_server(code__tgz=archive) as file_server, working(site.lab):
        artifacts: list[dict[str, Any]] = [
            {"id": "get", "type": "download", "in": file_server.url("code.tgz"), "out": "in/code.tar.gz"},
            {"id": "open", "type": "unarchive", "in": "in/code.tar.gz", "out": "code", "subdir": "nextjs",
             "depends": "get"},
            {"id": "write", "type": "write", "in": '{"key": "value"}', "out": "config.json"},
            {"id": "before", "type": "list", "in": ".", "depends": "open"},
            {"id": "read", "type": "read", "in": "out/metrics.json", "depends": "job"},
            {"id": "text", "type": "read", "in": "out/log.txt", "depends": "job"},
            {"id": "names", "type": "list", "in": "out", "excludes": ["*.tmp"], "depends": "job"},
            {"id": "pack", "type": "archive", "in": "out", "out": "o.tgz", "format": "tar.gz",
             "depends": "job"},
            {"id": "put", "type": "upload", "in": "o.tgz", "out": file_server.url("up/o?sig=1"),
             "depends": "pack"},
        ]  # fmt: skip
        command = (
            "mkdir out out/deep; cat code/a.txt config.json > out/deep/both; touch out/x.tmp;"
            " echo '{\"n\": 1}' > out/metrics.json; echo plain > out/log.txt"
        )
        await site.start("files", command, artifacts=artifacts)
        assert (await site.until("files", "completed"))["exitCode"] == 0
        await site.heard("files", "artifact", count=9)
        await site.swept()
        events = {event["artifactId"]: event for event in site.events_of("files", "artifact")}
    assert {(event["artifactId"], event["artifactType"], event["status"]) for event in events.values()} == {
        (artifact["id"], artifact["type"], "success") for artifact in artifacts
    }
    assert sorted(events["before"]["content"]) == ["code/a.txt", "config.json", "in/code.tar.gz"]
    assert (events["read"]["content"], events["text"]["content"]) == ({"n": 1}, "plain\n")
    assert sorted(events["names"]["content"]) == ["deep/both", "log.txt", "metrics.json"]
    assert unpacked(file_server.put["up/o"])["deep/both"] == b'A{"key": "value"}'
    kinds = site.kinds("files")
    assert kinds.index("start") == 4
    assert kinds[kinds.index("exit") :] == ["exit"] + ["artifact"] * 5


async def test_a_failed_input_fails_the_job_before_its_container_starts(site: ContainerSite) -> None:
    async with open_file_server() as file_server, working(site.lab):
        artifacts = [
            {"id": "missing", "type": "download", "in": file_server.url("nothing"), "out": "x"},
            {"id": "next", "type": "unarchive", "in": "x", "out": "y", "depends": "missing"},
            {"id": "after", "type": "read", "in": "x", "depends": "job"},
        ]
        await site.start("unfed", "echo ran", artifacts=artifacts)
        ended = await site.until("unfed", "failed")
        assert (await site.heard("unfed", "exit"))["exitCode"] == ended["exitCode"] == -1
        assert "missing" in ended["error"]
        await site.swept()
    assert site.kinds("unfed") == ["artifact", "exit"]
    assert site.events_of("unfed", "artifact")[0]["error"].startswith("http_status")


async def test_a_failed_output_is_told_and_the_exit_code_stays(site: ContainerSite) -> None:
    async with open_file_server() as file_server, working(site.lab):
        file_server.fails.add("refused")
        artifacts = [
            {"id": "gone", "type": "archive", "in": "no", "out": "o.tgz", "format": "tar.gz",
             "depends": "job"},
            {"id": "up", "type": "upload", "in": "o.tgz", "out": file_server.url("o"), "depends": "gone"},
            {"id": "refused", "type": "upload", "in": "there", "out": file_server.url("refused"), "depends": "job"},
            {"id": "big", "type": "read", "in": "big", "depends": "job"},
            {"id": "well", "type": "read", "in": "there", "depends": "job"},
        ]  # fmt: skip
        command = "echo x > there; head -c 1048577 /dev/zero > big"
        await site.start("half", command, artifacts=artifacts, callback=site.callback("artifact", "complete"))
        await site.heard("half", "complete")
        assert await site.show("half") == {"id": "half", "status": "completed", "exitCode": 0}
    failed = {"gone": "failed", "up": "failed", "refused": "failed", "big": "failed"}
    assert statuses(site, "half") == failed | {"well": "success"}
    errors = {event["artifactId"]: event.get("error", "") for event in site.events_of("half", "artifact")}
    assert "not run" in errors["up"]
    assert errors["big"].startswith("too_large")
    assert file_server.put == {}


async def test_links_that_a_container_made_lead_nowhere(site: ContainerSite, tmp_path: Any) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the host's own")
    async with open_file_server() as file_server, working(site.lab):
        kinds: dict[str, dict[str, Any]] = {
            "read": {"type": "read", "in": "link"},
            "below": {"type": "read", "in": "dir/secret"},
            "upload": {"type": "upload", "in": "link", "out": file_server.url("stolen")},
            "list": {"type": "list", "in": "."},
            "archive": {"type": "archive", "in": ".", "out": "all.tgz", "format": "tar.gz"},
        }
        artifacts = [{"id": id, "depends": "job", **artifact} for id, artifact in kinds.items()]
        artifacts.append(
            {
                "id": "put",
                "type": "upload",
                "in": "all.tgz",
                "out": file_server.url("all"),
                "depends": "archive",
            }
        )
        command = f"ln -s {secret} link; ln -s {tmp_path} dir; mkfifo pipe; echo fine > file"
        callback = {
            "url": site.receiver.url,
            "events": ["orchestrator.job.artifact", "orchestrator.job.complete"],
        }
        await site.start("links", command, artifacts=artifacts, callback=callback)
        await site.heard("links", "complete")
        assert (await site.show("links"))["status"] == "completed"
        await site.swept()
    events = {event["artifactId"]: event for event in site.events_of("links", "artifact")}
    assert [events[id]["status"] for id in ("read", "below", "upload")] == ["failed"] * 3
    assert "stolen" not in file_server.put
    assert b"own" not in json.dumps(events).encode() + gzip.decompress(file_server.put["all"])
    assert secret.read_text() == "the host's own"


async def test_whatever_a_container_leaves_no_artifact_hangs_or_ends_the_job(site: ContainerSite) -> None:
    """A FIFO nobody writes to, a file of more bytes than there are, names of several lines, a deep tree."""
    async with open_file_server() as file_server, working(site.lab):
        kinds: dict[str, dict[str, Any]] = {
            "fifo": {"type": "read", "in": "pipe"},
            "directory": {"type": "read", "in": "deep"},
            "giant": {"type": "upload", "in": "giant", "out": file_server.url("giant")},
            "packed giant": {"type": "archive", "in": "giant", "out": "g.tgz", "format": "tar.gz"},
            "over a directory": {"type": "archive", "in": "odd", "out": "deep", "format": "tar.gz"},
            "deep": {"type": "list", "in": "deep"},
            "odd": {"type": "list", "in": "odd"},
            "packed": {"type": "archive", "in": "odd", "out": "odd.tgz", "format": "tar.gz"},
        }
        artifacts = [{"id": id, "depends": "job", **artifact} for id, artifact in kinds.items()]
        artifacts.append(
            {
                "id": "put",
                "type": "upload",
                "in": "odd.tgz",
                "out": file_server.url("odd"),
                "depends": "packed",
            }
        )
        command = (
            "mkfifo pipe; busybox dd of=giant bs=1048576 seek=102400 count=0 < /dev/null; mkdir odd deep;"
            ' echo x > odd/su; chmod 6755 odd/su; echo x > "odd/a\nb"; echo x > "odd/$(printf \'\\033[2J\')";'
            " cd deep; i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done"
        )
        callback = site.callback("artifact", "complete")
        await site.start("mess", command, artifacts=artifacts, callback=callback)
        await site.heard("mess", "complete")
        assert await site.show("mess") == {"id": "mess", "status": "completed", "exitCode": 0}
        await site.swept()
    events = {event["artifactId"]: event for event in site.events_of("mess", "artifact")}
    codes = {
        id: event["error"].partition(":")[0] for id, event in events.items() if event["status"] == "failed"
    }
    assert codes == {
        **dict.fromkeys(["fifo", "directory", "over a directory"], "not_a_regular_file"),
        **dict.fromkeys(["giant", "packed giant"], "too_large"),
        "deep": "too_deep",
    }
    names = ["\x1b[2J", "a\nb", "su"]
    assert sorted(events["odd"]["content"]) == names
    assert sorted(unpacked(file_server.put["odd"])) == names
    assert "giant" not in file_server.put


async def test_an_archive_that_leads_out_fails_the_job_and_one_with_links_comes_without_them(
    site: ContainerSite,
) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, to in (("link", "/etc"), ("chain", "link/passwd")):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, to
            archive.addfile(entry)
        archive.addfile(tarfile.TarInfo("file"))
    async with (
        open_file_server(
            bad__tgz=packed(**{"fine": b"x", "..__..__pwned": b"x"}), links__tgz=out.getvalue()
        ) as file_server,
        working(site.lab),
    ):
        for name in ("bad", "links"):
            artifacts = [
                {"id": "get", "type": "download", "in": file_server.url(f"{name}.tgz"), "out": "in.tgz"},
                {"id": "open", "type": "unarchive", "in": "in.tgz", "out": "src", "depends": "get"},
                {"id": "names", "type": "list", "in": "src", "depends": "job"},
            ]
            await site.start(name, "ls -A src", artifacts=artifacts)
        ended = await site.until("bad", "failed")
        await site.until("links", "completed")
        await site.heard("links", "artifact", count=3)
        await site.swept()
        pwned = [path for path in site.data_dir.rglob("*") if path.name == "pwned"]
    assert ended["exitCode"] == -1
    assert "unsafe_path" in ended["error"]
    assert site.lines("bad") == []
    assert pwned == []
    assert site.lines("links") == ["file"]
    assert site.events_of("links", "artifact")[-1]["content"] == ["file"]


async def test_requests_of_artifacts_pass_the_guard(site: ContainerSite) -> None:
    async with working(site.lab):
        artifacts = [{"id": "meta", "type": "download", "in": "http://169.254.169.254/latest", "out": "x"}]
        await site.start("curious", artifacts=artifacts)
        ended = await site.until("curious", "failed")
    assert ended["exitCode"] == -1
    assert "outbound_refused" in ended["error"]


async def test_the_complete_example_of_the_page(site: ContainerSite) -> None:
    """With our own image: what the page calls ffmpeg copies here."""
    async with open_file_server(source__mp4=b"a film" * 100_000) as file_server, working(site.lab):
        body = {
            "id": "video-transcode-001",
            "meta": {"userId": "user-123", "projectId": "proj-456"},
            "image": IMAGE,
            "command": "cat /workspace/input.mp4 > /workspace/output.mp4",
            "cpu": 4,
            "memory": 4096,
            "timeoutSeconds": 3600,
            "artifacts": [
                {"id": "source-video", "type": "download", "in": file_server.url("source.mp4"), "out": "input.mp4"},
                {"id": "transcoded-video", "type": "upload", "in": "output.mp4",
                 "out": file_server.url("upload/output.mp4?signature=..."), "depends": "job"},
            ],
            "callback": {"url": site.receiver.url, "key": site.key,
                         "events": ["orchestrator.job.exit", "orchestrator.job.artifact"]},
        }  # fmt: skip
        answer = await site.call("POST", body=body)
        assert (answer.status, answer.body) == (202, {"id": "video-transcode-001", "status": "accepted"})
        assert (await site.until("video-transcode-001", "completed"))["exitCode"] == 0
        await site.swept()
        await site.heard("video-transcode-001", "artifact", count=2)
    assert site.kinds("video-transcode-001") == ["artifact", "exit", "artifact"]
    assert file_server.put["upload/output.mp4"] == file_server.files["source.mp4"]
