"""The problems found in one document, each at its position in the text."""

from __future__ import annotations

from collections.abc import Iterable

from cograil.definitions.suggestions import Suggestions
from cograil.errors import InvalidWorkflow, Problem

MAX_PROBLEMS = 100

Position = tuple[int, int]  # line and column, both counted from 1


class Diagnostics:
    """Collects problems and knows the position of each JSON pointer in the source text.

    A value that cannot be read is marked as unreadable. Later stages see a placeholder there, and problems
    below it are dropped. Beyond `MAX_PROBLEMS`, problems are only counted: a hostile file must not cost more
    the more problems it has.

    `is_new` is True for a file that an author can still edit. It is checked more strictly than a stored
    document, which running jobs depend on.
    """

    def __init__(self, *, is_new: bool = False) -> None:
        self.is_new = is_new
        self.problems: list[Problem] = []
        self.values: dict[str, Position] = {}
        self.keys: dict[str, Position] = {}
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
        position: Position | None = None,
        did_you_mean: tuple[str, Iterable[str]] | None = None,
    ) -> None:
        """Add a problem at `pointer`. `did_you_mean` is a misspelt word and the candidates for a suggestion."""
        if self._is_spoiled(pointer):
            return
        if len(self.problems) >= MAX_PROBLEMS:
            self._left_out += 1
            return
        line, column = position or self._position_of(pointer, at_key) or (None, None)
        close = self._suggestions.suggest(*did_you_mean) if did_you_mean else None
        hint = f"; did you mean {close!r}?" if close else ""
        self.problems.append(Problem(code, _short(message) + hint, pointer, line, column))

    def mark_unreadable(self, code: str, message: str, pointer: str, position: Position) -> None:
        """Add a problem, and drop later problems at or below `pointer`, whose value cannot be read."""
        self.add(code, message, pointer, position=position)
        self.unreadable.add(pointer)

    def error(self, source: str = "") -> InvalidWorkflow:
        """Return all problems as one error, in the order of the text."""
        ordered = sorted(self.problems, key=lambda problem: (problem.line or 0, problem.column or 0))
        if self._left_out:
            ordered.append(Problem("too_many_problems", f"{self._left_out} more problems are not listed"))
        return InvalidWorkflow(ordered, source)

    def _is_spoiled(self, pointer: str) -> bool:
        return bool(self.unreadable) and any(parent in self.unreadable for parent in _upwards(pointer))

    def _position_of(self, pointer: str, at_key: bool) -> Position | None:
        """Return the position of the key or value, or of the nearest enclosing key."""
        first, second = (self.keys, self.values) if at_key else (self.values, self.keys)
        if pointer in first:
            return first[pointer]
        if pointer in second:  # an item of a list has no key
            return second[pointer]
        return next((self.keys[parent] for parent in _upwards(pointer) if parent in self.keys), None)


def child(pointer: str, key: str | int) -> str:
    """The JSON pointer (RFC 6901) of `key` inside `pointer`."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _short(message: str) -> str:
    """Shorten a message. Messages quote the file, which may contain very long names."""
    return message if len(message) <= 300 else f"{message[:200]} ... {message[-80:]}"


def _upwards(pointer: str) -> Iterable[str]:
    while pointer:
        yield pointer
        pointer = pointer.rpartition("/")[0]
    yield ""
