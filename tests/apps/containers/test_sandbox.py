"""What is the sandbox's own: its supervisor, its directory, its images, and what it keeps apart."""

from __future__ import annotations

import asyncio
import io
import json
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import aclosing
from errno import EPERM
from pathlib import Path

import pytest
from tests.apps.containers.runtimes import (
    IMAGE,
    POLICY,
    groups_of,
    output,
    output_of,
    root_file_system,
    run,
    until_it_says,
)

from cograil.apps.containers.runtime.container_runtime import ContainerLogCursor, ContainerPolicy, EngineError
from cograil.apps.containers.runtime.sandbox import Sandbox
from cograil.apps.containers.runtime.sandbox.bwrap_arguments import ROOT_OUTSIDE, owner_of_images
from cograil.apps.containers.runtime.sandbox.cgroups import Groups
from cograil.apps.containers.runtime.sandbox.sandbox_directory import SandboxDirectory
from cograil.apps.containers.runtime.sandbox.sandbox_images import (
    InvalidImage,
    image_directory,
    image_names,
    import_image,
)
from cograil.processes import run_async

ROOT = Path(__file__).parents[3]
BASE = 0x400000  # where a program is loaded
# keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0), then exit with the error it gave
ASKS_FOR_A_KEYRING = bytes.fromhex("b8fa00000031ffbefdffffff31d20f0589c7f7dfb83c0000000f05")


