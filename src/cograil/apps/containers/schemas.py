"""What /v1/jobs answers, for its description."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict


class AcceptedContainer(TypedDict):
    """It will run."""

    id: str
    status: Literal["accepted"]


class ShownContainer(TypedDict):
    """How one stands; how it ended, once it has."""

    id: str
    status: Literal["accepted", "running", "completed", "failed", "cancelled"]
    exitCode: NotRequired[int]
    error: NotRequired[str]


class ShownContainers(TypedDict):
    """Those that are remembered, newest first."""

    jobs: list[ShownContainer]
