"""Ids of ours: time-ordered UUIDs (version 7), made here so that any PostgreSQL will do; by its clock."""

from __future__ import annotations

import os
from struct import unpack
from uuid import UUID

from cograil import clock

DRAWN = 512  # at once: asking the kernel for each id took longer than all the rest
_drawn: list[int] = []
os.register_at_fork(after_in_child=_drawn.clear)  # or it would give the ids that its parent gives


def _chance() -> int:
    """A random number of 64 bits; safe in threads, for taking the last of a list is one step."""
    try:
        return _drawn.pop()
    except IndexError:
        first: int
        first, *more = unpack(f">{DRAWN}Q", os.urandom(8 * DRAWN))
        _drawn.extend(more)
        return first


def new_id() -> str:
    """A new id; later ids sort after earlier ones to within a few microseconds."""
    millis, rest = divmod(int(clock.seconds() * 1_000_000_000), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    value = millis << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | _chance() & (2**62 - 1)
    text = f"{value:032x}"  # a UUID object would take as long as all the rest
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_id(text: str) -> bool:
    """Whether this could be an id of ours at all."""
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def task_name(task_id: int, job_id: str) -> str:
    """The id of a task for everybody but us: one opaque word, by which it is found with its job."""
    return f"{task_id}.{job_id}"
