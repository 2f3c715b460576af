"""How a run ended: what each source came to, the state that follows, and the text of what went wrong."""

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
class Ended:
    """What the last try of a source came to. Without an error code it succeeded."""

    source: str
    http_status: int | None = None
    error_code: str | None = None
    message: str | None = None
    duration_ms: int | None = None

    @property
    def has_failed(self) -> bool:
        return self.error_code is not None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run came to."""

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


def judge(ended: Sequence[Ended], *, core_identity_present: bool) -> Verdict:
    """The verdict. Whoever was not asked is not in `ended` and does not count."""
    failed = [one for one in ended if one.has_failed]
    required = sum(one.source in REQUIRED for one in failed)
    optional = len(failed) - required
    has_failed = required > 0 or not core_identity_present
    status = FAILED if has_failed else PARTIAL if optional else SUCCESS
    said = [_line(one) for one in failed]
    if not core_identity_present and not required:
        said.insert(0, f"{RECHERCHE}:200:{NOT_FOUND}")
    error = "|".join(said)[:MAX_ERROR] or None
    is_unreachable = bool(ended) and all(one.error_code not in (None, NOT_FOUND) for one in ended)
    counts = (len(ended) - len(failed), required, optional)
    return Verdict(status, error, core_identity_present, *counts, is_unreachable)


def _line(one: Ended) -> str:
    return f"{one.source}:{'-' if one.http_status is None else one.http_status}:{one.error_code}"


def failed_as(source: str, error: Json) -> Ended:
    """What the engine says of a node that failed, in the words of the contract.

    What our handler raised has it all in its details; a worker that died, or was too slow, said nothing.
    """
    known = error if isinstance(error, dict) else {}
    told = known.get("details")
    told = told if isinstance(told, dict) else {}
    code = str(known.get("code"))
    if code not in SOURCE_CODES:
        code = TIMEOUT if code in TIMED_OUT else INTERNAL_ERROR
    message = str(known.get("message") or code)[:500]
    return Ended(source, told.get("http_status"), code, message, told.get("duration_ms"))


def lost_at(source: str) -> Ended:
    """A source at which a run was lost."""
    return Ended(source, None, INTERNAL_ERROR, "the run was lost")