@pytest.fixture
async def sandbox(sandbox_place: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(sandbox_place) as sandbox:
        yield sandbox
        while (left := await sandbox.find({"cograil.test": "yes"})) is not None:
            await sandbox.remove(left)
            assert not groups_of(left)


async def test_a_sandbox_dies_with_its_supervisor(sandbox: Sandbox, sandbox_place: Path, room: Path) -> None:
    container = await sandbox.start(run(room, "echo up; sleep 600"), POLICY)
    await until_it_says(sandbox, container, "up")
    place = SandboxDirectory(sandbox_place / "sandboxes" / container)
    inside = [int(pid) for group in groups_of(container)[:1] for pid in _processes(group)]
    assert len(inside) >= 3, "bwrap, its first process and the command"
    os.kill(place.supervisor(), signal.SIGKILL)
    async with asyncio.timeout(10):
        state = await sandbox.wait(container)
        assert (state.is_running, state.has_run, state.exit_code) == (False, True, 137)
        while groups_of(container) and _processes(groups_of(container)[0]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await sandbox.remove(container)
    assert not groups_of(container)
    assert not place.path.exists()


def _processes(group: Path) -> list[str]:
    return (group / "cgroup.procs").read_text().split()


async def test_processes_in_the_group_of_a_removed_sandbox_are_killed(sandbox: Sandbox, room: Path) -> None:
    container = await sandbox.start(run(room, "echo up; sleep 600"), POLICY)
    await until_it_says(sandbox, container, "up")
    stray = subprocess.Popen(["sleep", "600"])
    for group in groups_of(container):
        (group / "cgroup.procs").write_text(str(stray.pid))
    try:
        async with asyncio.timeout(20):
            await asyncio.gather(sandbox.remove(container), _reaped(stray))
        assert stray.returncode == -signal.SIGKILL
    finally:
        stray.kill()
        stray.wait()
    assert not groups_of(container)


async def _reaped(process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_nothing_is_left_of_a_removed_sandbox(
    sandbox: Sandbox, sandbox_place: Path, room: Path
) -> None:
    mounts = len(Path("/proc/self/mounts").read_text().splitlines())
    container = await sandbox.start(run(room, "mkdir -p /a/b; echo x > /a/b/c; ln -s / /a/out"), POLICY)
    await sandbox.wait(container)
    assert not groups_of(container), "its groups go when it ends"
    assert len(Path("/proc/self/mounts").read_text().splitlines()) == mounts
    await sandbox.remove(container)
    assert os.listdir(sandbox_place / "sandboxes") == []


async def test_remains_of_a_dead_process_are_cleared_away(
    sandbox: Sandbox, sandbox_place: Path, room: Path
) -> None:
    old, new = (sandbox_place / "sandboxes" / f".cograil-{name}" for name in ("old", "new"))
    for directory in (old, new):
        (directory / "upper" / "d").mkdir(parents=True)
    os.utime(old, (0, 0))
    await sandbox.start(run(room, "true"), POLICY)
    assert (old.exists(), new.exists()) == (False, True), "the new one may be in the making"
    shutil.rmtree(new)


async def test_two_starts_at_once_make_one_sandbox(sandbox_place: Path, room: Path) -> None:
    request = run(room, "echo once >> runs; sleep 600")
    some = [Sandbox(sandbox_place) for _ in range(4)]
    started = await asyncio.gather(*(sandbox.start(request, POLICY) for sandbox in some))
    try:
        assert set(started) == {request.name}
        await some[0].stop(request.name, 0)
        assert (room / "runs").read_text() == "once\n"
    finally:
        await some[0].remove(request.name)
    assert os.listdir(sandbox_place / "sandboxes") == []


async def test_a_supervisor_that_comes_late_runs_nothing(
    sandbox: Sandbox, sandbox_place: Path, room: Path
) -> None:
    request = run(room, "echo once >> runs; echo up; until [ -e go ]; do sleep 0.1; done")
    container = await sandbox.start(request, POLICY)
    await until_it_says(sandbox, container, "up")
    started = sandbox_place / "sandboxes" / container / "started"
    started.unlink()
    await sandbox._launch(container, request, POLICY)  # somebody has the lock
    started.touch()
    (room / "go").touch()
    await sandbox.wait(container)
    await sandbox._launch(container, request, POLICY)  # it has been started before
    assert (room / "runs").read_text() == "once\n"


async def test_root_inside_a_sandbox_is_nobody_outside(sandbox: Sandbox, room: Path) -> None:
    assert "uid=0" in await output_of(sandbox, room, "id; touch mine")
    expected = ROOT_OUTSIDE if os.geteuid() == 0 else os.geteuid()
    assert (room / "mine").stat().st_uid == expected


async def test_a_sandbox_makes_no_namespaces_and_inherits_no_descriptors(
    sandbox: Sandbox, room: Path
) -> None:
    command = "exec 2>&1; for one in 'unshare -U true' 'unshare -m true'; do $one || echo no; done"
    lines = (await output_of(sandbox, room, f"{command}; ls /proc/self/fd")).splitlines()
    assert lines.count("no") == 2
    assert {line for line in lines if line.isdigit()} <= {"0", "1", "2", "3"}, (
        "no descriptor of ours is in it"
    )


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the program below is for another processor")
async def test_refused_calls_are_refused_though_anybody_may_make_them(sandbox: Sandbox, room: Path) -> None:
    header = struct.pack(
        "<4sBBBxQHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 2, 62, 1, BASE + 120, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    size = 120 + len(ASKS_FOR_A_KEYRING)
    program = header + struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, size, size, 4096) + ASKS_FOR_A_KEYRING
    (room / "ask").write_bytes(program)
    (room / "ask").chmod(0o755)
    assert subprocess.run([room / "ask"], check=False).returncode != EPERM, "here it may"
    container = await sandbox.start(run(room, "./ask"), POLICY)
    assert (await sandbox.wait(container)).exit_code == EPERM


async def test_a_secret_in_the_environment_is_in_no_command_line_and_no_file(
    sandbox: Sandbox, sandbox_place: Path, room: Path
) -> None:
    request = run(room, "echo up; sleep 600", environment={"TOKEN": "canary-4711"})
    container = await sandbox.start(request, POLICY)
    await until_it_says(sandbox, container, "up")
    for process in _processes(groups_of(container)[0]):
        assert b"canary" not in Path(f"/proc/{process}/cmdline").read_bytes()
    for file in (sandbox_place / "sandboxes" / container).iterdir():
        assert not file.is_file() or b"canary" not in file.read_bytes()


async def test_lines_of_any_length_are_cut_and_bytes_of_any_kind_are_told(
    sandbox: Sandbox, room: Path
) -> None:
    command = "head -c 200000 /dev/zero | tr '\\0' x; echo; printf '\\377\\n'"
    container = await sandbox.start(run(room, command), POLICY)
    await sandbox.wait(container)
    lines = await output(sandbox, container)
    assert max(map(len, lines)) <= 64 * 1024
    assert "".join(lines[:-1]) == "x" * 200_000
    assert lines[-1] == "\N{REPLACEMENT CHARACTER}"


async def test_stamps_of_log_lines_only_go_up(sandbox: Sandbox, room: Path) -> None:
    container = await sandbox.start(run(room, "seq 1 5000"), POLICY)
    await sandbox.wait(container)
    async with aclosing(sandbox.lines(container, "stdout")) as lines:
        places = [place async for place, _ in lines]
    assert places == sorted(set(places))
    assert await output(sandbox, container, after=ContainerLogCursor("9999")) == []


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"command": ""}, "no command"),
        ({"name": "../out"}, "name of a sandbox"),
        ({"mount": "/a/../../b"}, "not a valid mount point"),
        ({"mount": "workspace"}, "not a valid mount point"),
        ({"environment": {"A=B": "x"}}, "environment"),
        ({"environment": {"A": "x\0y"}}, "environment"),
        ({"image": "../../etc"}, "not the name of an image"),
        ({"command": "a\0b"}, "character"),
    ],
)
async def test_a_request_that_a_sandbox_cannot_serve_is_refused(
    sandbox: Sandbox, room: Path, more: dict[str, object], why: str
) -> None:
    request = run(room, "true", **more) if "command" not in more else run(room, str(more["command"]))
    with pytest.raises(EngineError, match=why):
        await sandbox.start(request, POLICY)
    assert await sandbox.find(request.labels) is None


