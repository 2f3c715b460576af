"""Ids of ours: time-ordered UUIDs (version 7), made here so that any PostgreSQL will do."""

from __future__ import annotations

import os
import time
from uuid import UUID


def new_id() -> str:
    """A new id; later ids sort after earlier ones to within a few microseconds."""
    millis, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    tail = int.from_bytes(os.urandom(8)) & (2**62 - 1)
    value = millis << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | tail
    return str(UUID(int=value))


def is_id(text: str) -> bool:
    """Whether this could be an id of ours at all; whoever has another has made a mistake."""
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False
