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
from typing import Annotated, Any, NamedTuple

from platformdirs import user_data_dir
from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from cograil.errors import InvalidSettings
from cograil.setting_captures import CaptureSettings
from cograil.setting_companies import CompanySettings
from cograil.setting_documents import DocumentSettings
from cograil.setting_parts import (
    PREFIX,
    SHORT_NAMES,
    ContainerSettings,
    DatabaseSettings,
    GatewaySettings,
    LeaseSettings,
    LimitSettings,
    LogSettings,
    OrchestratorSettings,
    OutboundSettings,
    Part,
    QueueSettings,
    RelaySettings,
    RetentionSettings,
    ServerSettings,
    WorkerSettings,
    parsed,
    regular_variable,
    variable_of,
)

__all__ = [
    "CaptureSettings",
    "CompanySettings",
    "ContainerSettings",
    "DatabaseSettings",
    "Described",
    "DocumentSettings",
    "GatewaySettings",
    "LeaseSettings",
    "LimitSettings",
    "LogSettings",
    "OrchestratorSettings",
    "OutboundSettings",
    "QueueSettings",
    "RelaySettings",
    "RetentionSettings",
    "ServerSettings",
    "Settings",
    "WorkerSettings",
    "describe",
    "load_settings",
    "mask_password",
    "setting_names",
    "unknown_variables",
    "variable_of",
]

# May hold passwords.
URLS = frozenset({"database.url", "database.direct_url", "server.database_url", "gateway.database_url"})

# Hold keys and passwords, and are shown as stars.
SECRETS = frozenset({"captures.keks", "companies.inpi_password", "companies.rcs_token"})

# Read where they are used, not here.
OTHER_VARIABLES = frozenset({"COGRAIL_FAULT", "COGRAIL_FAULT_LOG", "COGRAIL_TESTING"})


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
    retention: RetentionSettings = RetentionSettings()
    queues: QueueSettings = QueueSettings()
    limits: LimitSettings = LimitSettings()
    outbound: OutboundSettings = OutboundSettings()
    relay: RelaySettings = RelaySettings()
    server: ServerSettings = ServerSettings()
    gateway: GatewaySettings = GatewaySettings()
    containers: ContainerSettings = ContainerSettings()
    captures: CaptureSettings = CaptureSettings()
    companies: CompanySettings = CompanySettings()
    documents: DocumentSettings = DocumentSettings()
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
    if settings.documents.log_json:
        settings = settings.model_copy(update={"log": settings.log.model_copy(update={"format": "json"})})
        origins["log.format"] = origins.get("documents.log_json", "default")
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


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each COGRAIL_ variable that nobody reads, with the name that was meant, if any."""
    known = {regular_variable(name) for name in setting_names()} | {*SHORT_NAMES.values(), *OTHER_VARIABLES}
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
    left = None if parsed(conninfo) is None else parsed(masked)
    is_safe = left is not None and {left.get("password"), left.get("sslpassword")} <= {None, "***"}
    return masked if is_safe else "***"


def _names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Part):
            yield from _names(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name


def _variables_set() -> dict[str, str]:
    """Setting -> the variable that sets it, for those that are set."""
    found = {}
    for name in setting_names():
        for variable in (regular_variable(name), variable_of(name)):
            if os.environ.get(variable):
                found[name] = variable
    return found


def _refuse_two_names_for_one_setting() -> None:
    for name, short in SHORT_NAMES.items():
        regular = regular_variable(name)
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
    if name in SECRETS and value:
        return "***"
    return mask_password(value) if name in URLS and value else value


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
