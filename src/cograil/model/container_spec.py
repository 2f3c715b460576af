"""The request of a container: its image and command, its resources, and its artifacts."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cograil.errors import UsageError
from cograil.workspace import WorkspaceError, split_path

MAX_COMMAND = 128 * 1024
MAX_CONTENT = 1024 * 1024
MAX_ENVIRONMENT_BYTES = 128 * 1024
CPU, MEMORY_MB, TIMEOUT_SECONDS, WORKSPACE = 1.0, 512, 1800, "/workspace"  # the defaults
SYSTEM = ("proc", "sys", "dev")
JOB = "job"  # an artifact that depends on this runs after the container

_ENVIRONMENT_NAME = re.compile(r"[^=\0]+")  # shells accept fewer names; programs read all of them
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")


class InvalidRequest(UsageError):
    """The request is invalid; the message names the field."""

    code, status = "invalid_request", 400


def _path(value: str) -> str:
    try:
        split_path(value)
    except WorkspaceError as error:
        raise ValueError(str(error)) from None
    return value


def _place(value: str) -> str:
    """Return a path that may be the workspace itself."""
    try:
        split_path(value, is_root_allowed=True)
    except WorkspaceError as error:
        raise ValueError(str(error)) from None
    return value


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or not value.isprintable() or " " in value:
        raise ValueError("must be an http or https URL with a host")
    return value


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not hold NUL")
    return value


def _image(value: str) -> str:
    if not _IMAGE.fullmatch(value):
        raise ValueError("must be the name of an image")
    return value


def _mount(value: str) -> str:
    """Return the path of the workspace in the container. It may not hide a system directory."""
    path = PurePosixPath(value)
    is_plain = value.isprintable() and ".." not in path.parts and ":" not in value
    if not path.is_absolute() or len(path.parts) < 2 or not is_plain or path.parts[1] in SYSTEM:
        raise ValueError("must be an absolute path outside of system directories")
    return str(path)


def _artifact_id(value: str) -> str:
    if value == JOB:
        raise ValueError('must not be "job": artifacts use this name to depend on the job')
    return value


def _environment(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _ENVIRONMENT_NAME.fullmatch(name):
            raise ValueError(f"{name[:60]!r} is not the name of a variable")
        _text(text)
    if sum(len(name) + len(text) for name, text in value.items()) > MAX_ENVIRONMENT_BYTES:
        raise ValueError(f"must hold at most {MAX_ENVIRONMENT_BYTES:,} characters")
    return value


Path = Annotated[str, AfterValidator(_path)]
Place = Annotated[str, AfterValidator(_place)]
Url = Annotated[str, Field(max_length=4096), AfterValidator(_url)]


class Part(BaseModel):
    """A part of the request. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


class _Artifact(Part):
    id: Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_artifact_id)]
    depends: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class Download(_Artifact):
    """A file from a URL."""

    type: Literal["download"]
    source: Url = Field(alias="in")
    target: Path = Field(alias="out")


class Write(_Artifact):
    """A file with the given content."""

    type: Literal["write"]
    content: Annotated[str, Field(min_length=1, max_length=MAX_CONTENT)] = Field(alias="in")
    target: Path = Field(alias="out")


class Unarchive(_Artifact):
    """The content of an archive, or of one directory of it."""

    type: Literal["unarchive"]
    source: Path = Field(alias="in")
    target: Place = Field(alias="out")
    subdir: Path | None = None


class Upload(_Artifact):
    """The upload of a file to a URL with PUT."""

    type: Literal["upload"]
    source: Path = Field(alias="in")
    target: Url = Field(alias="out")


class Read(_Artifact):
    """The content of a file, in its event."""

    type: Literal["read"]
    source: Path = Field(alias="in")


class Archive(_Artifact):
    """A file or directory as an archive."""

    type: Literal["archive"]
    source: Place = Field(alias="in")
    target: Path = Field(alias="out")
    format: Literal["tar.gz"]


class List(_Artifact):
    """The names of files, in its event."""

    type: Literal["list"]
    source: Place = Field(alias="in")
    recursive: bool = True
    excludes: Annotated[list[Annotated[str, Field(max_length=256)]], Field(max_length=64)] = []


Artifact = Download | Write | Unarchive | Upload | Read | Archive | List


class ContainerBody(Part):
    """A container with its artifacts. Zero means the default."""

    image: Annotated[str, Field(min_length=1, max_length=512), AfterValidator(_image)]
    command: Annotated[str, Field(max_length=MAX_COMMAND), AfterValidator(_text)] = ""
    cpu: Annotated[float, Field(ge=0, le=64, allow_inf_nan=False)] = 0
    memory: Annotated[int, Field(ge=0, le=65_536)] = 0
    timeout_seconds: Annotated[int, Field(le=86_400)] = Field(default=0, alias="timeoutSeconds")
    workspace: Annotated[str, Field(max_length=1024), AfterValidator(_mount)] = WORKSPACE
    environment: Annotated[dict[str, str], AfterValidator(_environment)] = {}
    meta: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=256)]],
        Field(max_length=32),
    ] = {}
    artifacts: Annotated[list[Annotated[Artifact, Field(discriminator="type")]], Field(max_length=64)] = []

    @property
    def cpus(self) -> float:
        """Return the number of processors it may use."""
        return self.cpu or CPU

    @property
    def memory_mb(self) -> int:
        """Return the memory it may use."""
        return self.memory or MEMORY_MB

    @property
    def seconds(self) -> int:
        """Return the maximum run time."""
        return self.timeout_seconds if self.timeout_seconds > 0 else TIMEOUT_SECONDS


B = TypeVar("B", bound=ContainerBody)


def read_body(value: Any, kind: type[B]) -> B:
    """Return the parsed body. Raises InvalidRequest, which names the first invalid field."""
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be an object")
    try:
        return kind.model_validate(_said(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = _where(first["loc"])
        if first["type"] == "extra_forbidden":
            raise InvalidRequest(f"unknown field {where}") from None
        if first["type"] == "missing":
            raise InvalidRequest(f"{where} is required") from None
        raise InvalidRequest(f"{where}: {first['msg'].removeprefix('Value error, ')}") from None


def _said(value: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that are not null. Null means the default, because clients in Go write null for
    empty values.
    """
    fields = {name: item for name, item in value.items() if item is not None}
    if isinstance(callback := fields.get("callback"), dict):
        fields["callback"] = {name: item for name, item in callback.items() if item is not None}
    if isinstance(artifacts := fields.get("artifacts"), list):
        fields["artifacts"] = [
            _said_of_artifact(artifact) if isinstance(artifact, dict) else artifact for artifact in artifacts
        ]
    return fields


def _said_of_artifact(artifact: dict[str, Any]) -> dict[str, Any]:
    return {
        name: item
        for name, item in artifact.items()
        if item is not None and not (item == "" and name in ("depends", "subdir"))
    }


def _where(steps: tuple[int | str, ...]) -> str:
    """Return the location as `artifacts[0].out`. It omits the kind of the artifact, which callers do not
    write.
    """
    text = ""
    for place, step in enumerate(steps):
        if isinstance(step, int):
            text += f"[{step}]"
        elif not (place == 2 and steps[0] == "artifacts"):
            text += f".{step}" if text else step
    return text[:200] or "the body"
