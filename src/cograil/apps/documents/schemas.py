"""What /apps/documents answers, for its description."""

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
    """Those that were taken, newest first."""


class InputFile(TypedDict):
    """What came, and where it is now."""

    name: str
    path: str | None


class DocumentDetails(TypedDict):
    """A document as its state.json shows it; paths are told where the folder is known."""

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
    """What is configured."""

    prep_concurrency: int
    ocr_concurrency: int
    job_timeout_s: int
    default_ocr_lang: str


class AppliedConfig(TypedDict):
    """What was changed."""

    applied: dict[str, Json]


class Decided(TypedDict):
    """What becomes of what is held."""

    jobKey: str
    action: str


class HeldDocuments(RootModel[list[dict[str, Any]]]):
    """The reports of what is held until somebody decides, with the files of each."""
