"""Every setting there is, with its default. Built once by `load_settings`, handed down by part.

A value comes from a flag of the command line, else from the environment, else from the settings file, else
from here. The setting `lease.seconds` is the variable COGRAIL_LEASE__SECONDS, and `seconds` in the table
`[lease]` of cograil.toml. Durations are plain numbers with the unit in the
name. Rules between settings are validators named as sentences.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

from platformdirs import user_data_dir
from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
)

from cograil.errors import InvalidSettings
from cograil.setting_captures import CaptureSettings
from cograil.setting_companies import CompanySettings
from cograil.setting_documents import DocumentSettings
from cograil.setting_sections import (
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
)
from cograil.setting_sources import Value, find_file, read_environment, read_file, unknown_variables
from cograil.setting_variables import PREFIX, variable_of

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
    "variable_of",
]

# May hold passwords.
URLS = frozenset({"database.url", "database.direct_url", "server.database_url", "gateway.database_url"})

# Hold keys and passwords, and are shown as stars.
SECRETS = frozenset({"captures.keks", "companies.inpi_password", "companies.rcs_token"})


class Settings(BaseModel):
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

    def origin_of(self, name: str) -> str:
        """Where the value of this setting comes from; "default" when nobody gave one."""
        return self._origins.get(name, "default")

    def is_given(self, part: str) -> bool:
        """Whether somebody has set anything of this part, by a variable or a flag."""
        return any(name.startswith(f"{part}.") for name in self._origins)

    @field_validator("data_dir")
    @classmethod
    def a_tilde_is_the_home_directory(cls, value: Path) -> Path:
        return value.expanduser()


class Described(NamedTuple):
    """A setting as people see it."""

    name: str
    value: Any
    origin: str


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    bare_parts: Collection[str] = (),
) -> Settings:
    """The settings of this process. `flags` maps names like "lease.seconds"; None means not given.

    `config` names the settings file. `bare_parts` are the parts whose bare variables (DATA_DIR) count.
    Raises InvalidSettings with one line per problem, each naming the variable, the flag or the line.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    names = setting_names()
    if unknown := given.keys() - set(names):
        raise ValueError(f"flags for settings that do not exist: {sorted(unknown)}")
    if misspelt := unknown_variables(os.environ, names):
        raise InvalidSettings("\n".join(misspelt))
    file = find_file(config)
    values = {} if file is None else read_file(file, names, _path_names())
    values |= read_environment(names, bare_parts)
    values |= {name: Value(value, "flag") for name, value in given.items()}
    origins = {name: value.origin for name, value in values.items()}
    try:
        settings = Settings(**_nested({name: value.value for name, value in values.items()}))
    except ValidationError as error:
        raise InvalidSettings("\n".join(_sentences(error, origins))) from error
    if settings.documents.log_json:
        settings = settings.model_copy(update={"log": settings.log.model_copy(update={"format": "json"})})
        origins["log.format"] = origins.get("documents.log_json", "default")
    settings._origins.update(origins)
    return settings


def describe(settings: Settings) -> list[Described]:
    """Every setting with its value and where it comes from: default, file, flag, environment COGRAIL_X."""
    values = settings.model_dump(mode="json")
    return [
        Described(name, _shown(name, _lookup(values, name)), settings.origin_of(name))
        for name in setting_names()
    ]


def setting_names() -> list[str]:
    """Every setting, in order, as `part.name`."""
    return list(_names(Settings))


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


def _path_names() -> set[str]:
    """The settings that are paths."""
    return {name for name in setting_names() if _annotation(name) in (Path, Path | None)}


def _annotation(name: str) -> Any:
    model: type[BaseModel] = Settings
    *parts, leaf = name.split(".")
    for part in parts:
        model = cast("type[BaseModel]", model.model_fields[part].annotation)
    return model.model_fields[leaf].annotation


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
        subject = _subject(name, origins.get(name, "default"))
        yield f"{subject}: {message[0].lower()}{message[1:]}, not {_shown(name, problem['input'])!r}"


def _subject(name: str, origin: str) -> str:
    """What to correct: a flag, a variable, or a line of the settings file."""
    kind, _, place = origin.partition(" ")
    if kind == "flag":
        return f"the flag for {name}"
    if kind == "file":
        return f"{place}: {name}"
    return place or variable_of(name)
