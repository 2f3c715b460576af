"""The response schemas of /v1/jobs."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict


class AcceptedContainer(TypedDict):
    """An accepted container job."""

    id: str
    status: Literal["accepted"]


class ShownContainer(TypedDict):
    """The status of a container job, with its exit once it has ended."""

    id: str
    status: Literal["accepted", "running", "completed", "failed", "cancelled"]
    exitCode: NotRequired[int]
    error: NotRequired[str]


class ShownContainers(TypedDict):
    """Container jobs, newest first."""

    jobs: list[ShownContainer]
