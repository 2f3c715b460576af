"""The problems found in one document, each at its place in the text."""

from __future__ import annotations

from collections.abc import Iterable

from cograil.definitions.suggestions import Suggestions
from cograil.errors import InvalidWorkflow, Problem

MAX_PROBLEMS = 100

Place = tuple[int, int]  # line and column, both counted from 1


class Diagnostics:
    """Collects problems and knows where each JSON pointer lies in the text it came from.

    What cannot be read is `mark_unreadable`ed: later stages see a stand-in there, and their complaints about
    the stand-in are dropped. From `MAX_PROBLEMS` on, problems are only counted: a hostile file must
    not cost more the more it is wrong.

    What `is_new` is a file, and may be mended: there more is refused than in what was stored long ago, which
    jobs are pinned to.
    """

    def __init__(self, *, is_new: bool = False) -> None:
        self.is_new = is_new
        self.problems: list[Problem] = []
        self.values: dict[str, Place] = {}
        self.keys: dict[str, Place] = {}
        self.unreadable: set[str] = set()
        self._left_out = 0
        self._suggestions = Suggestions()

    def add(
        self,
        code: str,
        message: str,
        pointer: str = "",
        *,
        at_key: bool = False,
        place: Place | None = None,
        near: tuple[str, Iterable[str]] | None = None,
    ) -> None:
        """Note a problem at `pointer`; `near` is a misspelt word and what it might have been."""
        if self._is_spoiled(pointer):
            return
        if len(self.problems) >= MAX_PROBLEMS:
            self._left_out += 1
            return
        line, column = place or self._place_of(pointer, at_key) or (None, None)
        close = self._suggestions.suggest(*near) if near else None
        hint = f"; did you mean {close!r}?" if close else ""
        self.problems.append(Problem(code, _short(message) + hint, pointer, line, column))

    def mark_unreadable(self, code: str, message: str, pointer: str, place: Place) -> None:
        """Note that what stands at `pointer` cannot be read at all."""
        self.add(code, message, pointer, place=place)
        self.unreadable.add(pointer)

    def error(self, source: str = "") -> InvalidWorkflow:
        """Everything noted, in the order of the text."""
        ordered = sorted(self.problems, key=lambda problem: (problem.line or 0, problem.column or 0))
        if self._left_out:
            ordered.append(Problem("too_many_problems", f"{self._left_out} more problems are not listed"))
        return InvalidWorkflow(ordered, source)

    def _is_spoiled(self, pointer: str) -> bool:
        return bool(self.unreadable) and any(above in self.unreadable for above in _upwards(pointer))

    def _place_of(self, pointer: str, at_key: bool) -> Place | None:
        """Of the key or value itself, or of the nearest thing around it that is in the text."""
        first, second = (self.keys, self.values) if at_key else (self.values, self.keys)
        if pointer in first:
            return first[pointer]
        if pointer in second:  # an item of a list has no key
            return second[pointer]
        return next((self.keys[above] for above in _upwards(pointer) if above in self.keys), None)


def child(pointer: str, key: str | int) -> str:
    """The JSON pointer (RFC 6901) of `key` inside `pointer`."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _short(message: str) -> str:
    """Messages quote the file; a name of a hundred kilobytes must not fill the screen."""
    return message if len(message) <= 300 else f"{message[:200]} ... {message[-80:]}"


def _upwards(pointer: str) -> Iterable[str]:
    while pointer:
        yield pointer
        pointer = pointer.rpartition("/")[0]
    yield ""
