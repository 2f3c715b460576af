"""The sandbox runtime, by bubblewrap, control groups and a small supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from pathlib import Path

from cograil.apps.containers.runtime.container_runtime import (
    BEGINNING,
    STOP_SECONDS,
    ContainerLogCursor,
    ContainerPolicy,
    ContainerRecord,
    ContainerRun,
    ContainerState,
    EngineError,
    LogStream,
)
from cograil.apps.containers.runtime.sandbox import supervisor
from cograil.apps.containers.runtime.sandbox.bwrap_arguments import (
    check_run,
    owner_of_images,
    supervisor_plan,
)
from cograil.apps.containers.runtime.sandbox.cgroups import Groups, find_groups, kill_all
from cograil.apps.containers.runtime.sandbox.sandbox_directory import (
    SandboxDirectory,
    Tail,
    make_sandbox_directory,
    remove_sandbox_directory,
    sandbox_directories,
)
from cograil.apps.containers.runtime.sandbox.sandbox_images import InvalidImage, image_directory
from cograil.apps.containers.runtime.sandbox.seccomp import seccomp_filter

LOOK_SECONDS = 0.05  # between two looks at a log that grows
KILL_SECONDS = 10.0
START_SECONDS = 60.0  # for a command to run once its supervisor does
PROBE_SECONDS = 10.0
ABANDONED_SECONDS = 600.0  # after which a directory without a name was left by somebody who died
PROBE = (
    "--unshare-user --unshare-ipc --unshare-pid --unshare-net --disable-userns --uid 0 --gid 0 "
    "--cap-drop ALL --ro-bind / / --proc /proc --dev /dev --new-session --die-with-parent "
    "--size 4096 --tmpfs /tmp true"
)


class Sandbox:
    """Sandboxed processes on this machine, kept in a directory."""

    def __init__(self, data_dir: Path, bwrap: str | None = None, groups: Groups | None = None) -> None:
        self._sandboxes = data_dir.absolute() / "sandboxes"
        self._images = data_dir.absolute() / "images"
        self._bwrap = bwrap or shutil.which("bwrap") or ""
        self._groups = find_groups() if groups is None else groups

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """Isolation gaps compared with an engine."""
        return shortcomings(self._groups, is_root=owner_of_images() is not None)

    async def version(self) -> str:
        """The version of bubblewrap. Raises EngineError when no sandbox can be created here."""
        version = ""
        for arguments in ("--version", PROBE):
            code, output = await asyncio.to_thread(self._ask, *arguments.split())
            if code:
                raise EngineError("engine_unreachable", f"bubblewrap makes no sandbox here: {output}")
            version = version or output
        return version

    def _ask(self, *arguments: str) -> tuple[int, str]:
        """Run bwrap as the user of sandboxes; return its exit code and output."""
        if not self._bwrap:
            return 127, "it is not installed"
        outside = owner_of_images()
        try:
            done = subprocess.run(
                [self._bwrap, *arguments], env={"PATH": os.defpath}, cwd="/", stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PROBE_SECONDS, check=False,
                user=outside, group=outside, extra_groups=None if outside is None else [],
            )  # fmt: skip
        except OSError as error:
            return 127, f"{self._bwrap} cannot be run ({error.strerror})"
        except subprocess.TimeoutExpired:
            return 124, f"{self._bwrap} does not end"
        return done.returncode, done.stdout.decode(errors="replace").strip()

    async def find(self, labels: Mapping[str, str]) -> str | None:
        """The sandbox with these labels, running or not."""
        records = await self.held(labels)
        return records[0].container if records else None

    async def held(self, labels: Mapping[str, str]) -> list[ContainerRecord]:
        """All sandboxes with these labels."""
        return await asyncio.to_thread(self._held, labels)

    def _held(self, labels: Mapping[str, str]) -> list[ContainerRecord]:
        records = []
        for place in sandbox_directories(self._sandboxes):
            with suppress(EngineError):  # removed meanwhile
                known = place.facts()["labels"]
                records += (
                    [ContainerRecord(place.path.name, known)] if labels.items() <= known.items() else []
                )
        return records

    def running_with(self, image: str) -> list[str]:
        """The sandboxes that run in this image now."""
        directory = image_directory(self._images, image)
        names = []
        for place in sandbox_directories(self._sandboxes):
            with suppress(EngineError):
                is_same = image_directory(self._images, place.facts()["image"]) == directory
                names += [place.path.name] if is_same and place.state().is_running else []
        return names

    async def start(self, run: ContainerRun, policy: ContainerPolicy) -> str:
        """Run it, unless it runs or has run; return its sandbox. After an error nothing is left."""
        if (known := await self.find(run.labels)) is None:
            known = await asyncio.to_thread(self._make, run, policy)
        state = await self.state(known)
        if state.is_running or state.has_run:
            return known
        try:
            await self._launch(known, run, policy)
        except EngineError:
            await self.remove(known)
            raise
        return known

    def _make(self, run: ContainerRun, policy: ContainerPolicy) -> str:
        self._clear()
        self._image(run.image)
        check_run(run, policy)
        try:
            self._groups.prepare()
        except OSError as error:
            raise EngineError("create_failed", f"no control group can be made: {error}") from error
        facts = {"labels": dict(run.labels), "image": run.image, "groups": self._limits(run, policy)}
        make_sandbox_directory(self._sandboxes, run.name, facts, owner_of_images())
        return run.name

    def _image(self, name: str) -> Path:
        try:
            place = image_directory(self._images, name)
        except InvalidImage as error:
            raise EngineError("image_not_found", str(error), is_final=True) from None
        if not place.is_dir():
            raise EngineError(
                "image_not_found",
                f"the image {name!r} does not exist here, and a sandbox pulls none (COGRAIL_CONTAINERS__PULL is for "
                f"engines): make it with `cograil containers import {name} TAR`, or start Docker or Podman",
                is_final=True,
            )
        return place

    def _limits(self, run: ContainerRun, policy: ContainerPolicy) -> list[dict[str, object]]:
        return self._groups.plan(run.name, memory_mb=run.memory_mb, cpus=run.cpus, processes=policy.processes)

    async def _launch(self, name: str, run: ContainerRun, policy: ContainerPolicy) -> None:
        """Start the supervisor. Raises EngineError with what it says when the command does not run."""
        place = self._sandboxes / name
        groups = self._limits(run, policy)
        plan = supervisor_plan(run, policy, self._image(run.image), place, self._bwrap, groups)
        program = [sys.executable, "-I", "-S", supervisor.__file__, str(place)]
        try:
            done = await asyncio.to_thread(
                subprocess.run, program, input=json.dumps(plan).encode(), stdout=subprocess.PIPE, cwd="/",
                env={"PATH": os.defpath}, start_new_session=True, check=False, timeout=START_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise EngineError("start_failed", "the sandbox does not start in time") from None
        if done.stdout != b"ok":
            why = done.stdout.decode(errors="replace").strip() or "its supervisor died"
            raise EngineError("start_failed", f"the sandbox does not start: {why}")

    async def state(self, container: str) -> ContainerState:
        """The state of a sandbox. Raises EngineError `not_found`."""
        return self._place(container).state()

    async def wait(self, container: str) -> ContainerState:
        """Wait for the end of a sandbox; return its state."""
        place = self._place(container)
        while (state := place.state()).is_running:
            await _ended(place)
        return state

    async def stop(self, container: str, seconds: int = STOP_SECONDS) -> None:
        """Pass SIGTERM to the command, and kill all its processes after `seconds`."""
        place = self._place(container)
        place.facts()
        steps = ((signal.SIGTERM, seconds), (signal.SIGUSR1, KILL_SECONDS), (signal.SIGKILL, KILL_SECONDS))
        for number, patience in steps:
            if _send_signal(place, number):
                try:
                    async with asyncio.timeout(patience):
                        await _ended(place)
                except TimeoutError:
                    continue
            return

    async def remove(self, container: str) -> None:
        """Kill it if it runs, and remove its files; a missing sandbox is not an error."""
        place = self._place(container)
        try:
            groups = place.facts()["groups"]
        except EngineError:
            return
        for number in (signal.SIGUSR1, signal.SIGKILL):
            if _send_signal(place, number):
                try:
                    async with asyncio.timeout(KILL_SECONDS):
                        await _ended(place)
                except TimeoutError:
                    continue
        kill_all(groups)  # should its supervisor have left anything
        await asyncio.to_thread(supervisor.remove_groups, groups)
        await asyncio.to_thread(remove_sandbox_directory, self._sandboxes, container)

    async def lines(
        self, container: str, stream: LogStream, after: ContainerLogCursor = BEGINNING
    ) -> AsyncGenerator[tuple[ContainerLogCursor, str]]:
        """The lines of a log after this cursor, each with its own, until the sandbox ends."""
        place = self._place(container)
        is_over = not place.state().is_running
        tail = Tail(place.path / f"{stream}.log")
        try:
            while True:
                while log_lines := tail.read():
                    for stamp, text in log_lines:
                        if stamp > after.stamp:
                            yield ContainerLogCursor(stamp, 1), text
                if is_over:
                    return
                await asyncio.sleep(LOOK_SECONDS)
                is_over = _is_over(place)  # before the last look, or what came between would be missed
        finally:
            tail.close()

    def _place(self, container: str) -> SandboxDirectory:
        if "/" in container or container.startswith("."):
            raise EngineError("not_found", f"the sandbox {container[:80]!r} does not exist")
        return SandboxDirectory(self._sandboxes / container)

    def _clear(self) -> None:
        """Remove directories left by processes that died while creating or removing a sandbox."""
        if not self._sandboxes.is_dir():
            return
        for hidden in self._sandboxes.glob(".*"):
            with contextlib.suppress(FileNotFoundError):  # somebody has made or removed it just now
                if time.time() - hidden.lstat().st_mtime > ABANDONED_SECONDS:
                    remove_sandbox_directory(self._sandboxes, hidden.name)


def shortcomings(groups: Groups, *, is_root: bool) -> tuple[str, ...]:
    """The isolation gaps of a sandbox compared with an engine, as sentences."""
    sentences = [
        "it has no network of its own: what asks for a bridge gets none",
        "of the calls of the kernel the dangerous are refused; an engine allows only the harmless"
        if seccomp_filter()
        else "all calls of the kernel are allowed: those of this processor are not known",
        "images are not pulled, and have no user, command or environment of their own",
        "no capability is ever given, whatever the operator allows",
    ]
    if groups.missing:
        what = {"memory": "memory", "cpu": "processor time", "pids": "processes"}
        listed = ", ".join(what[name] for name in groups.missing)
        sentences.append(f"it has no limit of {listed}: no control group can be created here")
    if not is_root:
        sentences.append("to the machine its processes are those of the worker's own user")
    return tuple(sentences)


def _send_signal(place: SandboxDirectory, number: signal.Signals) -> bool:
    """Send the supervisor a signal; False when it is gone."""
    handle = place.handle()
    if handle is None:
        return False
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def _is_over(place: SandboxDirectory) -> bool:
    try:
        return not place.state().is_running
    except EngineError:  # somebody removed it
        return True


async def _ended(place: SandboxDirectory) -> None:
    """Wait for the supervisor to end."""
    handle = place.handle()
    if handle is None:
        return
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(handle, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
