"""The settings of the app `documents`; its own commands also read the bare names that its users know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from cograil.plugins import SettingsSection

IS_LANGUAGE = re.compile(r"[A-Za-z]{3}[A-Za-z_]*(\+[A-Za-z]{3}[A-Za-z_]*)*").fullmatch

PrepConcurrency = Annotated[int, Field(ge=1, le=16)]
OcrConcurrency = Annotated[int, Field(ge=1, le=8)]
JobTimeout = Annotated[int, Field(ge=60, le=7200)]


# Settings with a bare name (DATA_DIR) from the earlier program; newer settings have none.
BARE = (
    "data_dir",
    "prep_url",
    "ocr_url",
    "poll_interval_ms",
    "prep_concurrency",
    "ocr_concurrency",
    "max_jobs_in_flight",
    "max_jobs_per_user",
    "max_attempts_prep",
    "max_attempts_ocr",
    "ocr_lang",
    "job_timeout_seconds",
    "keep_work_dir_days",
    "min_pdf_size_bytes",
    "disk_free_factor",
    "max_input_size_mb",
    "enable_smart_resume",
    "service_concurrency",
    "log_json",
)


class DocumentSettings(SettingsSection):
    """A watched folder: what is dropped in it becomes searchable PDFs."""

    bare_names = {name: name.upper() for name in BARE}  # noqa: RUF012  declared as a ClassVar

    data_dir: Path | None = None
    """The folder, with `in`, `out` and all the others; without it nothing is watched."""
    prep_url: str | None = None
    """Where the PREP service is; without it workers do that themselves."""
    ocr_url: str | None = None
    """Where the OCR service is; without it workers do that themselves."""
    poll_interval_ms: Annotated[int, Field(ge=50, le=600_000)] = 1000
    """How often the folder is looked through, whatever the system says of it."""
    quiet_seconds: NonNegativeFloat = 10
    """How long a folder must be left alone, or a file of which the system does not say who writes to it."""
    prep_concurrency: PrepConcurrency = 2
    """How many documents are prepared at a time."""
    ocr_concurrency: OcrConcurrency = 1
    """How many documents are recognised at a time."""
    max_jobs_in_flight: PositiveInt = 3
    """How many documents are worked on at a time; the others wait their turn."""
    max_jobs_per_user: NonNegativeInt = 0
    """How many documents of one user are taken in before some are done; 0 means no limit."""
    max_attempts_prep: Annotated[int, Field(ge=1, le=20)] = 3
    """How often preparing is tried."""
    max_attempts_ocr: Annotated[int, Field(ge=1, le=20)] = 3
    """How often recognising is tried."""
    retry_seconds: NonNegativeFloat = 5
    """How long the first pause before another try is; each later one is twice as long."""
    ocr_lang: str = "fra+eng"
    """The languages of the text, as tesseract calls them."""
    job_timeout_seconds: JobTimeout = 600
    """A stage that has not moved for this long is stopped, with all that it started."""
    stage_timeout_seconds: PositiveFloat = 21_600
    """How long one try of a stage may take, however busy it is."""
    keep_work_dir_days: NonNegativeFloat = 7
    """How long the work directory of a finished document is kept; 0 removes it at once."""
    min_pdf_size_bytes: NonNegativeInt = 1024
    """A PDF that is smaller is none."""
    disk_free_factor: NonNegativeFloat = 2.0
    """How many times the size of a document must be free on the disk."""
    max_input_size_mb: PositiveInt = 500
    """A document that is larger is refused."""
    enable_smart_resume: bool = True
    """Use a raw or final PDF that an earlier try left behind, if it is valid."""
    ocr_dpi: Annotated[int, Field(ge=0, le=1200)] = 0
    """How fine pages are taken to be that do not say so themselves; 0 leaves it to the tools."""
    ocr_fast_mode: bool = False
    """Neither turn nor straighten pages, and do not make the PDF smaller."""
    ocr_remove_background: bool = False
    """Make the background of pages white."""
    ocr_sidecar_txt: bool = False
    """Write the text beside the PDF too."""
    ocr_jobs: NonNegativeInt = 0
    """How many pages of one document are recognised at a time; 0 means as many as there are cores."""
    service_concurrency: PositiveInt = 1
    """How many documents a PREP or OCR service works on at a time."""
    plain_names: bool = False
    """Name PDFs after their input, `out/letter.pdf` or `letter (2).pdf`, without the key of the job."""
    log_json: bool = False
    """Log JSON lines, also on a terminal."""

    @field_validator("ocr_lang")
    @classmethod
    def a_language_is_one_of_tesseract(cls, value: str) -> str:
        if not IS_LANGUAGE(value):
            raise ValueError("must name languages such as fra+eng")
        return value

    @field_validator("prep_url", "ocr_url")
    @classmethod
    def a_url_leads_to_a_host(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^/?#@\s]+/?", value):
            raise ValueError("must be a URL such as http://127.0.0.1:18081")
        return value

    @field_validator("data_dir")
    @classmethod
    def a_tilde_is_the_home_directory(cls, value: Path | None) -> Path | None:
        return None if value is None else value.expanduser().absolute()

    def implied(self) -> Mapping[str, tuple[str, Any]]:
        """`log_json` is `log.format` = json."""
        return {"log.format": ("log_json", "json")} if self.log_json else {}

    def private_paths(self) -> tuple[Path, ...]:
        """The watched folder."""
        return () if self.data_dir is None else (self.data_dir,)

    @property
    def options(self) -> dict[str, int | bool]:
        """What the profile says beyond the usual, by the names that it has there."""
        return {
            "dpi": self.ocr_dpi or False,
            "fast_mode": self.ocr_fast_mode,
            "remove_background": self.ocr_remove_background,
            "sidecar_txt": self.ocr_sidecar_txt,
        }
