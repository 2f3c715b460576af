"""Every setting there is, with its default. Built once by `load_settings`, handed down by part.

A value comes from a flag of the command line, else from the environment, else from here. The setting
`lease.seconds` is the variable COGRAIL_LEASE__SECONDS. Durations are plain numbers with the unit in the
name. Rules between settings are validators named as sentences.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from platformdirs import user_data_dir
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from cograil.errors import InvalidSettings

PREFIX = "COGRAIL_"

# The name that everybody knows, beside the regular COGRAIL_DATABASE__URL.
SHORT_NAMES = {"database.url": "COGRAIL_DATABASE_URL"}

# Read where they are used, not here.
OTHER_VARIABLES = frozenset({"COGRAIL_FAULT", "COGRAIL_FAULT_LOG", "COGRAIL_TESTING"})

KIB, MIB = 1024, 1024 * 1024


class Part(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class DatabaseSettings(Part):
    """Which PostgreSQL; without a URL the embedded one."""

    url: str | None = Field(None, repr=False)
    """Which PostgreSQL, 15 or newer; without it the embedded one."""
    allow_unsafe: bool = False
    """Run on a server that may forget what it acknowledged (fsync off); for tests."""
    idle_in_transaction_seconds: PositiveFloat = 3
    """A process that stops inside a transaction loses its locks after this."""
    pool_size: PositiveInt = 8
    """How many connections one process keeps at most."""
    prepare: bool = True
    """Prepare statements; off behind a pooler that cannot keep them."""

    @field_validator("url")
    @classmethod
    def a_url_says_how_to_connect(cls, value: str | None) -> str | None:
        if value is not None and _parsed(value) is None:  # the value is not told: it may hold a password
            raise ValueError(
                "COGRAIL_DATABASE_URL is neither a URL such as postgresql://user@host:5432/name "
                "nor a list such as `host=... dbname=...` that PostgreSQL understands"
            )
        return value


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
    grace_seconds: Annotated[float, Field(ge=0)] = 30
    """How long a stopping worker lets handlers finish before it hands their tasks back."""
    poison_limit: PositiveInt = 3
    """A node that killed this many workers is failed."""


class OrchestratorSettings(Part):
    """How much an orchestrator takes on at once."""

    batch: PositiveInt = 400
    """How many jobs one transaction advances at most."""


class QueueSettings(Part):
    """Which queues; strict means that none is served or used without being named."""

    strict: bool = False
    """Nothing is served or submitted without a named queue."""
    names: tuple[str, ...] = ()
    """The queues a worker serves, separated by commas; none means all."""

    @field_validator("names", mode="before")
    @classmethod
    def names_may_be_separated_by_commas(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value


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


class Settings(BaseSettings):
    """All settings."""

    model_config = {
        "frozen": True,
        "extra": "forbid",
        "validate_default": True,
        "hide_input_in_errors": True,  # it may be a password
    }

    database: DatabaseSettings = DatabaseSettings()
    lease: LeaseSettings = LeaseSettings()
    worker: WorkerSettings = WorkerSettings()
    orchestrator: OrchestratorSettings = OrchestratorSettings()
    queues: QueueSettings = QueueSettings()
    limits: LimitSettings = LimitSettings()
    log: LogSettings = LogSettings()
    data_dir: Path = Field(default_factory=lambda: Path(user_data_dir("cograil", appauthor=False)))
    """Where the embedded PostgreSQL and instance.json live."""
    host: str = "127.0.0.1"
    """Where `cograil up` listens; only loopback while there are no keys."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """The port of `cograil up`."""

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("data_dir")
    @classmethod
    def a_tilde_is_the_home_directory(cls, value: Path) -> Path:
        return value.expanduser()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, Environment(settings_cls)


class Environment(PydanticBaseSettingsSource):
    """The variables by their exact names. An empty one counts as not set, as compose files make them."""

    def __call__(self) -> dict[str, Any]:
        return _nested({name: os.environ[variable] for name, variable in _variables_set().items()})

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError("the environment is read as a whole")


class Described(NamedTuple):
    """A setting as people see it."""

    name: str
    value: Any
    origin: str


def load_settings(flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings of this process. `flags` maps names like "lease.seconds"; None means not given.

    Raises InvalidSettings with one line per problem, each naming the variable or the flag.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    if unknown := given.keys() - set(setting_names()):
        raise ValueError(f"flags for settings that do not exist: {sorted(unknown)}")
    origins = {name: f"environment {variable}" for name, variable in _variables_set().items()}
    origins |= dict.fromkeys(given, "flag")
    _refuse_two_names_for_one_setting()
    try:
        settings = Settings(**_nested(given))
    except ValidationError as error:
        raise InvalidSettings("\n".join(_sentences(error, origins))) from error
    settings._origins.update(origins)
    return settings


def describe(settings: Settings) -> list[Described]:
    """Every setting with its value and where it comes from: default, flag, environment COGRAIL_X."""
    values = settings.model_dump(mode="json")
    return [
        Described(name, _shown(name, _lookup(values, name)), settings._origins.get(name, "default"))
        for name in setting_names()
    ]


def setting_names() -> list[str]:
    """Every setting, in order, as `part.name`."""
    return list(_names(Settings))


def variable_of(name: str) -> str:
    """The variable of a setting: lease.seconds is COGRAIL_LEASE__SECONDS."""
    return SHORT_NAMES.get(name) or _regular_variable(name)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each COGRAIL_ variable that nobody reads, with the name that was meant, if any."""
    known = {_regular_variable(name) for name in setting_names()} | {*SHORT_NAMES.values(), *OTHER_VARIABLES}
    return [
        _not_read(variable, known)
        for variable in sorted(environ)
        if variable.startswith(PREFIX) and variable not in known
    ]


