"""Sections of the settings, with defaults and the rules between settings; `settings.py` combines them.

Durations are plain numbers with the unit in the name. Rules are validators named as sentences.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cograil.setting_sources import variable_of

KIB, MIB = 1024, 1024 * 1024


class SettingsSection(BaseModel):
    """A section of the settings. A field with `repr=False` is a secret and is shown as stars."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    bare_names: ClassVar[Mapping[str, str]] = {}
    """Variables without the prefix COGRAIL_ that some commands read too, by setting."""

    def implied(self) -> Mapping[str, tuple[str, Any]]:
        """Return settings of the core that these imply: name -> (setting that implies it, value)."""
        return {}

    def private_paths(self) -> tuple[Path, ...]:
        """Return directories that errors of handlers must not show."""
        return ()


class DatabaseSettings(SettingsSection):
    """The PostgreSQL server; without a URL, the embedded one."""

    url: str | None = Field(None, repr=False)
    """URL of PostgreSQL 15 or newer, or of a pooler in front of it; default: the embedded PostgreSQL."""
    direct_url: str | None = Field(None, repr=False)
    """URL of the same database without the pooler, for LISTEN and migrations; without it cograil polls."""
    handler_url: str | None = Field(None, repr=False)
    """URL of the same database with another role, for `ctx.transaction()`; default: cograil's own role."""
    pooled: bool | None = None
    """Whether the URL is that of a pooler; default: detected."""
    allow_unsafe: bool = False
    """Allow a server that may lose committed transactions (fsync off); for tests."""
    idle_in_transaction_seconds: PositiveFloat = 3
    """Seconds after which PostgreSQL ends an idle transaction and releases its locks."""
    pool_size: PositiveInt = 8
    """Maximum number of connections per process."""
    prepare: bool = True
    """Use prepared statements; turn off for a pooler that does not support them."""

    @field_validator("url", "direct_url", "handler_url")
    @classmethod
    def a_url_says_how_to_connect(cls, value: str | None, info: ValidationInfo) -> str | None:
        if (
            value is not None and parse_conninfo(value) is None
        ):  # the message omits the value: it may contain a password
            raise ValueError(
                f"{variable_of(f'database.{info.field_name}')} is neither a URL such as "
                "postgresql://user@host:5432/name nor a list such as `host=... dbname=...` "
                "that PostgreSQL understands"
            )
        return value

    @model_validator(mode="after")
    def a_direct_url_needs_a_pooler_url(self) -> Self:
        if self.direct_url and not self.url:
            raise ValueError(
                "COGRAIL_DATABASE__DIRECT_URL is set but COGRAIL_DATABASE_URL is not; "
                "set both, or only COGRAIL_DATABASE_URL"
            )
        return self


class LeaseSettings(SettingsSection):
    """Leases: when a silent worker loses its tasks."""

    seconds: PositiveFloat = 15
    """Seconds without a heartbeat after which a worker loses its tasks."""
    heartbeat_seconds: PositiveFloat = 5
    """Seconds between the heartbeats of a worker."""
    scan_seconds: PositiveFloat = 5
    """Seconds between an orchestrator's scans for expired leases and missed notifications."""

    @model_validator(mode="after")
    def a_lease_survives_one_missed_heartbeat(self) -> Self:
        if self.seconds < 2 * self.heartbeat_seconds:
            raise ValueError(
                f"COGRAIL_LEASE__SECONDS ({self.seconds:g}) must be at least twice "
                f"COGRAIL_LEASE__HEARTBEAT_SECONDS ({self.heartbeat_seconds:g}), "
                "so that a lease survives one missed heartbeat"
            )
        return self

    @model_validator(mode="after")
    def an_expired_lease_is_found_within_another(self) -> Self:
        if self.scan_seconds > self.seconds:
            raise ValueError(
                f"COGRAIL_LEASE__SCAN_SECONDS ({self.scan_seconds:g}) must be at most "
                f"COGRAIL_LEASE__SECONDS ({self.seconds:g}), so that an expired lease is found in time"
            )
        return self


