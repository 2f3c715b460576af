"""Hop counts, which end loops between cograil and its receivers; the header is `cograil-hop`.

Every outgoing event carries the hop count. A receiver that reacts with a request passes the header on, as a
gateway does. The submitted job stores the count among its labels, and its events carry the next number. A
count above the limit ends the loop, wherever it was closed.
"""

from __future__ import annotations

from collections.abc import Mapping

HOP = "cograil-hop"  # the header, and the label
MAX_HOPS = 3


def hops_of(labels: Mapping[str, str] | None) -> int:
    """Return how many hops lie between the first request and a job with these labels."""
    text = (labels or {}).get(HOP, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 3 else 0
