"""Suggestions for misspelt words. Each compares a word with all candidates, so their number is limited."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from heapq import nsmallest
from itertools import islice
from os.path import commonprefix

MAX_HINTS = 5
MAX_WORD_CHARACTERS = 64
MAX_CANDIDATES = 1_000
MAX_LISTED = 20
MAX_COMPARED = 20  # in full, which takes a tenth of a millisecond each


class Hints:
    """The suggestions for one document or request: the first few words get one, the others none."""

    def __init__(self, count: int = MAX_HINTS) -> None:
        self._left = count

    def suggest(self, word: str, candidates: Iterable[str]) -> str | None:
        """The candidate that this word is most like, if one is close and there are hints left."""
        if self._left <= 0 or len(word) > MAX_WORD_CHARACTERS:
            return None
        self._left -= 1
        likely = nsmallest(
            MAX_COMPARED, islice(candidates, MAX_CANDIDATES), key=lambda one: _unlikeness(word, one)
        )
        close = get_close_matches(word, likely, n=1)
        return close[0] if close else None


def list_names(names: Collection[str]) -> str:
    """The names in a sentence, not too many of them."""
    listed = ", ".join(islice(names, MAX_LISTED))
    left = len(names) - MAX_LISTED
    return f"{listed} and {left:,} more" if left > 0 else listed


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """The end of a sentence about a word that is not known; empty when nothing is close."""
    close = Hints().suggest(word, candidates)
    return f"; did you mean {close!r}?" if close else ""


def hint_of_nodes(name: str, nodes: Collection[str]) -> str:
    """For a node that does not exist: which one was probably meant, and which there are."""
    close = Hints().suggest(name, nodes)
    return f"{f'did you mean {close!r}? ' if close else ''}its nodes: {list_names(nodes)}"


def _unlikeness(word: str, candidate: str) -> int:
    """A quick guess: words that begin or end alike and are as long are more alike."""
    start = len(commonprefix((word, candidate)))  # noqa: RUF071  words, not paths
    end = len(commonprefix((word[::-1], candidate[::-1])))  # noqa: RUF071  words, not paths
    return abs(len(word) - len(candidate)) - start - end