class WorkerSettings(SettingsSection):
    """Concurrency and shutdown of a worker."""

    concurrency: PositiveInt = 200
    """Maximum number of concurrent coroutine handlers."""
    threads: PositiveInt = Field(default_factory=lambda: min(32, (os.cpu_count() or 1) + 4))
    """Maximum number of concurrent synchronous handlers, each in a thread."""
    processes: PositiveInt = Field(default_factory=lambda: os.cpu_count() or 1)
    """Maximum number of concurrent handlers with `process=True`, each in a child process."""
    child_tasks: PositiveInt = 100
    """Number of tasks after which a child process is replaced."""
    child_memory_mb: Annotated[int, Field(ge=0)] = 0
    """Memory limit of a child process, in MiB; 0 means no limit."""
    grace_seconds: Annotated[float, Field(ge=0)] = 30
    """Seconds a stopping worker may take; after three quarters of them running tasks are stopped and released."""
    blocked_seconds: PositiveFloat = 30
    """Seconds after which a worker with a blocked event loop exits and is replaced."""
    poison_limit: PositiveInt = 3
    """Number of workers a node may crash before it fails."""
    capture_output: bool = True
    """Store the printed output of handlers as log lines of the attempt; log records are always stored."""


class OrchestratorSettings(SettingsSection):
    """Batch size of an orchestrator."""

    batch: PositiveInt = 400
    """Maximum number of jobs advanced in one transaction."""


class RetentionSettings(SettingsSection):
    """Retention of ended jobs."""

    days: Annotated[float, Field(ge=0)] = 30
    """Days after which an ended job is deleted with all its data; 0 keeps jobs for ever."""
    partition_days: Annotated[int, Field(ge=0)] | None = None
    """Days per partition of jobs, which are deleted together; default: `days` / 4; 0 deletes row by row."""

    @property
    def period_days(self) -> int:
        """Length of a partition in days; 0 means no partitions."""
        return int(self.days / 4) if self.partition_days is None else self.partition_days


class QueueSettings(SettingsSection):
    """Queues; `strict` requires every worker and node to name its queue."""

    strict: bool = False
    """Require every worker and every node to name its queue."""
    names: tuple[str, ...] = ()
    """Queues that a worker serves, separated by commas; empty means all."""

    @field_validator("names", mode="before")
    @classmethod
    def names_may_be_separated_by_commas(cls, value: object) -> object:
        return split_commas(value)


class LimitSettings(SettingsSection):
    """Size limits."""

    input_bytes: PositiveInt = 1 * MIB
    """Maximum size of a job's input, in bytes."""
    output_bytes: PositiveInt = 4 * MIB
    """Maximum size of a handler's output, in bytes."""
    checkpoint_bytes: PositiveInt = 1 * MIB
    """Maximum size of a checkpoint, in bytes."""
    log_line_bytes: PositiveInt = 16 * KIB
    """Maximum size of a log line of an attempt, in bytes; the rest is truncated."""
    log_lines: PositiveInt = 1000
    """Maximum number of log lines stored per attempt."""
    fan_out_items: PositiveInt = 10_000
    """Maximum number of children of a fan-out."""
    fan_in_bytes: PositiveInt = 64 * MIB
    """Maximum total size of the outputs that a fan-in collects, in bytes."""
    expression_steps: PositiveInt = 1_000_000
    """Maximum number of evaluation steps for the expressions of a node, about one per compared value."""
    expression_seconds: PositiveFloat = 2
    """Maximum CPU time for the expressions of a node, in seconds."""


