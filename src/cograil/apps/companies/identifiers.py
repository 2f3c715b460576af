"""SIREN and SIRET: read strictly, and checked by Luhn for a warning only.

The check is never a refusal: numbers that break it are in use. Those of the establishments of La Poste have a
rule of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from cograil.apps.companies.constants import BAD_SIREN, BAD_SIRET, MISMATCH, MISSING

IS_SIREN = re.compile(r"[0-9]{9}").fullmatch
IS_SIRET = re.compile(r"[0-9]{14}").fullmatch
SIREN_DIGITS, SIRET_DIGITS = 9, 14
LA_POSTE = "356000000"
LUHN_WARNING = "LUHN_CHECK_FAILED"


class Wrong(NamedTuple):
    """A validation error of a request field."""

    code: str
    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class Identifiers:
    """A company by SIREN, and optionally one of its establishments by SIRET."""

    siren: str
    siret: str | None
    siren_raw: str | None
    siret_raw: str | None


def read_identifiers(siren: Any, siret: Any) -> Identifiers | list[Wrong]:
    """The identifiers, or the validation errors; the SIREN is derived from the SIRET if missing."""
    if siren is None and siret is None:
        return [Wrong(MISSING, "siren", "give a siren of 9 digits or a siret of 14")]
    wrong = []
    if siren is not None and not _fits(siren, IS_SIREN):
        wrong.append(Wrong(BAD_SIREN, "siren", "a siren has 9 digits"))
    if siret is not None and not _fits(siret, IS_SIRET):
        wrong.append(Wrong(BAD_SIRET, "siret", "a siret has 14 digits"))
    if wrong:
        return wrong
    if siren is not None and siret is not None and siret[:9] != siren:
        return [Wrong(MISMATCH, "siret", "the siret is of another company than the siren")]
    return Identifiers(siren or siret[:9], siret, siren, siret)


def as_written(number: str) -> dict[str, str]:
    """A SIREN or a SIRET as people write it, with spaces between, as the fields of a request."""
    digits = "".join(number.split())
    if not digits:
        return {}
    return {"siren" if len(digits) <= SIREN_DIGITS else "siret": digits}


def doubts(identifiers: Identifiers) -> list[dict[str, str]]:
    """Warnings about probable typing errors; they do not reject the request."""
    warnings = []
    if not is_luhn(identifiers.siren):
        warnings.append(_doubt("siren", "the check digit of the siren is wrong"))
    if identifiers.siret is not None and not is_plausible_siret(identifiers.siret):
        warnings.append(_doubt("siret", "the check digit of the siret is wrong"))
    return warnings


def is_luhn(digits: str) -> bool:
    """Whether the check digit is right."""
    doubled = [int(digit) * (2 if place % 2 else 1) for place, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def is_plausible_siret(siret: str) -> bool:
    """By Luhn; of La Poste the digits add up to a multiple of five."""
    if siret.startswith(LA_POSTE) and sum(map(int, siret)) % 5 == 0:
        return True
    return is_luhn(siret)


def _fits(value: Any, rule: Any) -> bool:
    return isinstance(value, str) and rule(value) is not None


def _doubt(field: str, reason: str) -> dict[str, str]:
    return {"code": LUHN_WARNING, "field": field, "reason": reason}
