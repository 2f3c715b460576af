"""Ids of jobs: time-ordered UUIDs (version 7), generated here so that any PostgreSQL version works."""

from __future__ import annotations

import os
from struct import unpack
from uuid import UUID

from cograil import clock

DRAWN = 512  # in one batch: a kernel call for each id would take longer than the rest
_drawn: list[int] = []
os.register_at_fork(
    after_in_child=_drawn.clear
)  # a forked process would otherwise repeat the ids of its parent


def _chance() -> int:
    """Return a random number of 64 bits. Safe in threads, because taking the last element of a list is
    atomic.
    """
    try:
        return _drawn.pop()
    except IndexError:
        first: int
        first, *more = unpack(f">{DRAWN}Q", os.urandom(8 * DRAWN))
        _drawn.extend(more)
        return first


def new_id() -> str:
    """Return a new id; later ids sort after earlier ones to within a few microseconds."""
    millis, rest = divmod(int(clock.seconds() * 1_000_000_000), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    value = millis << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | _chance() & (2**62 - 1)
    text = f"{value:032x}"  # creating a UUID object would double the time
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_id(text: str) -> bool:
    """Return whether this has the format of an id."""
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def task_name(task_id: int, job_id: str) -> str:
    """Return the public id of a task: an opaque word that identifies the task and its job."""
    return f"{task_id}.{job_id}"
