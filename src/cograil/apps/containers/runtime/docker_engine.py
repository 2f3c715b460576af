"""Containers, through the Docker Engine API: dockerd and podman speak it alike, but for details told here.

What a container may do is written by us from nothing. Whoever asks for one says what runs in it and how much
it may use; what it may do to the machine is the operator's word alone. A container is found again by its
labels, whoever started it, so that a process that dies leaves nothing that the next one could not take up.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from cograil.apps.containers.runtime.container_runtime import (
    BEGINNING,
    KILLED,
    STOP_SECONDS,
    ContainerPolicy,
    ContainerRecord,
    ContainerRun,
    ContainerState,
    EngineError,
    LogCursor,
    LogStream,
    Pull,
)
from cograil.apps.containers.runtime.docker_log_frames import frames_of, lines_behind, seconds_of
from cograil.apps.containers.runtime.oom_detection import was_out_of_memory

__all__ = [
    "BEGINNING",
    "STOP_SECONDS",
    "ContainerEngine",
    "ContainerPolicy",
    "ContainerRecord",
    "ContainerRun",
    "ContainerState",
    "EngineError",
    "LogCursor",
    "LogStream",
    "Pull",
    "container_config",
    "engine_urls",
]

ASK_SECONDS = 120.0  # for an answer to what takes an engine a moment; a slow machine has long moments
PULL_SECONDS = 30.0  # within which a pull goes on, or has failed
LOOK_SECONDS = 30.0  # after which an engine is asked anew how a container is
CPU_PERIOD, LEAST_QUOTA = 100_000, 1_000  # microseconds
LOG = {
    "Type": "json-file",
    "Config": {},
}  # whatever the engine does by itself: not every log can be read back
TMP = "rw,noexec,nosuid,nodev,size=64m,mode=1777"  # else a user who is not root cannot write there
NO_CONNECTION, NOT_FOUND, CONFLICT = 900, 404, 409  # the first is the library's own word
RETRY_SECONDS = 0.5


def container_config(run: ContainerRun, policy: ContainerPolicy) -> dict[str, Any]:
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
        "LogConfig": LOG,
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
    """An engine that answers. Raises EngineError for a URL that leads to none."""

    def __init__(self, url: str) -> None:
        import aiodocker  # noqa: PLC0415  most workers never run a container
        import aiohttp  # noqa: PLC0415

        self.url = url
        try:
            self._docker = aiodocker.Docker(url=url, timeout=aiohttp.ClientTimeout(total=ASK_SECONDS))
        except Exception as error:  # whatever it is, it is about the URL
            raise EngineError("engine_unreachable", f"{url!r} leads to no engine: {error}") from error
        # Each container that runs holds three: of the usual hundred, soon none would be left to stop one.
        self._docker.connector._limit = 0
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

    async def held(self, labels: Mapping[str, str]) -> list[ContainerRecord]:
        """All containers with these labels."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        async with _told("engine_unreachable"):
            found = await self._docker.containers.list(all=True, filters={"label": wanted})
        return [ContainerRecord(one.id, one["Labels"]) for one in found]

    async def start(self, run: ContainerRun, policy: ContainerPolicy) -> str:
        """Run it, unless it runs already; its container. Raises EngineError; who refuses leaves nothing."""
        if (known := await self.find(run.labels)) is None:
            await self._have_image(run.image, policy.pull)
            known = await self._create(run, policy)
        state = await self.state(known)
        if not state.is_running and not state.has_run:
            try:
                async with _told("start_failed"):
                    await self._docker.containers.container(known).start()
            except EngineError as error:
                if error.code == "start_failed":  # one that does not answer may have started it
                    await self.remove(known)
                raise
        return known

    async def _create(self, run: ContainerRun, policy: ContainerPolicy) -> str:
        """A new container; or that of whoever was quicker: an attempt of this run that was taken for dead."""
        try:
            async with _told("create_failed"):
                return (await self._docker.containers.create(container_config(run, policy), name=run.name)).id
        except EngineError as error:
            if error.code != "create_failed":
                raise
            is_taken = getattr(error.__cause__, "status", 0) == CONFLICT  # podman says 500, as of all else
            if known := await self._named(run, ASK_SECONDS if is_taken else 0):
                return known
            raise

    async def _named(self, run: ContainerRun, seconds: float) -> str | None:
        """The container of this run by its name. One that is being made has its name before all else."""
        until = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                async with _told("engine_unreachable"):
                    found = await self._docker.containers.container(run.name).show()
            except EngineError as error:
                if error.code != "not_found":
                    raise
                if asyncio.get_running_loop().time() >= until:
                    return None
            else:
                is_its = run.labels.items() <= (found["Config"]["Labels"] or {}).items()
                return str(found["Id"]) if is_its else None
            await asyncio.sleep(RETRY_SECONDS)

    async def state(self, container: str) -> ContainerState:
        """How it is."""
        async with _told("engine_unreachable"):
            told = (await self._docker.containers.container(container).show())["State"]
        has_run = not str(told.get("StartedAt", "0001")).startswith("0001")
        exit_code, is_running = int(told.get("ExitCode", 0)), bool(told.get("Running"))
        is_out = bool(told.get("OOMKilled")) and bool(exit_code)  # else it got over what was killed
        if exit_code == KILLED and not is_running and not is_out:
            is_out = await self._is_likely_out_of_memory(container)
        return ContainerState(is_running, has_run, exit_code, is_out)

    async def _is_likely_out_of_memory(self, container: str) -> bool:
        """podman does not say: the kernel does, or nobody else is known who would have killed it."""
        if self._is_podman is None:
            await self.version()
        if not self._is_podman:
            return False
        is_here = self.url.startswith("unix:")
        found = await asyncio.to_thread(was_out_of_memory, container) if is_here else None
        return container not in self._stopped if found is None else found

    async def wait(self, container: str) -> ContainerState:
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
            async with _told("engine_unreachable"), asyncio.timeout(ASK_SECONDS):
                await self._docker.containers.container(container).delete(force=True, v=True)
        except EngineError as error:
            if error.code != "not_found":
                raise

    async def lines(
        self, container: str, stream: LogStream, after: LogCursor = BEGINNING
    ) -> AsyncGenerator[tuple[LogCursor, str]]:
        """The lines of a log behind this place, each with its own, until the container ends."""
        asked: dict[str, Any] = {stream: True, "follow": True, "timestamps": True}
        if after.stamp:
            asked["since"] = seconds_of(after.stamp)
        frames = self._log(container, asked)
        async with (
            _told("engine_unreachable"),
            aclosing(frames),
            aclosing(lines_behind(frames, after)) as lines,
        ):
            async for line in lines:
                yield line

    async def _log(self, container: str, asked: dict[str, Any]) -> AsyncGenerator[bytes]:
        """Not as the library does it, which never lets go of a log that is not read to its end."""
        import aiohttp  # noqa: PLC0415

        path, patience = f"containers/{container}/logs", aiohttp.ClientTimeout(sock_connect=ASK_SECONDS)
        async with (
            self._docker._query(path, params=asked, timeout=patience) as answer,
            answer,
            aclosing(frames_of(answer.content)) as frames,
        ):
            async for frame in frames:
                yield frame

    async def _have_image(self, image: str, pull: Pull) -> None:
        """Raises EngineError when the image is not there and cannot be had."""
        if pull != "always" and await self._has_image(image):
            return
        if pull == "never":
            raise EngineError(
                "image_not_found",
                f"there is no image {image!r} here, and COGRAIL_CONTAINERS__PULL is never: pull it by hand, "
                "or set that to missing",
                is_final=True,
            )
        try:
            async with asyncio.timeout(PULL_SECONDS) as limit, _told("image_not_found"):
                async for _ in self._pulled(image):  # a large one takes its time, as long as some of it comes
                    limit.reschedule(asyncio.get_running_loop().time() + PULL_SECONDS)
        except (EngineError, TimeoutError) as error:
            if isinstance(error, EngineError) and error.code == "engine_unreachable":
                raise
            why = str(error) or "nothing comes"
            message = f"the image {image!r} cannot be pulled: {why}"
            is_final = isinstance(error, EngineError) and error.is_final
            raise EngineError("image_not_found", message, is_final=is_final) from error

    async def _has_image(self, image: str) -> bool:
        import aiodocker  # noqa: PLC0415

        async with _told("image_not_found"):
            try:
                await self._docker.images.inspect(image)
            except aiodocker.DockerError as error:
                if error.status != NOT_FOUND:
                    raise
                return False
        return True

    async def _pulled(self, image: str) -> AsyncGenerator[Any]:
        """What the engine says of its progress; the library would not let go of a pull that is given up."""
        import aiohttp  # noqa: PLC0415
        from aiodocker.jsonstream import json_stream_stream  # noqa: PLC0415

        name = image.rpartition("/")[2]
        asked = {"fromImage": image} | ({} if {":", "@"} & set(name) else {"tag": "latest"})
        patience = aiohttp.ClientTimeout(sock_connect=ASK_SECONDS)
        async with (
            self._docker._query("images/create", "POST", params=asked, timeout=patience) as answer,
            answer,
        ):
            async for step in json_stream_stream(answer):
                yield step


@asynccontextmanager
async def _told(code: str) -> AsyncIterator[None]:
    """What the engine refuses, in our words."""
    import aiodocker  # noqa: PLC0415
    import aiohttp  # noqa: PLC0415

    try:
        yield
    except aiodocker.DockerError as error:
        if error.status == NO_CONNECTION:
            code = "engine_unreachable"
        elif error.status == NOT_FOUND and code == "engine_unreachable":
            code = "not_found"
        raise EngineError(code, str(error.message), is_final=error.status == NOT_FOUND) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise EngineError("engine_unreachable", f"the container engine does not answer: {error}") from error