def mask_password(conninfo: str) -> str:
    """The same with stars for passwords, in a URL or as `key=value`; rather too many stars than too few.

    Nothing but stars when a password might still be in what is left.
    """
    masked = re.sub(r"(://[^:@/?]*):.*@", r"\1:***@", conninfo)
    masked = re.sub(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)", r"\1***", masked)
    left = None if _parsed(conninfo) is None else _parsed(masked)
    is_safe = left is not None and {left.get("password"), left.get("sslpassword")} <= {None, "***"}
    return masked if is_safe else "***"


def _parsed(conninfo: str) -> dict[str, Any] | None:
    """What the driver reads in a connection string; None when it cannot."""
    from psycopg import ProgrammingError  # noqa: PLC0415  most commands need no driver
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    try:
        return dict(conninfo_to_dict(conninfo))
    except ProgrammingError:
        return None


def _names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Part):
            yield from _names(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name


def _regular_variable(name: str) -> str:
    return PREFIX + name.replace(".", "__").upper()


def _variables_set() -> dict[str, str]:
    """Setting -> the variable that sets it, for those that are set."""
    found = {}
    for name in setting_names():
        for variable in (_regular_variable(name), variable_of(name)):
            if os.environ.get(variable):
                found[name] = variable
    return found


def _refuse_two_names_for_one_setting() -> None:
    for name, short in SHORT_NAMES.items():
        regular = _regular_variable(name)
        values = {os.environ[variable] for variable in (short, regular) if os.environ.get(variable)}
        if len(values) > 1:
            raise InvalidSettings(f"{short} and {regular} are the same setting and differ; set one of them")


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{"lease.seconds": 1} -> {"lease": {"seconds": 1}}"""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        part, _, leaf = name.rpartition(".")
        (tree.setdefault(part, {}) if part else tree)[leaf] = value
    return tree


def _lookup(tree: Mapping[str, Any], name: str) -> Any:
    part, _, leaf = name.rpartition(".")
    return (tree[part] if part else tree)[leaf]


def _shown(name: str, value: Any) -> Any:
    return mask_password(value) if name == "database.url" and value else value


def _sentences(error: ValidationError, origins: Mapping[str, str]) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_context=False):
        message = problem["msg"].removeprefix("Value error, ")
        if message.startswith(PREFIX):  # a rule between settings names them itself
            yield message
            continue
        # A place inside a list is a place inside its setting.
        name = ".".join(str(step) for step in problem["loc"] if not isinstance(step, int))
        subject = f"the flag for {name}" if origins.get(name) == "flag" else variable_of(name)
        yield f"{subject}: {message[0].lower()}{message[1:]}, not {_shown(name, problem['input'])!r}"


def _not_read(variable: str, known: set[str]) -> str:
    close = get_close_matches(variable, known, n=1, cutoff=0.8)
    return f"{variable} is not a setting" + (f"; did you mean {close[0]}?" if close else "")
