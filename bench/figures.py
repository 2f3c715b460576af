"""Numbers for people and for machines."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

Figures = dict[str, Any]


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p95 and p99 in milliseconds."""
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

    return {"p50": at(0.50), "p95": at(0.95), "p99": at(0.99)}


def medians(rounds: Sequence[Figures]) -> Figures:
    """Of each figure the median of all rounds."""
    return {
        name: medians([figures[name] for figures in rounds])
        if isinstance(value, dict)
        else median([figures[name] for figures in rounds])
        for name, value in rounds[0].items()
    }
