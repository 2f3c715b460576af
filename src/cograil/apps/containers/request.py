"""What a caller says of a container job, in the words of the API that this app takes over."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from cograil.model.artifact_plan import make_plan
from cograil.model.container_spec import ContainerBody, Part, Url, read_body


class Callback(Part):
    """Whom to tell of which events, and the key that signs them."""

    url: Url
    key: Annotated[str, Field(max_length=1024)] = ""
    events: Annotated[list[Annotated[str, Field(max_length=128)]], Field(max_length=16)] = Field(default=[])


class ContainerRequest(ContainerBody):
    """A container job: a container, what its caller calls it, and whom to tell."""

    id: Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    callback: Callback | None = None


def read_request(value: Any) -> ContainerRequest:
    """The request. Raises InvalidRequest, which names the first field that is wrong."""
    request = read_body(value, ContainerRequest)
    make_plan(request.artifacts)
    return request
