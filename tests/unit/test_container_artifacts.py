"""What becomes of an artifact is a value: also where a disk is full, or a file says more than can be told."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from tests.support.tar_entries import entry, tar_gz

from cograil.apps.containers.runtime import container_artifacts
from cograil.apps.containers.runtime.artifact_transfer import ArtifactTransfer
from cograil.apps.containers.runtime.container_artifacts import content_of, move
from cograil.egress import PublicOnly
from cograil.model.container_spec import Archive, List, Read, Unarchive, Write
from cograil.settings import OutboundSettings


def mover(room: Path) -> ArtifactTransfer:
    return ArtifactTransfer(room, PublicOnly(OutboundSettings()))


async def test_a_full_disk_is_told(tmp_path: Path) -> None:
    class Full(ArtifactTransfer):
        async def write(self, text: str, path: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device", "/somewhere/of/ours")

    write = Write.model_validate({"id": "a", "type": "write", "in": "x", "out": "x"})
    done = await move(write, Full(tmp_path, PublicOnly(OutboundSettings())), print)
    assert done == {"status": "failed", "error": "io_error: No space left on device"}


async def test_a_result_too_large_for_an_event_is_a_failed_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_artifacts, "MAX_CONTENT", 100)
    for number in range(20):
        (tmp_path / f"file-{number}").touch()
    done = await move(List.model_validate({"id": "a", "type": "list", "in": "."}), mover(tmp_path), print)
    assert done["status"] == "failed"
    assert done["error"].startswith("too_large")


async def test_a_megabyte_of_what_json_writes_long_is_a_failed_artifact(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x01" * 1024 * 1024)
    done = await move(Read.model_validate({"id": "a", "type": "read", "in": "x"}), mover(tmp_path), print)
    assert done["status"] == "failed"


async def test_entries_left_out_of_an_archive_are_logged(tmp_path: Path) -> None:
    noted: list[tuple[str, dict[str, Any]]] = []

    def note(message: str, **fields: Any) -> None:
        noted.append((message, fields))

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").touch()
    (tmp_path / "in" / "link").symlink_to("/etc/passwd")
    (tmp_path / "a.tgz").write_bytes(tar_gz(entry(b"x", b"x"), entry(b"y", kind=b"2")))
    pack = {"id": "out", "type": "archive", "in": "in", "out": "o.tgz", "format": "tar.gz"}
    unpack = {"id": "in", "type": "unarchive", "in": "a.tgz", "out": "there"}
    for done in (
        await move(Archive.model_validate(pack), mover(tmp_path), note),
        await move(Unarchive.model_validate(unpack), mover(tmp_path), note),
    ):
        assert done == {"status": "success"}
    message = "links and devices were left out"
    assert noted == [
        (message, {"artifact": "out", "names": ["link"]}),
        (message, {"artifact": "in", "names": ["y"]}),
    ]


@pytest.mark.parametrize(
    ("raw", "content"),
    [
        (b'{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        (b"9007199254740993", 9007199254740993),
        (b"plain\n", "plain\n"),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b"123456789012345678901234567890", "123456789012345678901234567890"),
        (b"NaN", "NaN"),
        (b"1e999", "1e999"),
        (b"[" * 5000 + b"]" * 5000, "[" * 5000 + "]" * 5000),
        (b'"\\u0000"', '"\\u0000"'),
        (b"\xff\x00", "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
        (b"", ""),
    ],
)
def test_json_is_a_value_and_all_else_is_text(raw: bytes, content: object) -> None:
    assert content_of(raw) == content


def test_much_json_is_json() -> None:
    many = {str(number): number for number in range(40_000)}
    assert content_of(str(many).replace("'", '"').encode()) == many
    deep = b"[" * 60 + b"]" * 60
    assert isinstance(content_of(deep), list)
