"""What runs containers in these tests: dockerd, podman and the sandbox, each started by the tests."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cograil.apps.containers.runtime.container_runtime import (
    ContainerLogCursor,
    ContainerPolicy,
    ContainerRun,
    LogStream,
    Runtime,
)
from cograil.apps.containers.runtime.docker_engine import ContainerEngine
from cograil.apps.containers.runtime.sandbox import Sandbox
from cograil.apps.containers.runtime.sandbox.bwrap_arguments import owner_of_images
from cograil.apps.containers.runtime.sandbox.sandbox_images import import_image

POLICY = ContainerPolicy(network="none")

APPLETS = (
    "sh", "echo", "cat", "sleep", "id", "ls", "seq", "head", "mknod", "mount", "ps", "yes", "tail", "pwd",
    "touch", "mkdir", "unshare", "kill", "ln", "chmod", "grep", "env", "printf", "tr", "test", "true", "stat",
    "mkfifo",
)  # fmt: skip
IMAGE = "cograil-test"
PASSWD = b"root:x:0:0:root:/root:/bin/sh\nworker:x:1234:1235:w:/home/worker:/bin/sh\n"
# Root here may not raise its limits, and podman would; crun knows no control groups of version 1; locks in
# shared memory would be those of every podman of the machine. Logs that cannot be read back are what some
# operators have, and no business of ours.
PODMAN = """
[containers]
log_driver = "none"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
lock_type = "file"
"""
QUIET = ("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
         "--log-driver=none")  # fmt: skip


@contextlib.contextmanager
def dockerd() -> Iterator[str]:
    """dockerd, without touching the machine's network or firewall."""
    with _directory("docker") as place:
        command = ["dockerd", "--data-root", f"{place}/data", "--exec-root", f"{place}/exec"]
        command += ["-H", f"unix://{place}/sock", "--pidfile", f"{place}/pid", *QUIET]
        with _serving(place, command):
            yield f"unix://{place}/sock"


@contextlib.contextmanager
def podman() -> Iterator[str]:
    """The service of podman, with a storage of its own."""
    with _directory("podman") as place:
        (place / "containers.conf").write_text(PODMAN)
        command = [
            "podman",
            "--root",
            f"{place}/root",
            "--runroot",
            f"{place}/run",
            "--tmpdir",
            f"{place}/tmp",
        ]
        command += ["system", "service", "--time", "0", f"unix://{place}/sock"]
        with _serving(place, command, {"CONTAINERS_CONF": str(place / "containers.conf")}):
            yield f"unix://{place}/sock"


@contextlib.contextmanager
def sandboxes() -> Iterator[Path]:
    """A data directory that only its owner may enter, with the image in it."""
    with _directory("sandbox") as place:
        import_image(place / "images", IMAGE, io.BytesIO(root_file_system()), owner_of_images())
        yield place


def runtime_at(where: str) -> Runtime:
    """The engine at this URL, or the sandboxes in this directory."""
    return ContainerEngine(where) if where.startswith("unix:") else Sandbox(Path(where))


def groups_of(container: str) -> list[Path]:
    """The control groups of a sandbox that are there."""
    places = [Path("/sys/fs/cgroup") / controller / "cograil" for controller in ("memory", "cpu", "pids", "")]
    return [place / container for place in places if (place / container).exists()]


@contextlib.contextmanager
def _directory(name: str) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix=f"cograil-{name}-"))
    try:
        yield place
    finally:
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if str(place) in line:
                subprocess.run(["umount", "-l", line.split()[1]], check=False)
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def _serving(place: Path, command: Sequence[str], more: Mapping[str, str] | None = None) -> Iterator[None]:
    """An engine that answers and has the image."""
    environment = os.environ | {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"} | dict(more or {})
    with (place / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=place)
    try:
        _wait_for(place / "sock", daemon, place / "log")
        give_image(place / "sock")
        yield
    finally:
        daemon.terminate()
        daemon.wait(30)


def _wait_for(at: Path, daemon: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 30
    while not is_answered(at):
        if daemon.poll() is not None or time.monotonic() > until:
            pytest.fail(f"{daemon.args!r} does not start:\n{log.read_text()[-3000:]}")
        time.sleep(0.1)  # a process that tells nobody when it is ready


def give_image(at: Path) -> None:
    """Let the engine have the image."""
    image = f"/images/create?fromSrc=-&repo={IMAGE}&tag=latest"
    assert _ask(at, "POST", image, root_file_system()) == 200


def is_answered(at: Path) -> bool:
    """Whether the engine is there."""
    try:
        return _ask(at, "GET", "/_ping") == 200
    except OSError:
        return False


def _ask(path: Path, method: str, target: str, body: bytes = b"") -> int:
    """The status of one request over the socket of the engine."""
    connection = http.client.HTTPConnection("engine", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    with contextlib.closing(connection):
        connection.sock.connect(str(path))
        connection.request(method, target, body, {"content-type": "application/x-tar"})
        answer = connection.getresponse()
        answer.read()
        return answer.status


def root_file_system() -> bytes:
    """A busybox and the names it goes by."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("bin", "tmp", "proc", "dev", "sys", "etc"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(directory)
        archive.add(shutil.which("busybox") or "/bin/busybox", "bin/busybox")
        for name in APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        passwd = tarfile.TarInfo("etc/passwd")
        passwd.size = len(PASSWD)
        archive.addfile(passwd, io.BytesIO(PASSWD))
    return out.getvalue()


def run(room: Path, command: str, **more: Any) -> ContainerRun:
    name = f"cograil-test-{uuid4().hex[:12]}"
    options: dict[str, Any] = {
        "name": name,
        "image": f"{IMAGE}:latest",
        "command": command,
        "room": room,
        "mount": "/workspace",
        "cpus": 1.0,
        "memory_mb": 64,
        "environment": {},
        "labels": {"cograil.test": "yes", "cograil.name": name},
    }
    return ContainerRun(**(options | more))


async def output(
    runtime: Runtime, container: str, stream: LogStream = "stdout", after: ContainerLogCursor | None = None
) -> list[str]:
    return [text async for _, text in runtime.lines(container, stream, after or ContainerLogCursor())]


async def output_of(
    runtime: Runtime, room: Path, command: str, policy: ContainerPolicy = POLICY, **more: Any
) -> str:
    container = await runtime.start(run(room, command, **more), policy)
    await runtime.wait(container)
    return "\n".join(await output(runtime, container))


async def until_it_says(runtime: Runtime, container: str, wanted: str) -> None:
    async with asyncio.timeout(20), aclosing(runtime.lines(container, "stdout")) as lines:
        async for _, text in lines:
            if text == wanted:
                return
    pytest.fail(f"it never said {wanted!r}")
