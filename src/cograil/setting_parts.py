"""The settings by part, each with its default and the rules between them; `settings.py` puts them together.

Durations are plain numbers with the unit in the name. Rules are validators named as sentences.
"""

from __future__ import annotations

import os
import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Literal, Self

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

PREFIX = "COGRAIL_"

# The name that everybody knows, beside the regular COGRAIL_DATABASE__URL.
SHORT_NAMES = {"database.url": "COGRAIL_DATABASE_URL"}

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

    @field_validator("url", "direct_url")
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
    pulse_seconds: PositiveFloat = 5
    """How often a worker says that it lives."""
    scan_seconds: PositiveFloat = 5
    """How often an orchestrator looks for lost leases and missed news."""

    @model_validator(mode="after")
    def a_lease_survives_one_missed_pulse(self) -> Self:
        if self.seconds < 2 * self.pulse_seconds:
            raise ValueError(
                f"COGRAIL_LEASE__SECONDS ({self.seconds:g}) must be at least twice "
                f"COGRAIL_LEASE__PULSE_SECONDS ({self.pulse_seconds:g}), to survive one missed pulse"
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


def _default_threads() -> int:
    return min(32, (os.cpu_count() or 1) + 4)


class WorkerSettings(Part):
    """How much one worker runs at a time, and how it ends."""

    concurrency: PositiveInt = 200
    """How many coroutine handlers run at a time."""
    threads: PositiveInt = Field(default_factory=_default_threads)
    """How many plain functions run at a time."""
    processes: PositiveInt = Field(default_factory=lambda: os.cpu_count() or 1)
    """How many handlers with `process=True` run at a time, each in a child process."""
    child_tasks: PositiveInt = 100
    """A child process is replaced after this many tasks."""
    child_memory_mb: Annotated[int, Field(ge=0)] = 0
    """How much memory a child process may take, in MiB; 0 means no limit."""
    grace_seconds: Annotated[float, Field(ge=0)] = 30
    """How long a stopping worker lets handlers finish before it hands their tasks back."""
    poison_limit: PositiveInt = 3
    """A node that killed this many workers is failed."""


class OrchestratorSettings(Part):
    """How much an orchestrator takes on at once."""

    batch: PositiveInt = 400
    """How many jobs one transaction advances at most."""


class RetentionSettings(Part):
    """How long what has ended is kept."""

    days: Annotated[float, Field(ge=0)] = 30
    """Jobs that ended longer ago are deleted with all that is theirs; 0 keeps them for ever."""


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
    """Of one line of `ctx.log`; the rest is cut."""
    log_lines: PositiveInt = 1000
    """How many lines of `ctx.log` one attempt keeps."""
    fan_out_items: PositiveInt = 10_000
    """How many children a fan-out may have."""
    fan_in_bytes: PositiveInt = 64 * MIB
    """Of all that the children of a fan-in returned."""


class OutboundSettings(Part):
    """Where requests may go besides public addresses."""

    allow_private: bool = False
    """Let requests of workflows go anywhere, also to this machine and its networks."""
    allow: tuple[str, ...] = ()
    """Hosts and networks (10.0.0.0/8) they may go to though they are not public, separated by commas."""

    @field_validator("allow", mode="before")
    @classmethod
    def hosts_may_be_separated_by_commas(cls, value: object) -> object:
        return _separated(value)

    @field_validator("allow")
    @classmethod
    def each_is_a_host_or_a_network(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            if _network(entry) is None and not re.fullmatch(r"[\w.-]*[A-Za-z][\w-]*", entry, re.ASCII):
                raise ValueError("must name hosts, addresses or networks such as 10.0.0.0/8")
        return tuple(entry.lower() for entry in value)

    def allowed_networks(self) -> list[IPv4Network | IPv6Network]:
        """The addresses and networks among what is allowed."""
        return [network for entry in self.allow if (network := _network(entry)) is not None]


def _separated(value: object) -> object:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None


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


def variable_of(name: str) -> str:
    """The variable of a setting: lease.seconds is COGRAIL_LEASE__SECONDS."""
    return SHORT_NAMES.get(name) or regular_variable(name)


def regular_variable(name: str) -> str:
    return PREFIX + name.replace(".", "__").upper()


def parsed(conninfo: str) -> dict[str, Any] | None:
    """What the driver reads in a connection string; None when it cannot."""
    from psycopg import ProgrammingError  # noqa: PLC0415  most commands need no driver
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    try:
        return dict(conninfo_to_dict(conninfo))
    except ProgrammingError:
        return None
