"""A plugin of ocrmypdf: pages that are done are told to whoever asked for them, and not drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ocrmypdf import hookimpl

Told = Callable[[int, int | None, str], None]
_told: list[Told] = []  # ocrmypdf makes the bars itself, one at a time in a process


@contextmanager
def told(progress: Told) -> Iterator[None]:
    """Tell this function in this block."""
    _told.append(progress)
    try:
        yield
    finally:
        _told.pop()


class Bar:
    """What ocrmypdf takes for a progress bar."""

    def __init__(self, *, total: float | None = None, desc: str | None = None, **rest: Any) -> None:
        self._total = None if total is None else int(total)
        self._what = desc or ""
        self._done = 0.0

    def __enter__(self) -> Bar:
        self._tell()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, n: float = 1, *, completed: float | None = None) -> None:
        """So much more is done, or so much in all; half a page is none."""
        self._done = self._done + n if completed is None else completed
        self._tell()

    def _tell(self) -> None:
        if _told:
            _told[-1](int(self._done), self._total, self._what)


@hookimpl
def get_progressbar_class() -> type[Bar]:
    """Instead of the one that draws."""
    return Bar
