"""The request body of a container job, in the format of the API that this app replaces."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from cograil.model.artifact_plan import make_plan
from cograil.model.container_spec import ContainerBody, Part, Url, read_body


class Callback(Part):
    """The URL for events, the events, and the signing key."""

    url: Url
    key: Annotated[str, Field(max_length=1024)] = ""
    events: Annotated[list[Annotated[str, Field(max_length=128)]], Field(max_length=16)] = Field(default=[])


class ContainerRequest(ContainerBody):
    """A container job: a container, the caller's id, and a callback."""

    id: Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    callback: Callback | None = None


def read_request(value: Any) -> ContainerRequest:
    """The request. Raises InvalidRequest, which names the first field that is wrong."""
    request = read_body(value, ContainerRequest)
    make_plan(request.artifacts)
    return request
