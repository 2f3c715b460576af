"""The container runtime of the Docker Engine API, for dockerd and podman.

The configuration of a container is written from scratch: the caller chooses what runs and how much it may use; its
rights on the machine are set by the operator only. A container is found by its labels, so that another process can
take it over after a crash.
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
    ContainerLogCursor,
    ContainerPolicy,
    ContainerRecord,
    ContainerRun,
    ContainerState,
    EngineError,
    LogStream,
    Pull,
)
from cograil.apps.containers.runtime.docker_log_frames import frames_of, lines_behind, seconds_of
from cograil.apps.containers.runtime.oom_detection import was_out_of_memory

__all__ = [
    "BEGINNING",
    "STOP_SECONDS",
    "ContainerEngine",
    "ContainerLogCursor",
    "ContainerPolicy",
    "ContainerRecord",
    "ContainerRun",
    "ContainerState",
    "EngineError",
    "LogStream",
    "Pull",
    "container_config",
    "engine_urls",
]

ASK_SECONDS = 120.0  # timeout of a short request; generous for slow machines
PULL_SECONDS = 30.0  # without progress, after which a pull has failed
LOOK_SECONDS = 30.0  # between two checks of a container that is waited for
CPU_PERIOD, MIN_QUOTA = 100_000, 1_000  # microseconds
LOG = {
    "Type": "json-file",
    "Config": {},
}  # whatever the engine does by itself: not every log can be read back
TMP = "rw,noexec,nosuid,nodev,size=64m,mode=1777"  # else a user who is not root cannot write there
NO_CONNECTION, NOT_FOUND, CONFLICT = 900, 404, 409  # the first is the library's own word
RETRY_SECONDS = 0.5


def container_config(run: ContainerRun, policy: ContainerPolicy) -> dict[str, Any]:
    """The body of the create request; the caller's values appear only in the fields set here."""
    memory = run.memory_mb * 1024 * 1024
    host: dict[str, Any] = {
        "Mounts": [{"Type": "bind", "Source": str(run.room), "Target": run.mount, "ReadOnly": False}],
        "Memory": memory,
        "MemorySwap": memory,
        "CpuPeriod": CPU_PERIOD,  # so that more may be asked for than this machine has
        "CpuQuota": max(MIN_QUOTA, int(run.cpus * CPU_PERIOD)),
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
    """The URLs to try: DOCKER_HOST, else the usual sockets."""
    if configured_url := os.environ.get("DOCKER_HOST"):
        return [configured_url]
    own = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    places = (
        "/var/run/docker.sock",
        "/run/podman/podman.sock",
        f"{own}/docker.sock",
        f"{own}/podman/podman.sock",
    )
    return [f"unix://{place}" for place in places if Path(place).is_socket()]


class ContainerEngine:
    """An engine at a URL. Raises EngineError for an invalid URL."""

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
        """None: other runtimes are compared with an engine."""
        return ()

    async def version(self) -> str:
        """Its name and version. Raises EngineError when it does not respond within five seconds."""
        async with _translate_errors("engine_unreachable"), asyncio.timeout(5):
            info = await self._docker.version()
        self._is_podman = "podman" in str(info.get("Components", "")).lower()
        return f"{'podman' if self._is_podman else 'docker'} {info['Version']}"

    async def find(self, labels: Mapping[str, str]) -> str | None:
        """The container with these labels, running or not."""
        label_filters = [f"{name}={value}" for name, value in labels.items()]
        async with _translate_errors("engine_unreachable"):
            containers = await self._docker.containers.list(all=True, filters={"label": label_filters})
        return containers[0].id if containers else None

    async def held(self, labels: Mapping[str, str]) -> list[ContainerRecord]:
        """All containers with these labels."""
        label_filters = [f"{name}={value}" for name, value in labels.items()]
        async with _translate_errors("engine_unreachable"):
            containers = await self._docker.containers.list(all=True, filters={"label": label_filters})
        return [ContainerRecord(container.id, container["Labels"]) for container in containers]

    async def start(self, run: ContainerRun, policy: ContainerPolicy) -> str:
        """Run it, unless it runs already; return its container. After an EngineError nothing is left."""
        if (known := await self.find(run.labels)) is None:
            await self._have_image(run.image, policy.pull)
            known = await self._create(run, policy)
        state = await self.state(known)
        if not state.is_running and not state.has_run:
            try:
                async with _translate_errors("start_failed"):
                    await self._docker.containers.container(known).start()
            except EngineError as error:
                if error.code == "start_failed":  # one that does not answer may have started it
                    await self.remove(known)
                raise
        return known

    async def _create(self, run: ContainerRun, policy: ContainerPolicy) -> str:
        """Create a container, or return that of a concurrent attempt of this run that was taken for dead."""
        try:
            async with _translate_errors("create_failed"):
                return (await self._docker.containers.create(container_config(run, policy), name=run.name)).id
        except EngineError as error:
            if error.code != "create_failed":
                raise
            is_taken = getattr(error.__cause__, "status", 0) == CONFLICT  # podman says 500, as of all else
            if known := await self._named(run, ASK_SECONDS if is_taken else 0):
                return known
            raise

    async def _named(self, run: ContainerRun, seconds: float) -> str | None:
        """The container of this run by its name, which a container has before it is complete."""
        until = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                async with _translate_errors("engine_unreachable"):
                    details = await self._docker.containers.container(run.name).show()
            except EngineError as error:
                if error.code != "not_found":
                    raise
                if asyncio.get_running_loop().time() >= until:
                    return None
            else:
                is_its = run.labels.items() <= (details["Config"]["Labels"] or {}).items()
                return str(details["Id"]) if is_its else None
            await asyncio.sleep(RETRY_SECONDS)

    async def state(self, container: str) -> ContainerState:
        """The state of a container."""
        async with _translate_errors("engine_unreachable"):
            state = (await self._docker.containers.container(container).show())["State"]
        has_run = not str(state.get("StartedAt", "0001")).startswith("0001")
        exit_code, is_running = int(state.get("ExitCode", 0)), bool(state.get("Running"))
        is_out = bool(state.get("OOMKilled")) and bool(exit_code)  # else it got over what was killed
        if exit_code == KILLED and not is_running and not is_out:
            is_out = await self._is_likely_out_of_memory(container)
        return ContainerState(is_running, has_run, exit_code, is_out)

    async def _is_likely_out_of_memory(self, container: str) -> bool:
        """For podman, which does not report it: ask the kernel log, else assume it unless we stopped it."""
        if self._is_podman is None:
            await self.version()
        if not self._is_podman:
            return False
        is_here = self.url.startswith("unix:")
        was_killed = await asyncio.to_thread(was_out_of_memory, container) if is_here else None
        return container not in self._stopped if was_killed is None else was_killed

    async def wait(self, container: str) -> ContainerState:
        """Wait for the end; return the state. An engine may miss an end, so it is polled now and then."""
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    async with _translate_errors("engine_unreachable"):
                        await self._docker.containers.container(container).wait()
                    return await self.state(container)
            except TimeoutError:
                if not (state := await self.state(container)).is_running:
                    return state

    async def stop(self, container: str, seconds: int = STOP_SECONDS) -> None:
        """Ask it to stop, and kill it after `seconds`."""
        self._stopped.add(container)
        async with _translate_errors("engine_unreachable"), asyncio.timeout(seconds + LOOK_SECONDS):
            await self._docker.containers.container(container).stop(t=seconds)

    async def remove(self, container: str) -> None:
        """Kill and remove it with its volumes; a missing container is not an error."""
        self._stopped.discard(container)
        try:
            async with _translate_errors("engine_unreachable"), asyncio.timeout(ASK_SECONDS):
                await self._docker.containers.container(container).delete(force=True, v=True)
        except EngineError as error:
            if error.code != "not_found":
                raise

    async def lines(
        self, container: str, stream: LogStream, after: ContainerLogCursor = BEGINNING
    ) -> AsyncGenerator[tuple[ContainerLogCursor, str]]:
        """The lines of a log after this cursor, each with its own, until the container ends."""
        params: dict[str, Any] = {stream: True, "follow": True, "timestamps": True}
        if after.stamp:
            params["since"] = seconds_of(after.stamp)
        frames = self._log(container, params)
        async with (
            _translate_errors("engine_unreachable"),
            aclosing(frames),
            aclosing(lines_behind(frames, after)) as lines,
        ):
            async for line in lines:
                yield line

    async def _log(self, container: str, params: dict[str, Any]) -> AsyncGenerator[bytes]:
        """Stream a log without aiodocker's method, which does not close a log that is not read to its end."""
        import aiohttp  # noqa: PLC0415

        path, patience = f"containers/{container}/logs", aiohttp.ClientTimeout(sock_connect=ASK_SECONDS)
        async with (
            self._docker._query(path, params=params, timeout=patience) as answer,
            answer,
            aclosing(frames_of(answer.content)) as frames,
        ):
            async for frame in frames:
                yield frame

    async def _have_image(self, image: str, pull: Pull) -> None:
        """Make sure that the image exists locally. Raises EngineError."""
        if pull != "always" and await self._has_image(image):
            return
        if pull == "never":
            raise EngineError(
                "image_not_found",
                f"the image {image!r} does not exist here, and COGRAIL_CONTAINERS__PULL is never: pull it by hand, "
                "or set that to missing",
                is_final=True,
            )
        try:
            async with asyncio.timeout(PULL_SECONDS) as limit, _translate_errors("image_not_found"):
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

        async with _translate_errors("image_not_found"):
            try:
                await self._docker.images.inspect(image)
            except aiodocker.DockerError as error:
                if error.status != NOT_FOUND:
                    raise
                return False
        return True

    async def _pulled(self, image: str) -> AsyncGenerator[Any]:
        """Stream the progress of a pull; aiodocker's method would not close an abandoned pull."""
        import aiohttp  # noqa: PLC0415
        from aiodocker.jsonstream import json_stream_stream  # noqa: PLC0415

        name = image.rpartition("/")[2]
        params = {"fromImage": image} | ({} if {":", "@"} & set(name) else {"tag": "latest"})
        patience = aiohttp.ClientTimeout(sock_connect=ASK_SECONDS)
        async with (
            self._docker._query("images/create", "POST", params=params, timeout=patience) as answer,
            answer,
        ):
            async for step in json_stream_stream(answer):
                yield step


@asynccontextmanager
async def _translate_errors(code: str) -> AsyncIterator[None]:
    """Turn errors of the engine and its client into EngineError."""
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
