"""Run-time configuration on top of the settings, stored in the database so that all watchers see it."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from cograil.apps.documents.settings import (
    IS_LANGUAGE,
    DocumentSettings,
    JobTimeout,
    OcrConcurrency,
    PrepConcurrency,
)
from cograil.errors import UsageError
from cograil.store.database import Transaction
from cograil.store.statements import statement

PACKAGE = "cograil.apps.documents"
READ_CONFIG = statement("read_config", package=PACKAGE)
WRITE_CONFIG = statement("write_config", package=PACKAGE)
NAMES = {
    "prep_concurrency": "prep_concurrency",
    "ocr_concurrency": "ocr_concurrency",
    "job_timeout_s": "job_timeout_seconds",
    "default_ocr_lang": "ocr_lang",
}


class BadConfig(UsageError):
    """A configuration value is out of range or of the wrong type."""

    code, status = "bad_config", 400


class Change(BaseModel):
    """The values that can be changed at run time, with their ranges."""

    model_config = ConfigDict(strict=True)

    prep_concurrency: PrepConcurrency | None = None
    ocr_concurrency: OcrConcurrency | None = None
    job_timeout_s: JobTimeout | None = None
    default_ocr_lang: str | None = None

    @field_validator("default_ocr_lang")
    @classmethod
    def a_language_is_one_of_tesseract(cls, value: str | None) -> str | None:
        if value is not None and not IS_LANGUAGE(value):
            raise ValueError("must name languages such as fra+eng")
        return value


def read_change(body: Any) -> dict[str, Any]:
    """The change in this body; unknown names are ignored. Raises BadConfig."""
    if not isinstance(body, dict):
        raise BadConfig("the body must be a JSON object")
    fields = {name: value for name, value in body.items() if name in NAMES}
    try:
        change = Change.model_validate(fields)
    except ValidationError as error:
        messages = [f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()]
        raise BadConfig("; ".join(messages)) from error
    if nulls := [name for name, value in fields.items() if value is None]:
        raise BadConfig(f"{nulls[0]}: must not be null")
    return change.model_dump(exclude_none=True)


async def load_config(
    tx: Transaction, settings: DocumentSettings, tenant: str = "default"
) -> DocumentSettings:
    """The settings with the stored changes. A stored value of an unknown name is ignored."""
    rows = await tx.fetch(READ_CONFIG, tenant=tenant)
    stored = {name: orjson.loads(value) for name, value in rows}
    change = read_change({name: stored[name] for name in NAMES if name in stored})
    return settings.model_copy(update={NAMES[name]: value for name, value in change.items()})


async def save_config(tx: Transaction, change: dict[str, Any], tenant: str = "default") -> None:
    """Store this change."""
    for name, value in sorted(change.items()):
        await tx.execute(WRITE_CONFIG, tenant=tenant, name=name, value=orjson.dumps(value).decode())


def view_of(settings: DocumentSettings) -> dict[str, Any]:
    """The configuration, by the names of the API."""
    return {name: getattr(settings, field) for name, field in NAMES.items()}
