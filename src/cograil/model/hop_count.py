"""Hops: how often a thing has gone round from us to a receiver and back, told by `cograil-hop`.

What we tell others names the hop. A receiver that answers an event by asking us for something hands the
header on, as any gateway does; the job that it submits remembers it among its labels, and what is told of
that job is one hop further. So a circle ends, wherever it was closed.
"""

from __future__ import annotations

from collections.abc import Mapping

HOP = "cograil-hop"  # the header, and the label
MAX_HOPS = 3


def hops_of(labels: Mapping[str, str] | None) -> int:
    """How many hops a job with these labels is away from somebody who began by himself."""
    text = (labels or {}).get(HOP, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 3 else 0
