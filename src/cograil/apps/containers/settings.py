"""Settings of the app `containers`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, field_validator

from cograil.plugins import SettingsSection, split_commas


class ContainerSettings(SettingsSection):
    """Containers: runtime, isolation and retention of container jobs."""

    runtime: Literal["auto", "docker", "sandbox", "none"] = "auto"
    """Container runtime: docker (or podman), the built-in sandbox, or none; auto uses what is available."""
    required: bool = False
    """Return 503 from /readyz, instead of `degraded`, when no engine is available."""
    concurrency: PositiveInt = 64
    """Maximum number of concurrent containers per worker."""
    pull: Literal["missing", "always", "never"] = "missing"
    """When to pull an image."""
    network: str = "bridge"
    """Network of containers, or `none`; the networks of the host and of other containers are not allowed."""
    user: str = ""
    """User in containers, such as 65534:65534; default: the user of the image."""
    read_only_root: bool = False
    """Mount the root file system read-only; containers can write to their workspace and /tmp."""
    capabilities: Annotated[tuple[str, ...], BeforeValidator(split_commas)] = ()
    """Linux capabilities that containers keep, separated by commas; default: none."""
    pids: PositiveInt = 512
    """Maximum number of processes in a container."""
    retention_seconds: Annotated[float, Field(ge=0)] = 900
    """Seconds for which an ended container job stays visible and its id stays reserved."""
    sweep_seconds: PositiveFloat = 60
    """Seconds between a worker's sweeps for orphaned containers and workspaces."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Separate port on which `up` and `server` serve /v1/jobs and its probes; 0 disables it."""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Separate port on which `up` and `server` serve /metrics, such as 9090; 0 disables it."""

    @field_validator("network")
    @classmethod
    def a_network_is_not_that_of_another(cls, value: str) -> str:
        if value == "host" or value.startswith("container:") or not value:
            raise ValueError("must be `none`, `bridge` or a network that you created in the engine")
        return value
