"""The settings by part, each with its default and the rules between them; `settings.py` puts them together.

Durations are plain numbers with the unit in the name. Rules are validators named as sentences.
"""

from __future__ import annotations

import os
import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cograil.setting_variables import variable_of

KIB, MIB = 1024, 1024 * 1024


class Part(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class DatabaseSettings(Part):
    """Which PostgreSQL; without a URL the embedded one."""

    url: str | None = Field(None, repr=False)
    """Which PostgreSQL, 15 or newer, or a pooler before it; without it the embedded one."""
    direct_url: str | None = Field(None, repr=False)
    """The same database past the pooler, for LISTEN and migrations; without it cograil polls."""
    handler_url: str | None = Field(None, repr=False)
    """The same database as another role, for `ctx.transaction()`; without it that role is cograil's own."""
    pooled: bool | None = None
    """Whether the URL is that of a pooler; found out by itself unless said."""
    allow_unsafe: bool = False
    """Run on a server that may forget what it acknowledged (fsync off); for tests."""
    idle_in_transaction_seconds: PositiveFloat = 3
    """A process that stops inside a transaction loses its locks after this."""
    pool_size: PositiveInt = 8
    """How many connections one process keeps at most."""
    prepare: bool = True
    """Prepare statements; off behind a pooler that cannot keep them."""

    @field_validator("url", "direct_url", "handler_url")
    @classmethod
    def a_url_says_how_to_connect(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and parsed(value) is None:  # the value is not told: it may hold a password
            raise ValueError(
                f"{variable_of(f'database.{info.field_name}')} is neither a URL such as "
                "postgresql://user@host:5432/name nor a list such as `host=... dbname=...` "
                "that PostgreSQL understands"
            )
        return value

    @model_validator(mode="after")
    def a_direct_url_leads_past_another(self) -> Self:
        if self.direct_url and not self.url:
            raise ValueError(
                "COGRAIL_DATABASE__DIRECT_URL leads past the pooler that COGRAIL_DATABASE_URL names; "
                "set that one, or only that one"
            )
        return self


class LeaseSettings(Part):
    """How long a worker may be silent before its tasks go to another."""

    seconds: PositiveFloat = 15
    """A worker that is silent for this long has lost its tasks."""
    heartbeat_seconds: PositiveFloat = 5
    """How often a worker says that it lives."""
    scan_seconds: PositiveFloat = 5
    """How often an orchestrator looks for lost leases and missed news."""

    @model_validator(mode="after")
    def a_lease_survives_one_missed_heartbeat(self) -> Self:
        if self.seconds < 2 * self.heartbeat_seconds:
            raise ValueError(
                f"COGRAIL_LEASE__SECONDS ({self.seconds:g}) must be at least twice "
                f"COGRAIL_LEASE__HEARTBEAT_SECONDS ({self.heartbeat_seconds:g}), to survive one missed heartbeat"
            )
        return self

    @model_validator(mode="after")
    def a_lost_lease_is_seen_within_another(self) -> Self:
        if self.scan_seconds > self.seconds:
            raise ValueError(
                f"COGRAIL_LEASE__SCAN_SECONDS ({self.scan_seconds:g}) must be at most "
                f"COGRAIL_LEASE__SECONDS ({self.seconds:g}), so that a lost lease is seen in time"
            )
        return self


class WorkerSettings(Part):
    """How much one worker runs at a time, and how it ends."""

    concurrency: PositiveInt = 200
    """How many coroutine handlers run at a time."""
    threads: PositiveInt = Field(default_factory=lambda: min(32, (os.cpu_count() or 1) + 4))
    """How many plain functions run at a time."""
    processes: PositiveInt = Field(default_factory=lambda: os.cpu_count() or 1)
    """How many handlers with `process=True` run at a time, each in a child process."""
    child_tasks: PositiveInt = 100
    """A child process is replaced after this many tasks."""
    child_memory_mb: Annotated[int, Field(ge=0)] = 0
    """How much memory a child process may take, in MiB; 0 means no limit."""
    grace_seconds: Annotated[float, Field(ge=0)] = 30
    """How long a stopping worker takes; after three quarters of it what runs is stopped and handed back."""
    blocked_seconds: PositiveFloat = 30
    """A worker whose event loop is blocked by a coroutine for this long ends; another takes its place."""
    poison_limit: PositiveInt = 3
    """A node that killed this many workers is failed."""
    capture_output: bool = True
    """Keep what handlers print as log lines of their attempt; what they log is kept in any case."""


class OrchestratorSettings(Part):
    """How much an orchestrator takes on at once."""

    batch: PositiveInt = 400
    """How many jobs one transaction advances at most."""


class RetentionSettings(Part):
    """How long what has ended is kept."""

    days: Annotated[float, Field(ge=0)] = 30
    """Jobs that ended longer ago are deleted with all that is theirs; 0 keeps them for ever."""
    partition_days: Annotated[int, Field(ge=0)] | None = None
    """Jobs born within so many days go together; a quarter of `days` unless said, 0 for one by one."""

    @property
    def period_days(self) -> int:
        """How long a period is; 0 when there are none."""
        return int(self.days / 4) if self.partition_days is None else self.partition_days


class QueueSettings(Part):
    """Which queues; strict means that none is served or used without being named."""

    strict: bool = False
    """Nothing is served or submitted without a named queue."""
    names: tuple[str, ...] = ()
    """The queues a worker serves, separated by commas; none means all."""

    @field_validator("names", mode="before")
    @classmethod
    def names_may_be_separated_by_commas(cls, value: object) -> object:
        return _separated(value)


class LimitSettings(Part):
    """How large things may get."""

    input_bytes: PositiveInt = 1 * MIB
    """Of the input of a job."""
    output_bytes: PositiveInt = 4 * MIB
    """Of what a handler returns."""
    checkpoint_bytes: PositiveInt = 1 * MIB
    """Of one checkpoint."""
    log_line_bytes: PositiveInt = 16 * KIB
    """Of one log line of an attempt; the rest is cut."""
    log_lines: PositiveInt = 1000
    """How many log lines one attempt keeps."""
    fan_out_items: PositiveInt = 10_000
    """How many children a fan-out may have."""
    fan_in_bytes: PositiveInt = 64 * MIB
    """Of all that the children of a fan-in returned."""
    expression_steps: PositiveInt = 1_000_000
    """How many steps the expressions of one node may take: about one for each value they compare."""
    expression_seconds: PositiveFloat = 2
    """How much processor time the expressions of one node may take, whatever their steps."""


class OutboundSettings(Part):
    """Where requests may go besides public addresses."""

    allow_private: bool = False
    """Let requests of workflows go anywhere, also to this machine and its networks."""
    allow: tuple[str, ...] = ()
    """Hosts and networks (10.0.0.0/8) they may go to though they are not public, separated by commas."""
    allow_networks: tuple[str, ...] = ()
    """Networks only, to the same end, separated by commas."""
    require_https: bool = False
    """Refuse callbacks and subscriptions whose URL begins with http://."""

    @field_validator("allow", "allow_networks", mode="before")
    @classmethod
    def hosts_may_be_separated_by_commas(cls, value: object) -> object:
        return _separated(value)

    @field_validator("allow_networks")
    @classmethod
    def each_is_a_network(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(_network(entry) is None for entry in value):
            raise ValueError("must name networks such as 10.0.0.0/8")
        return value

    @field_validator("allow")
    @classmethod
    def each_is_a_host_or_a_network(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            if _network(entry) is None and not re.fullmatch(r"[\w.-]*[A-Za-z][\w-]*", entry, re.ASCII):
                raise ValueError("must name hosts, addresses or networks such as 10.0.0.0/8")
        return tuple(entry.lower() for entry in value)

    def allowed_networks(self) -> list[IPv4Network | IPv6Network]:
        """The addresses and networks among what is allowed."""
        named = (*self.allow, *self.allow_networks)
        return [network for entry in named if (network := _network(entry)) is not None]


def _separated(value: object) -> object:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None


class RelaySettings(Part):
    """How what happened is told to receivers."""

    concurrency: PositiveInt = 64
    """How many requests one relay sends at a time; one without an answer for half a second does not count."""
    per_destination: PositiveInt = 8
    """How many of them go to one scheme, host and port."""
    timeout_seconds: PositiveFloat = 15
    """How long one request may take, from the first look at its name to the end of its answer."""
    give_up_hours: PositiveFloat = 72
    """What was not delivered by then is a dead letter."""
    pace: PositiveFloat = 1.0
    """All pauses between tries are multiplied by this; for tests."""
    delivered_days: Annotated[float, Field(ge=0.01)] = 3
    """Deliveries that arrived longer ago are forgotten; a quarter of an hour is the least."""
    dead_days: Annotated[float, Field(ge=0)] = 30
    """Dead letters that are older are forgotten."""


class ServerSettings(Part):
    """The door: who may come in."""

    key_file: Path | None = None
    """A file with one more key: whoever has it is an admin of the default tenant."""
    database_url: str | None = Field(None, repr=False)
    """How the server connects, if not like everybody else: as a user who is in the role cograil_server."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks (10.0.0.0/8) of proxies whose X-Forwarded-For says who calls, separated by commas."""
    access_log: bool = False
    """Log each request: method, path, status, bytes, milliseconds, address."""

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def networks_may_be_separated_by_commas(cls, value: object) -> object:
        return _separated(value)

    @field_validator("trusted_proxies")
    @classmethod
    def each_is_a_network(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(_network(entry) is None for entry in value):
            raise ValueError("must name networks such as 10.0.0.0/8")
        return value

    def trusted_networks(self) -> list[IPv4Network | IPv6Network]:
        """The networks of those proxies."""
        return [network for entry in self.trusted_proxies if (network := _network(entry)) is not None]

    @field_validator("key_file")
    @classmethod
    def a_key_file_can_be_read_and_holds_a_key(cls, value: Path | None) -> Path | None:
        if value is None:
            return None
        try:
            is_empty = not value.read_bytes().strip()
        except OSError as error:
            raise ValueError(f"must name a file that can be read ({error.strerror})") from error
        if is_empty:
            raise ValueError("must name a file with a key in it: nothing would let everybody in")
        return value


class GatewaySettings(Part):
    """The gateway: where it reads, and where it sends what changes something."""

    database_url: str | None = Field(None, repr=False)
    """How the gateway connects: as a user who is in the role cograil_gateway; else like everybody else."""
    api_url: str | None = None
    """The API to which it sends submits; without it that of the instance on the data directory."""
    worker_url: str | None = None
    """The probes of a worker (its --health-port), for `/proxy/worker`."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8081
    """The port of `cograil gateway`."""
    timeout_seconds: PositiveFloat = 30
    """How long it waits for an answer of the API or of a worker."""

    @field_validator("database_url")
    @classmethod
    def a_url_says_how_to_connect(cls, value: str | None) -> str | None:
        if value is not None and parsed(value) is None:
            raise ValueError("COGRAIL_GATEWAY__DATABASE_URL is nothing that PostgreSQL understands")
        return value

    @field_validator("api_url", "worker_url")
    @classmethod
    def a_url_leads_to_a_host(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^/?#@\s]+(?:/[^?#\s]*)?", value):
            raise ValueError("must be a URL such as http://127.0.0.1:8080, without a user")
        return value


class ContainerSettings(Part):
    """Containers: what they may do to the machine, and how long their jobs are remembered."""

    runtime: Literal["auto", "docker", "sandbox", "none"] = "auto"
    """An engine (docker, which podman is too), a sandbox of ours, or nothing; auto takes what is there."""
    enabled: bool = True
    """Let workers run containers, where an engine answers; and serve /v1/jobs."""
    required: bool = False
    """Without an engine that answers, /readyz says 503 and not only `degraded`."""
    concurrency: PositiveInt = 64
    """How many containers one worker runs at a time."""
    pull: Literal["missing", "always", "never"] = "missing"
    """When an image is pulled."""
    network: str = "bridge"
    """The network of containers, `none` for none; never that of the host or of another container."""
    user: str = ""
    """Who runs in containers, such as 65534:65534; the image says so unless this does."""
    read_only_root: bool = False
    """Let containers write to their workspace and /tmp only."""
    capabilities: Annotated[tuple[str, ...], BeforeValidator(_separated)] = ()
    """What root in a container keeps of what root may, separated by commas; nothing unless said."""
    pids: PositiveInt = 512
    """How many processes a container may have."""
    retention_seconds: Annotated[float, Field(ge=0)] = 900
    """How long a container job that ended is shown and its id is taken."""
    sweep_seconds: PositiveFloat = 60
    """How often a worker looks for containers and workspaces that nobody needs."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Where `up` and `server` also serve /v1/jobs, with probes as the service before; 0 for nowhere."""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Where `up` and `server` also serve /metrics, such as 9090, as the service before did; 0 for nowhere."""

    @field_validator("network")
    @classmethod
    def a_network_is_not_that_of_another(cls, value: str) -> str:
        if value == "host" or value.startswith("container:") or not value:
            raise ValueError("must name a network of the engine: none, bridge or one of your own")
        return value


class LogSettings(Part):
    """What is logged and how it looks; auto is text on a terminal and JSON elsewhere."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level that is logged."""
    format: Literal["auto", "json", "text"] = "auto"
    """How a line looks; auto is text on a terminal and JSON elsewhere."""

    @field_validator("level", "format", mode="before")
    @classmethod
    def capitals_do_not_matter(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value


def parsed(conninfo: str) -> dict[str, Any] | None:
    """What the driver reads in a connection string; None when it cannot."""
    from psycopg import ProgrammingError  # noqa: PLC0415  most commands need no driver
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    try:
        return dict(conninfo_to_dict(conninfo))
    except ProgrammingError:
        return None
