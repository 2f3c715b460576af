"""What can be changed while it runs, on top of the settings: kept in the database, so all watchers see it."""

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
    """A value that cannot be configured."""

    code, status = "bad_config", 400


class Change(BaseModel):
    """What may be asked for; the ranges are those that a person can mean."""

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
    """What this asks for; names that we do not know are left out. Raises BadConfig."""
    if not isinstance(body, dict):
        raise BadConfig("the body must be a JSON object")
    wanted = {name: value for name, value in body.items() if name in NAMES}
    try:
        asked = Change.model_validate(wanted)
    except ValidationError as error:
        told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise BadConfig("; ".join(told)) from error
    if nothing := [name for name, value in wanted.items() if value is None]:
        raise BadConfig(f"{nothing[0]}: must not be null")
    return asked.model_dump(exclude_none=True)


async def load_config(
    tx: Transaction, settings: DocumentSettings, tenant: str = "default"
) -> DocumentSettings:
    """The settings as they are now. What no longer fits is left out."""
    rows = await tx.fetch(READ_CONFIG, tenant=tenant)
    given = {name: orjson.loads(value) for name, value in rows}
    known = read_change({name: given[name] for name in NAMES if name in given})
    return settings.model_copy(update={NAMES[name]: value for name, value in known.items()})


async def save_config(tx: Transaction, change: dict[str, Any], tenant: str = "default") -> None:
    """Keep what was asked for."""
    for name, value in sorted(change.items()):
        await tx.execute(WRITE_CONFIG, tenant=tenant, name=name, value=orjson.dumps(value).decode())


def view_of(settings: DocumentSettings) -> dict[str, Any]:
    """What is configured, by the names of the API."""
    return {name: getattr(settings, field) for name, field in NAMES.items()}
