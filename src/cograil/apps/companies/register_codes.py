"""Codes of the registers in words: headcount ranges, activity, reasons of failures, addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cograil.apps.companies.constants import (
    AUTH_ERROR,
    FORBIDDEN,
    INTERNAL_ERROR,
    NOT_FOUND,
    RATE_LIMIT,
    SOURCE_UNAVAILABLE,
    TIMEOUT,
    UPSTREAM_5XX,
)

HEADCOUNTS = {  # tranche d'effectif salarié of INSEE
    "NN": "no employees",
    "00": "no employees",
    "01": "1 or 2 employees",
    "02": "3 to 5 employees",
    "03": "6 to 9 employees",
    "11": "10 to 19 employees",
    "12": "20 to 49 employees",
    "21": "50 to 99 employees",
    "22": "100 to 199 employees",
    "31": "200 to 249 employees",
    "32": "250 to 499 employees",
    "41": "500 to 999 employees",
    "42": "1,000 to 1,999 employees",
    "51": "2,000 to 4,999 employees",
    "52": "5,000 to 9,999 employees",
    "53": "10,000 employees or more",
}
ACTIVITY = {"A": "active", "C": "closed", "F": "closed"}
REASONS = {
    AUTH_ERROR: "the register refuses our credentials",
    FORBIDDEN: "the register does not allow us this",
    NOT_FOUND: "the register does not know this company",
    RATE_LIMIT: "the register wants fewer requests",
    TIMEOUT: "the register did not answer in time",
    UPSTREAM_5XX: "the register has an error of its own",
    SOURCE_UNAVAILABLE: "the register cannot be reached",
    INTERNAL_ERROR: "the answer could not be used, or the run was lost",
}


def field_in_words(name: str, value: Any) -> str:
    """The value of a field as people read it: a code with what it means."""
    words = {"headcount_range": HEADCOUNTS, "active_status": ACTIVITY}.get(name, {})
    return f"{words[value]} ({value})" if value in words else str(value)


def address_line(address: Mapping[str, Any]) -> str:
    """An address in one line; the town is not repeated where a line ends with it and its postal code."""
    line1, line2 = (address.get(name) or "" for name in ("line1", "line2"))
    town = " ".join(str(address[name]) for name in ("postal_code", "city") if address.get(name))
    has_town = bool(town) and any(line.upper().endswith(town.upper()) for line in (line1, line2))
    parts = (line1, line2, "" if has_town else town, address.get("country_code") or "")
    return ", ".join(part for part in parts if part)


def failure_in_words(failure: Mapping[str, Any]) -> str:
    """Which register failed, with which status, and why."""
    reason = REASONS.get(failure["error_code"], failure["error_code"])
    message = failure.get("message")
    status = "no HTTP status" if failure["http_status"] is None else f"HTTP {failure['http_status']}"
    more = f" ({message})" if message and message != failure["error_code"] else ""
    return f"{failure['source_api']}: {reason}, {status}, {failure['error_code']}{more}"
