"""The response schemas of /apps/documents."""

from __future__ import annotations

from typing import Any

from pydantic import RootModel
from typing_extensions import TypedDict

from cograil.api_schemas.job_schemas import Json

ERROR = {
    "type": "object",
    "required": ["error", "status"],
    "properties": {"error": {"type": "string"}, "status": {"type": "integer"}},
}


class DocumentEntry(TypedDict):
    """A document in a list."""

    jobKey: str
    state: str
    stage: str
    attempt: int
    inputName: str
    outPdf: str | None
    updatedAt: str


class DocumentEntries(RootModel[list[DocumentEntry]]):
    """Documents, newest first."""


class InputFile(TypedDict):
    """The name and current path of an input."""

    name: str
    path: str | None


class DocumentDetails(TypedDict):
    """A document as in its state.json; paths are null where the folder is not known."""

    jobKey: str
    state: str
    stage: str
    step: str
    attempt: int
    message: str
    profile: dict[str, Json]
    fileHash: str
    profileHash: str
    input: InputFile
    rawPdf: str | None
    finalPdf: str | None
    outPdf: str | None
    jobId: str | None
    userId: str | None
    updatedAt: str


class DocumentConfig(TypedDict):
    """The current configuration."""

    prep_concurrency: int
    ocr_concurrency: int
    job_timeout_s: int
    default_ocr_lang: str


class AppliedConfig(TypedDict):
    """The applied change."""

    applied: dict[str, Json]


class Decided(TypedDict):
    """The recorded decision."""

    jobKey: str
    action: str


class HeldDocuments(RootModel[list[dict[str, Any]]]):
    """The reports of held duplicates, with the files of each."""