async def test_an_image_that_is_not_there_is_told_before_all_else(sandbox: Sandbox, room: Path) -> None:
    with pytest.raises(EngineError, match="nowhere") as caught:
        await sandbox.start(run(room, "", image="nowhere"), POLICY)
    assert caught.value.code == "image_not_found"


async def test_a_network_that_a_sandbox_lacks_is_refused(sandbox: Sandbox, room: Path) -> None:
    with pytest.raises(EngineError, match="only none or host"):
        await sandbox.start(run(room, "true"), ContainerPolicy(network="backend"))


async def test_a_room_that_is_not_there_is_told(sandbox: Sandbox, room: Path) -> None:
    request = run(room / "gone", "true")
    with pytest.raises(EngineError, match="is not there"):
        await sandbox.start(request, POLICY)
    assert await sandbox.find(request.labels) is None


async def test_links_of_an_image_lead_nowhere_outside(
    sandbox: Sandbox, sandbox_place: Path, room: Path
) -> None:
    outside = room / "outside"
    outside.mkdir()
    archive = io.BytesIO(root_file_system())
    with tarfile.open(fileobj=archive, mode="a") as more:
        link = tarfile.TarInfo("workspace")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        more.addfile(link)
    archive.seek(0)
    import_image(sandbox_place / "images", "linked", archive, owner_of_images())
    with pytest.raises(EngineError, match="behind a link") as caught:
        await sandbox.start(run(room, "true", image="linked", mount="/workspace/in"), POLICY)
    assert caught.value.code == "start_failed"
    assert list(outside.iterdir()) == []


def test_an_image_is_replaced_whole_or_not_at_all(sandbox_place: Path) -> None:
    images = sandbox_place / "images"
    before = set(image_names(images))
    empty = io.BytesIO()
    with tarfile.open(fileobj=empty, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("file"))
    empty.seek(0)
    with pytest.raises(InvalidImage, match="no /bin/sh"):
        import_image(images, IMAGE, empty, owner_of_images())
    import_image(images, IMAGE, io.BytesIO(root_file_system()), owner_of_images())
    assert set(image_names(images)) == before
    assert (image_directory(images, IMAGE) / "bin" / "busybox").stat().st_mode & 0o777 == 0o755
    assert not [entry for entry in os.listdir(images) if entry.startswith(".")]


async def test_a_sandbox_describes_itself_and_its_shortcomings(sandbox: Sandbox, tmp_path: Path) -> None:
    assert (await sandbox.version()).startswith("bubblewrap ")
    assert any("network" in sentence for sentence in sandbox.shortcomings)
    with pytest.raises(EngineError, match="makes no sandbox here"):
        await Sandbox(tmp_path, bwrap="/nowhere/bwrap").version()
    with pytest.raises(EngineError, match="makes no sandbox here"):
        await Sandbox(tmp_path, bwrap="/bin/false").version()


def test_a_sandbox_works_in_the_event_loop_of_workers(sandbox_place: Path, room: Path) -> None:
    async def work() -> int:
        async with Sandbox(sandbox_place) as sandbox:
            assert await sandbox.version()
            container = await sandbox.start(
                run(room, "trap '' TERM; echo up; while true; do sleep 1; done"), POLICY
            )
            await until_it_says(sandbox, container, "up")
            waiting = asyncio.create_task(sandbox.wait(container))
            await sandbox.stop(container, 0)
            state = await waiting
            await sandbox.remove(container)
            return state.exit_code

    assert run_async(work()) == 137


async def test_a_sandbox_without_control_groups_says_what_is_not_limited(
    sandbox_place: Path, room: Path
) -> None:
    sandbox = Sandbox(sandbox_place, groups=Groups({}, is_second=False))
    assert any("no limit of memory" in sentence for sentence in sandbox.shortcomings)
    container = await sandbox.start(run(room, "exit 4"), POLICY)
    assert (await sandbox.wait(container)).exit_code == 4
    await sandbox.remove(container)


def test_a_user_other_than_root_can_run_sandboxes(tmp_path: Path) -> None:
    """In a namespace of users we are somebody else, without any right that root has."""
    somebody = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    program = [sys.executable, "-m", "tests.apps.containers.unprivileged_sandbox", str(tmp_path)]
    done = subprocess.run([*somebody, *program], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert report["user"] == 1000
    assert report["lines"] == ["uid=0(root) gid=0", "wrote"]
    assert report["state"] == [False, True, 3, False]
    assert any("worker's own user" in sentence for sentence in report["shortcomings"])
    assert report["left"] == []
    assert not (tmp_path / "images" / IMAGE / "etc" / "mine").exists()
