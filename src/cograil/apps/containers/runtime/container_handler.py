"""The handler `container`: for the workers of machines that can run containers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cograil.apps.containers.runtime.container_attempt import ContainerAttempt, ContainerTools
from cograil.apps.containers.runtime.container_runtime import ContainerPolicy, Runtime
from cograil.apps.containers.runtime.container_slots import ContainerSlots
from cograil.apps.containers.runtime.container_workspaces import ContainerWorkspaces
from cograil.apps.containers.settings import ContainerSettings
from cograil.egress import OutboundGuard
from cograil.model.container_spec import ContainerBody, InvalidRequest, read_body
from cograil.model.workflow import CONTAINER, Json
from cograil.runners.context import Context, Fail
from cograil.runners.handler_registry import Registry

ROOMS = "workspaces"  # below the data directory


def make_container_tools(
    runtime: Runtime, settings: ContainerSettings, data_dir: Path, guard: OutboundGuard
) -> ContainerTools:
    """What attempts need, by these settings."""
    policy = ContainerPolicy(
        capabilities=settings.capabilities,
        is_root_read_only=settings.read_only_root,
        user=settings.user,
        network=settings.network,
        processes=settings.pids,
        pull=settings.pull,
    )
    rooms = ContainerWorkspaces(data_dir / ROOMS)
    return ContainerTools(
        runtime, rooms, guard, policy, ContainerSlots(settings.concurrency), asyncio.Event()
    )


def register_container(registry: Registry, tools: ContainerTools, most: int | None = None) -> None:
    """Register the handler `container` with at most `most` concurrent tasks."""

    async def container(ctx: Context, body: dict[str, Json], name: str | None = None) -> dict[str, Json]:
        """Run a container with its artifacts; return its exit code and the results of the artifacts."""
        try:
            container_body = read_body(body, ContainerBody)
            attempt = ContainerAttempt(ctx, container_body, name, tools)
        except InvalidRequest as error:
            raise Fail(f"container: {error}", code="invalid_params") from error
        return await attempt.run()

    registry.register(container, CONTAINER, most=most)
