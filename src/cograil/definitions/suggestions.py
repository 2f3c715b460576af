"""Suggestions for misspelt words. Their number is limited, because each compares all candidates."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from heapq import nsmallest
from itertools import islice
from os.path import commonprefix

MAX_SUGGESTIONS = 5
MAX_WORD_CHARACTERS = 64
MAX_CANDIDATES = 1_000
MAX_LISTED = 20
MAX_COMPARED = 20  # with difflib, which takes 0.1 ms each


class Suggestions:
    """The suggestions for one document or request. Only the first few words get one."""

    def __init__(self, count: int = MAX_SUGGESTIONS) -> None:
        self._left = count

    def suggest(self, word: str, candidates: Iterable[str]) -> str | None:
        """Return the closest candidate; None when none is close or the limit is reached."""
        if self._left <= 0 or len(word) > MAX_WORD_CHARACTERS:
            return None
        self._left -= 1
        likely = nsmallest(
            MAX_COMPARED,
            islice(candidates, MAX_CANDIDATES),
            key=lambda candidate: _estimate_distance(word, candidate),
        )
        close = get_close_matches(word, likely, n=1)
        return close[0] if close else None


def list_names(names: Collection[str]) -> str:
    """Return the first names as a list for a message, and the number of the others."""
    listed = ", ".join(islice(names, MAX_LISTED))
    left = len(names) - MAX_LISTED
    return f"{listed} and {left:,} more" if left > 0 else listed


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return the end of a message about an unknown word; empty when no candidate is close."""
    close = Suggestions().suggest(word, candidates)
    return f"; did you mean {close!r}?" if close else ""


def hint_of_nodes(name: str, nodes: Collection[str]) -> str:
    """Return a hint for an unknown node: the closest name and the existing nodes."""
    close = Suggestions().suggest(name, nodes)
    return f"{f'did you mean {close!r}? ' if close else ''}its nodes: {list_names(nodes)}"


def _estimate_distance(word: str, candidate: str) -> int:
    """Estimate the distance of two words by their length, common prefix and common suffix."""
    start = len(commonprefix((word, candidate)))  # noqa: RUF071  words, not paths
    end = len(commonprefix((word[::-1], candidate[::-1])))  # noqa: RUF071  words, not paths
    return abs(len(word) - len(candidate)) - start - end