class OutboundSettings(SettingsSection):
    """Destinations of outgoing requests besides public addresses."""

    allow_private: bool = False
    """Allow requests of workflows to any address, including this machine and private networks."""
    allow: tuple[str, ...] = ()
    """Private hosts and networks (10.0.0.0/8) that requests may reach, separated by commas."""
    allow_networks: tuple[str, ...] = ()
    """Private networks that requests may reach, separated by commas; like `allow`, but networks only."""
    require_https: bool = False
    """Reject callbacks and subscriptions with an http:// URL."""

    @field_validator("allow", "allow_networks", mode="before")
    @classmethod
    def hosts_may_be_separated_by_commas(cls, value: object) -> object:
        return split_commas(value)

    @field_validator("allow_networks")
    @classmethod
    def each_is_a_network(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(_parse_network(entry) is None for entry in value):
            raise ValueError("must name networks such as 10.0.0.0/8")
        return value

    @field_validator("allow")
    @classmethod
    def each_is_a_host_or_a_network(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            if _parse_network(entry) is None and not re.fullmatch(r"[\w.-]*[A-Za-z][\w-]*", entry, re.ASCII):
                raise ValueError("must name hosts, addresses or networks such as 10.0.0.0/8")
        return tuple(entry.lower() for entry in value)

    def allowed_networks(self) -> list[IPv4Network | IPv6Network]:
        """Return the allowed addresses and networks."""
        named = (*self.allow, *self.allow_networks)
        return [network for entry in named if (network := _parse_network(entry)) is not None]


def split_commas(value: object) -> object:
    """Return `a, b` as a tuple; any other value unchanged."""
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


def _parse_network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None


class RelaySettings(SettingsSection):
    """Delivery of events to callbacks and subscriptions."""

    concurrency: PositiveInt = 64
    """Maximum number of concurrent requests per relay; requests that wait longer than half a second do not count."""
    per_destination: PositiveInt = 8
    """Maximum number of concurrent requests per origin (scheme, host and port)."""
    timeout_seconds: PositiveFloat = 15
    """Timeout of a delivery request in seconds, from name resolution to the end of the response."""
    give_up_hours: PositiveFloat = 72
    """Hours after which an undelivered event becomes a dead letter."""
    pace: PositiveFloat = 1.0
    """Factor for all retry delays; for tests."""
    delivered_days: Annotated[float, Field(ge=0.01)] = 3
    """Days after which completed deliveries are deleted; at least 0.01, a quarter of an hour."""
    dead_days: Annotated[float, Field(ge=0)] = 30
    """Days after which dead letters are deleted."""


class ServerSettings(SettingsSection):
    """The HTTP API: authentication and database role."""

    key_file: Path | None = None
    """File with an additional API key, which has the role admin in the default tenant."""
    database_url: str | None = Field(None, repr=False)
    """Database URL of the API server, for a user in the role cograil_server; default: `database.url`."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks (10.0.0.0/8) of proxies whose X-Forwarded-For header is trusted, separated by commas."""
    access_log: bool = False
    """Log each request with method, path, status, bytes, milliseconds and address."""

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def networks_may_be_separated_by_commas(cls, value: object) -> object:
        return split_commas(value)

    @field_validator("trusted_proxies")
    @classmethod
    def each_is_a_network(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(_parse_network(entry) is None for entry in value):
            raise ValueError("must name networks such as 10.0.0.0/8")
        return value

    def trusted_networks(self) -> list[IPv4Network | IPv6Network]:
        """Return the networks of the trusted proxies."""
        return [network for entry in self.trusted_proxies if (network := _parse_network(entry)) is not None]

    @field_validator("key_file")
    @classmethod
    def a_key_file_can_be_read_and_holds_a_key(cls, value: Path | None) -> Path | None:
        if value is None:
            return None
        try:
            is_empty = not value.read_bytes().strip()
        except OSError as error:
            raise ValueError(f"must name a readable file ({error.strerror})") from error
        if is_empty:
            raise ValueError("must name a file that contains a key: an empty key would admit every caller")
        return value


class GatewaySettings(SettingsSection):
    """The gateway: its database, and the API it forwards writes to."""

    database_url: str | None = Field(None, repr=False)
    """Database URL of the gateway, for a user in the role cograil_gateway; default: `database.url`."""
    api_url: str | None = None
    """URL of the API that receives submissions; default: the API of the instance on the data directory."""
    worker_url: str | None = None
    """URL of a worker's health port (its --health-port), for `/proxy/worker`."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8081
    """Port of `cograil gateway`."""
    timeout_seconds: PositiveFloat = 30
    """Seconds to wait for a response of the API or a worker."""

    @field_validator("database_url")
    @classmethod
    def a_url_says_how_to_connect(cls, value: str | None) -> str | None:
        if value is not None and parse_conninfo(value) is None:
            raise ValueError(
                "COGRAIL_GATEWAY__DATABASE_URL is not a connection string that PostgreSQL understands"
            )
        return value

    @field_validator("api_url", "worker_url")
    @classmethod
    def a_url_leads_to_a_host(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^/?#@\s]+(?:/[^?#\s]*)?", value):
            raise ValueError("must be a URL such as http://127.0.0.1:8080, without a user")
        return value


class LogSettings(SettingsSection):
    """Log level and format; auto is text on a terminal and JSON elsewhere."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level that is logged."""
    format: Literal["auto", "json", "text"] = "auto"
    """Format of log lines; auto is text on a terminal and JSON elsewhere."""

    @field_validator("level", "format", mode="before")
    @classmethod
    def capitals_do_not_matter(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value


def parse_conninfo(conninfo: str) -> dict[str, Any] | None:
    """Parse a connection string with the driver; None when it is invalid."""
    from psycopg import ProgrammingError  # noqa: PLC0415  most commands do not need the driver
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    try:
        return dict(conninfo_to_dict(conninfo))
    except ProgrammingError:
        return None
