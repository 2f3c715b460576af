"""Containers, through the Docker Engine API: dockerd and podman speak it alike, but for details told here.

What a container may do is written by us from nothing. Whoever asks for one says what runs in it and how much
it may use; what it may do to the machine is the operator's word alone. A container is found again by its
labels, whoever started it, so that a process that dies leaves nothing that the next one could not take up.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from cograil.runners.kernel_log import was_out_of_memory
from cograil.runners.runtime import (
    BEGINNING,
    KILLED,
    LONGEST_LINE,
    STOP_SECONDS,
    EngineError,
    Held,
    LogPlace,
    Policy,
    Pull,
    Run,
    State,
    Stream,
)

__all__ = [
    "BEGINNING",
    "STOP_SECONDS",
    "ContainerEngine",
    "EngineError",
    "Held",
    "LogPlace",
    "Policy",
    "Pull",
    "Run",
    "State",
    "Stream",
    "container_config",
    "engine_urls",
]

PULL_SECONDS = 30.0
LOOK_SECONDS = 30.0  # after which an engine is asked anew how a container is
CPU_PERIOD, LEAST_QUOTA = 100_000, 1_000  # microseconds
TMP = "rw,noexec,nosuid,nodev,size=64m,mode=1777"  # else a user who is not root cannot write there
_PARTS = re.compile(r"([^.Z+]+?)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")
_STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ?(.*)", re.DOTALL)


def container_config(run: Run, policy: Policy) -> dict[str, Any]:
    """What the engine is asked for. Nothing in it comes from elsewhere."""
    memory = run.memory_mb * 1024 * 1024
    host: dict[str, Any] = {
        "Mounts": [{"Type": "bind", "Source": str(run.room), "Target": run.mount, "ReadOnly": False}],
        "Memory": memory,
        "MemorySwap": memory,
        "CpuPeriod": CPU_PERIOD,  # so that more may be asked for than this machine has
        "CpuQuota": max(LEAST_QUOTA, int(run.cpus * CPU_PERIOD)),
        "PidsLimit": policy.processes,
        "CapDrop": ["ALL"],
        "CapAdd": list(policy.capabilities),
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": policy.is_root_read_only,
        "NetworkMode": policy.network,
        "Init": True,  # or the first process ignores being told to stop
        "AutoRemove": False,
        "RestartPolicy": {"Name": "no"},
        "Privileged": False,
    }
    if policy.is_root_read_only:
        host["Tmpfs"] = {"/tmp": TMP}
    config: dict[str, Any] = {
        "Image": run.image,
        "WorkingDir": run.mount,
        "Env": [f"{name}={value}" for name, value in run.environment.items()],
        "Labels": dict(run.labels),
        "HostConfig": host,
        "AttachStdout": False,
        "AttachStderr": False,
        "Tty": False,
    }
    if policy.user:
        config["User"] = policy.user
    if run.command:
        config["Entrypoint"], config["Cmd"] = ["/bin/sh", "-c"], [run.command]
    return config


def engine_urls() -> list[str]:
    """Where an engine may be: where DOCKER_HOST says, else the usual sockets."""
    if told := os.environ.get("DOCKER_HOST"):
        return [told]
    own = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    places = (
        "/var/run/docker.sock",
        "/run/podman/podman.sock",
        f"{own}/docker.sock",
        f"{own}/podman/podman.sock",
    )
    return [f"unix://{place}" for place in places if Path(place).is_socket()]


class ContainerEngine:
    """An engine that answers."""

    def __init__(self, url: str) -> None:
        import aiodocker  # noqa: PLC0415  most workers never run a container

        self.url = url
        self._docker = aiodocker.Docker(url=url)
        self._is_podman: bool | None = None
        self._stopped: set[str] = set()

    async def __aenter__(self) -> ContainerEngine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._docker.close()

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """None: what an engine keeps apart is what we compare others with."""
        return ()

    async def version(self) -> str:
        """What it says of itself. Raises EngineError when it does not answer within five seconds."""
        async with _told("engine_unreachable"), asyncio.timeout(5):
            found = await self._docker.version()
        self._is_podman = "podman" in str(found.get("Components", "")).lower()
        return f"{'podman' if self._is_podman else 'docker'} {found['Version']}"

    async def find(self, labels: Mapping[str, str]) -> str | None:
        """The container with these labels, running or not."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        async with _told("engine_unreachable"):
            found = await self._docker.containers.list(all=True, filters={"label": wanted})
        return found[0].id if found else None

    async def held(self, labels: Mapping[str, str]) -> list[Held]:
        """All containers with these labels."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        async with _told("engine_unreachable"):
            found = await self._docker.containers.list(all=True, filters={"label": wanted})
        return [Held(one.id, one["Labels"]) for one in found]

    async def start(self, run: Run, policy: Policy) -> str:
        """Run it, unless it runs already; its container. Raises EngineError, and then nothing is left."""
        if (known := await self.find(run.labels)) is None:
            await self._have_image(run.image, policy.pull)
            async with _told("create_failed"):
                known = (
                    await self._docker.containers.create(container_config(run, policy), name=run.name)
                ).id
        state = await self.state(known)
        if not state.is_running and not state.has_run:
            try:
                async with _told("start_failed"):
                    await self._docker.containers.container(known).start()
            except EngineError:
                await self.remove(known)
                raise
        return known

    async def state(self, container: str) -> State:
        """How it is."""
        async with _told("engine_unreachable"):
            told = (await self._docker.containers.container(container).show())["State"]
        has_run = not str(told.get("StartedAt", "0001")).startswith("0001")
        exit_code, is_running = int(told.get("ExitCode", 0)), bool(told.get("Running"))
        is_out = bool(told.get("OOMKilled"))
        if exit_code == KILLED and not is_running and not is_out:
            is_out = await self._is_likely_out_of_memory(container)
        return State(is_running, has_run, exit_code, is_out)

    async def _is_likely_out_of_memory(self, container: str) -> bool:
        """podman does not say: the kernel does, or nobody else is known who would have killed it."""
        if self._is_podman is None:
            await self.version()
        if not self._is_podman:
            return False
        is_here = self.url.startswith("unix:")
        found = await asyncio.to_thread(was_out_of_memory, container) if is_here else None
        return container not in self._stopped if found is None else found

    async def wait(self, container: str) -> State:
        """How it ended; waits until it does. An engine may miss an end, so now and then it is asked anew."""
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    async with _told("engine_unreachable"):
                        await self._docker.containers.container(container).wait()
                    return await self.state(container)
            except TimeoutError:
                if not (state := await self.state(container)).is_running:
                    return state

    async def stop(self, container: str, seconds: int = STOP_SECONDS) -> None:
        """Tell it to stop, and kill it after so many seconds."""
        self._stopped.add(container)
        async with _told("engine_unreachable"), asyncio.timeout(seconds + LOOK_SECONDS):
            await self._docker.containers.container(container).stop(t=seconds)

    async def remove(self, container: str) -> None:
        """Remove it with its volumes, whatever it does. That it is gone already is fine."""
        self._stopped.discard(container)
        try:
            async with _told("engine_unreachable"):
                await self._docker.containers.container(container).delete(force=True, v=True)
        except EngineError as error:
            if error.code != "not_found":
                raise

    async def lines(
        self, container: str, stream: Stream, after: LogPlace = BEGINNING
    ) -> AsyncGenerator[tuple[LogPlace, str]]:
        """The lines of a log behind this place, each with its own, until the container ends."""
        asked: dict[str, Any] = {stream: True, "follow": True, "timestamps": True}
        if after.stamp:
            asked["since"] = _seconds(after.stamp)
        place, seen = after, 0
        pieces = self._log(container, asked)
        async with _told("engine_unreachable"), aclosing(pieces), aclosing(_whole_lines(pieces)) as lines:
            async for stamp, text in lines:
                if stamp == after.stamp:
                    seen += 1
                    if seen <= after.lines:
                        continue
                elif after.stamp and stamp < after.stamp:
                    continue
                place = LogPlace(stamp, place.lines + 1 if stamp == place.stamp else 1)
                yield place, text

    async def _log(self, container: str, asked: dict[str, Any]) -> AsyncGenerator[str]:
        """As the library does it, but it never lets go of a log that is not read to its end."""
        import aiohttp  # noqa: PLC0415
        from aiodocker.multiplexed import multiplexed_result_stream  # noqa: PLC0415

        path, patience = f"containers/{container}/logs", aiohttp.ClientTimeout(total=None)
        async with self._docker._query(path, params=asked, timeout=patience) as answer, answer:
            async for piece in multiplexed_result_stream(answer):  # type: ignore[no-untyped-call]
                yield piece

    async def _have_image(self, image: str, pull: Pull) -> None:
        """Raises EngineError when the image is not there and cannot be had."""
        import aiodocker  # noqa: PLC0415

        try:
            if pull != "always":
                await self._docker.images.inspect(image)
                return
        except aiodocker.DockerError as error:
            if pull == "never" or error.status != 404:
                raise EngineError("image_not_found", f"there is no image {image!r} here") from error
        try:
            async with asyncio.timeout(PULL_SECONDS):
                await self._docker.images.pull(image)
        except (aiodocker.DockerError, TimeoutError) as error:
            why = error.message if isinstance(error, aiodocker.DockerError) else "it takes too long"
            raise EngineError("image_not_found", f"the image {image!r} cannot be pulled: {why}") from error


@asynccontextmanager
async def _told(code: str) -> AsyncIterator[None]:
    """What the engine refuses, in our words."""
    import aiodocker  # noqa: PLC0415
    import aiohttp  # noqa: PLC0415

    try:
        yield
    except aiodocker.DockerError as error:
        is_gone = error.status == 404 and code == "engine_unreachable"
        raise EngineError("not_found" if is_gone else code, str(error.message)) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise EngineError("engine_unreachable", f"the container engine does not answer: {error}") from error


async def _whole_lines(pieces: AsyncIterator[str]) -> AsyncGenerator[tuple[str, str]]:
    """Stamps and texts of whole lines; podman tells a line in several pieces."""
    rest = ""
    async for piece in pieces:
        rest += piece
        while True:
            line, newline, after = rest.partition("\n")
            if not newline and len(rest) <= LONGEST_LINE:
                break
            line, rest = (line, after) if newline else (rest, "")
            yield _unstamped(line)
    if rest:
        yield _unstamped(rest)


def _unstamped(line: str) -> tuple[str, str]:
    found = _STAMPED.fullmatch(line.rstrip("\r"))
    return (found[1], found[2]) if found else ("", line)


def _seconds(stamp: str) -> str:
    """A stamp as the engine wants it: seconds and their fraction, without losing a digit."""
    whole, fraction, zone = _PARTS.fullmatch(stamp).groups()  # type: ignore[union-attr]
    return f"{int(datetime.fromisoformat(whole + zone).timestamp())}.{fraction or '0'}"
