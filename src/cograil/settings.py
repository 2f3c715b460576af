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
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypeVar, cast

from platformdirs import user_data_dir
from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    ValidationError,
    create_model,
    field_validator,
)
from pydantic.fields import FieldInfo

from cograil.app_registry import sections
from cograil.errors import InvalidSettings, UsageError
from cograil.setting_sections import (
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
    split_commas,
)
from cograil.setting_sources import (
    BARE_NAMES,
    PREFIX,
    SourcedValue,
    find_file,
    read_environment,
    read_file,
    unknown_variables,
    variable_of,
)

__all__ = [
    "DatabaseSettings",
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
    "bare_names",
    "describe",
    "load_settings",
    "mask_password",
    "setting_names",
    "settings_class",
    "variable_of",
]

# URLs that may contain passwords; the passwords are masked when shown.
URLS = frozenset({"database.url", "database.direct_url", "server.database_url", "gateway.database_url"})

AppSection = TypeVar("AppSection", bound=SettingsSection)


class Settings(BaseModel):
    """All settings. An instance also has a section for each installed app: `section` returns it."""

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
    log: LogSettings = LogSettings()
    apps: tuple[str, ...] = ("containers",)
    """Apps to run, separated by commas, or `none`; `cograil apps` lists the installed ones."""
    data_dir: Path = Field(default_factory=lambda: Path(user_data_dir("cograil", appauthor=False)))
    """Directory of the embedded PostgreSQL and of instance.json."""
    host: str = "127.0.0.1"
    """Address that `cograil up` listens on; must be loopback until an API key exists."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port of `cograil up`."""

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make an instance of the class that also has the sections of the installed apps."""
        return object.__new__(cast("type[Self]", settings_class()) if cls is Settings else cls)

    def section(self, kind: type[AppSection]) -> AppSection:
        """Return the section of an app by its class. Raises LookupError when the app is not installed."""
        for name in type(self).model_fields:
            if isinstance(value := getattr(self, name), kind):
                return value
        raise LookupError(f"no installed app has the settings {kind.__name__}")

    def with_app(self, name: str) -> Self:
        """Return the same settings with this app enabled too, for a command of the app."""
        return self if name in self.apps else self.model_copy(update={"apps": (*self.apps, name)})

    def sections(self) -> list[SettingsSection]:
        """Return every section, those of the apps last."""
        values = (getattr(self, name) for name in type(self).model_fields)
        return [value for value in values if isinstance(value, SettingsSection)]

    def origin_of(self, name: str) -> str:
        """Return the origin of a setting's value; "default" when it is not configured."""
        return self._origins.get(name, "default")

    def is_configured(self, section: str) -> bool:
        """Return whether any setting of this section is set by a flag, a variable or the file."""
        return any(name.startswith(f"{section}.") for name in self._origins)

    @field_validator("apps", mode="before")
    @classmethod
    def apps_may_be_separated_by_commas(cls, value: object) -> object:
        return () if value == "none" else split_commas(value)

    @field_validator("data_dir")
    @classmethod
    def a_tilde_is_the_home_directory(cls, value: Path) -> Path:
        return value.expanduser()


def settings_class() -> type[Settings]:
    """Return the class of all settings: those of the core, and a section for each installed app."""
    return _with_sections(tuple(sections().items()))


@cache
def _with_sections(of_apps: tuple[tuple[str, type[SettingsSection]], ...]) -> type[Settings]:
    if taken := [name for name, _ in of_apps if name in Settings.model_fields]:
        raise UsageError(f"an app cannot be called {taken[0]!r}: cograil has settings of that name")
    fields: dict[str, Any] = {name: (kind, kind()) for name, kind in of_apps}
    return create_model("Settings", __base__=Settings, __module__=__name__, **fields)


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
    values |= read_environment(names, bare_sections, bare_names())
    values |= {name: SourcedValue(value, "flag") for name, value in flag_values.items()}
    origins = {name: value.origin for name, value in values.items()}
    try:
        settings = Settings(**_nested({name: value.value for name, value in values.items()}))
    except ValidationError as error:
        raise InvalidSettings("\n".join(_error_lines(error, origins))) from error
    settings = _with_implied(settings, origins)
    settings._origins.update(origins)
    return settings


def _with_implied(settings: Settings, origins: dict[str, str]) -> Settings:
    """Return the settings with the values that sections of apps imply; adds their origins to `origins`."""
    for app in sections():
        for name, (source, value) in getattr(settings, app).implied().items():
            section, _, leaf = name.partition(".")
            changed = getattr(settings, section).model_copy(update={leaf: value})
            settings = settings.model_copy(update={section: changed})
            origins[name] = origins.get(f"{app}.{source}", "default")
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
    return list(_names(settings_class()))


def bare_names() -> dict[str, str]:
    """Return the variables without COGRAIL_ that some commands read too, by setting."""
    of_apps = {
        f"{app}.{leaf}": variable
        for app, section in sections().items()
        for leaf, variable in section.bare_names.items()
    }
    return BARE_NAMES | of_apps


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
    return {name for name in setting_names() if _field(name).annotation in (Path, Path | None)}


def _field(name: str) -> FieldInfo:
    model: type[BaseModel] = settings_class()
    *parents, leaf = name.split(".")
    for section in parents:
        model = cast("type[BaseModel]", model.model_fields[section].annotation)
    return model.model_fields[leaf]


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
    if name in URLS and value:
        return mask_password(value)
    return "***" if value and name in setting_names() and not _field(name).repr else value


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
