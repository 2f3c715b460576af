"""All settings with their defaults. `load_settings` builds them once; each component gets its section.

A command-line flag overrides the environment, which overrides the settings file, which overrides the default.
The setting `lease.seconds` is the variable COGRAIL_LEASE__SECONDS, and the key `seconds` in the table `[lease]`
of cograil.toml. Durations are plain numbers with the unit in the name. Rules between settings are validators
named as sentences.
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
    QueueSettings,
    RelaySettings,
    RetentionSettings,
    ServerSettings,
    SettingsSection,
    WorkerSettings,
    parse_conninfo,
)
from cograil.setting_sources import (
    PREFIX,
    SourcedValue,
    find_file,
    read_environment,
    read_file,
    unknown_variables,
    variable_of,
)

__all__ = [
    "CaptureSettings",
    "CompanySettings",
    "ContainerSettings",
    "DatabaseSettings",
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
    "SettingDescription",
    "Settings",
    "WorkerSettings",
    "describe",
    "load_settings",
    "mask_password",
    "setting_names",
    "variable_of",
]

# URLs that may contain passwords; the passwords are masked when shown.
URLS = frozenset({"database.url", "database.direct_url", "server.database_url", "gateway.database_url"})

# Keys and passwords; shown as stars.
SECRETS = frozenset({"captures.keks", "companies.inpi_password", "companies.rcs_token"})


class Settings(BaseModel):
    """All settings."""

    model_config = {
        "frozen": True,
        "extra": "forbid",
        "validate_default": True,
        "hide_input_in_errors": True,  # the input may be a password
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
    """Directory of the embedded PostgreSQL and of instance.json."""
    host: str = "127.0.0.1"
    """Address that `cograil up` listens on; must be loopback until an API key exists."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port of `cograil up`."""

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    def origin_of(self, name: str) -> str:
        """Return the origin of a setting's value; "default" when it is not configured."""
        return self._origins.get(name, "default")

    def is_configured(self, section: str) -> bool:
        """Return whether any setting of this section is set by a flag, a variable or the file."""
        return any(name.startswith(f"{section}.") for name in self._origins)

    @field_validator("data_dir")
    @classmethod
    def a_tilde_is_the_home_directory(cls, value: Path) -> Path:
        return value.expanduser()


class SettingDescription(NamedTuple):
    """A setting with its displayed value and its origin."""

    name: str
    value: Any
    origin: str


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    bare_sections: Collection[str] = (),
) -> Settings:
    """Load the settings of this process. `flags` maps names like "lease.seconds"; None means not set.

    `config` names the settings file. `bare_sections` are the sections whose bare variables (DATA_DIR) are read.
    Raises InvalidSettings with one line per problem, each naming the variable, the flag or the line.
    """
    flag_values = {name: value for name, value in (flags or {}).items() if value is not None}
    names = setting_names()
    if unknown := flag_values.keys() - set(names):
        raise ValueError(f"flags for settings that do not exist: {sorted(unknown)}")
    if misspelt := unknown_variables(os.environ, names):
        raise InvalidSettings("\n".join(misspelt))
    file = find_file(config)
    values = {} if file is None else read_file(file, names, _path_names())
    values |= read_environment(names, bare_sections)
    values |= {name: SourcedValue(value, "flag") for name, value in flag_values.items()}
    origins = {name: value.origin for name, value in values.items()}
    try:
        settings = Settings(**_nested({name: value.value for name, value in values.items()}))
    except ValidationError as error:
        raise InvalidSettings("\n".join(_error_lines(error, origins))) from error
    if settings.documents.log_json:
        settings = settings.model_copy(update={"log": settings.log.model_copy(update={"format": "json"})})
        origins["log.format"] = origins.get("documents.log_json", "default")
    settings._origins.update(origins)
    return settings


def describe(settings: Settings) -> list[SettingDescription]:
    """Return every setting with its value and origin: default, file, flag or environment COGRAIL_X."""
    values = settings.model_dump(mode="json")
    return [
        SettingDescription(name, _mask(name, _lookup(values, name)), settings.origin_of(name))
        for name in setting_names()
    ]


def setting_names() -> list[str]:
    """Return the names of all settings, in order, as `section.name`."""
    return list(_names(Settings))


def mask_password(conninfo: str) -> str:
    """Return a connection string with its passwords masked, in a URL or as `key=value`.

    Returns only stars when a password might still be visible.
    """
    masked = re.sub(r"(://[^:@/?]*):.*@", r"\1:***@", conninfo)
    masked = re.sub(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)", r"\1***", masked)
    options = None if parse_conninfo(conninfo) is None else parse_conninfo(masked)
    is_safe = options is not None and {options.get("password"), options.get("sslpassword")} <= {None, "***"}
    return masked if is_safe else "***"


def _names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, SettingsSection):
            yield from _names(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name


def _path_names() -> set[str]:
    """Return the names of the settings that are paths."""
    return {name for name in setting_names() if _annotation(name) in (Path, Path | None)}


def _annotation(name: str) -> Any:
    model: type[BaseModel] = Settings
    *sections, leaf = name.split(".")
    for section in sections:
        model = cast("type[BaseModel]", model.model_fields[section].annotation)
    return model.model_fields[leaf].annotation


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{"lease.seconds": 1} -> {"lease": {"seconds": 1}}"""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        section, _, leaf = name.rpartition(".")
        (tree.setdefault(section, {}) if section else tree)[leaf] = value
    return tree


def _lookup(tree: Mapping[str, Any], name: str) -> Any:
    section, _, leaf = name.rpartition(".")
    return (tree[section] if section else tree)[leaf]


def _mask(name: str, value: Any) -> Any:
    if name in SECRETS and value:
        return "***"
    return mask_password(value) if name in URLS and value else value


def _error_lines(error: ValidationError, origins: Mapping[str, str]) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_context=False):
        message = problem["msg"].removeprefix("Value error, ")
        if message.startswith(PREFIX):  # a rule between settings names them itself
            yield message
            continue
        # The index of a list item is left out: the setting is the list.
        name = ".".join(str(key) for key in problem["loc"] if not isinstance(key, int))
        subject = _subject(name, origins.get(name, "default"))
        yield f"{subject}: {message[0].lower()}{message[1:]}, not {_mask(name, problem['input'])!r}"


def _subject(name: str, origin: str) -> str:
    """Return what to correct: a flag, a variable, or a line of the settings file."""
    kind, _, location = origin.partition(" ")
    if kind == "flag":
        return f"the flag for {name}"
    if kind == "file":
        return f"{location}: {name}"
    return location or variable_of(name)
