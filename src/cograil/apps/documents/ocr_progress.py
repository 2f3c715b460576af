"""A plugin of ocrmypdf: report completed pages to a callback instead of drawing a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ocrmypdf import hookimpl

ProgressCallback = Callable[[int, int | None, str], None]
_callbacks: list[ProgressCallback] = []  # ocrmypdf creates the bars itself, one at a time in a process


@contextmanager
def reporting_to(progress: ProgressCallback) -> Iterator[None]:
    """Report progress to this function in this block."""
    _callbacks.append(progress)
    try:
        yield
    finally:
        _callbacks.pop()


class ProgressBar:
    """The progress bar interface that ocrmypdf expects."""

    def __init__(self, *, total: float | None = None, desc: str | None = None, **rest: Any) -> None:
        self._total = None if total is None else int(total)
        self._what = desc or ""
        self._done = 0.0

    def __enter__(self) -> ProgressBar:
        self._tell()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, n: float = 1, *, completed: float | None = None) -> None:
        """Add `n` pages, or set the total to `completed`; fractions of a page are not reported."""
        self._done = self._done + n if completed is None else completed
        self._tell()

    def _tell(self) -> None:
        if _callbacks:
            _callbacks[-1](int(self._done), self._total, self._what)


@hookimpl
def get_progressbar_class() -> type[ProgressBar]:
    """The class that replaces the drawn progress bar."""
    return ProgressBar
