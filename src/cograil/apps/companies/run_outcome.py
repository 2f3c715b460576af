"""The outcome of a run: the outcome of each source, the resulting state, and the error text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cograil.apps.companies.constants import (
    FAILED,
    INTERNAL_ERROR,
    NOT_FOUND,
    PARTIAL,
    RECHERCHE,
    REQUIRED,
    SOURCE_CODES,
    SUCCESS,
    TIMEOUT,
)
from cograil.model.workflow import Json

MAX_ERROR = 2_000
TIMED_OUT = frozenset({"timeout"})  # what the engine calls it


@dataclass(frozen=True, slots=True)
class SourceOutcome:
    """The outcome of the last attempt of a source. Without an error code it succeeded."""

    source: str
    http_status: int | None = None
    error_code: str | None = None
    message: str | None = None
    duration_ms: int | None = None

    @property
    def has_failed(self) -> bool:
        return self.error_code is not None


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The final state and counts of a run."""

    status: str
    error: str | None
    core_identity_present: bool
    sources_success_count: int
    required_sources_failed_count: int
    optional_sources_failed_count: int
    is_unreachable: bool = False  # no source answered: it says nothing of the company

    @property
    def sources_failed_count(self) -> int:
        return self.required_sources_failed_count + self.optional_sources_failed_count


def judge(ended: Sequence[SourceOutcome], *, core_identity_present: bool) -> RunVerdict:
    """The verdict on a run. A source that was not queried is not in `ended` and does not count."""
    failed = [outcome for outcome in ended if outcome.has_failed]
    required = sum(outcome.source in REQUIRED for outcome in failed)
    optional = len(failed) - required
    has_failed = required > 0 or not core_identity_present
    status = FAILED if has_failed else PARTIAL if optional else SUCCESS
    lines = [_line(outcome) for outcome in failed]
    if not core_identity_present and not required:
        lines.insert(0, f"{RECHERCHE}:200:{NOT_FOUND}")
    error = "|".join(lines)[:MAX_ERROR] or None
    is_unreachable = bool(ended) and all(outcome.error_code not in (None, NOT_FOUND) for outcome in ended)
    counts = (len(ended) - len(failed), required, optional)
    return RunVerdict(status, error, core_identity_present, *counts, is_unreachable)


def _line(outcome: SourceOutcome) -> str:
    return (
        f"{outcome.source}:{'-' if outcome.http_status is None else outcome.http_status}:{outcome.error_code}"
    )


def failed_as(source: str, error: Json) -> SourceOutcome:
    """The outcome of a failed node, with the codes of the contract.

    An error of our handler has them in its details; a lost worker or a timeout has none.
    """
    node_error = error if isinstance(error, dict) else {}
    details = node_error.get("details")
    details = details if isinstance(details, dict) else {}
    code = str(node_error.get("code"))
    if code not in SOURCE_CODES:
        code = TIMEOUT if code in TIMED_OUT else INTERNAL_ERROR
    message = str(node_error.get("message") or code)[:500]
    return SourceOutcome(source, details.get("http_status"), code, message, details.get("duration_ms"))


def lost_at(source: str) -> SourceOutcome:
    """The outcome of the source at which a run was lost."""
    return SourceOutcome(source, None, INTERNAL_ERROR, "the run was lost")
