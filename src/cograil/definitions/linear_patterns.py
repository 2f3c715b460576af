"""The regular expressions of workflow files, which run on RE2 in linear time.

Python's `re` takes exponential time for some patterns, which would block the process. RE2 supports neither
lookaround nor backreferences; a file with such a pattern cannot be published.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

MAX_PATTERN_CHARACTERS = 2_000
MAX_PATTERN_MEMORY = 1024 * 1024

_UNICODE_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\.", re.DOTALL)

_LONG_REPETITION = re.compile(r"\{[0-9,]{12}")


class PatternError(Exception):
    """The pattern is not valid; the message says why."""


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Any:
    """Compile a pattern to a `re2._Regexp`. Raises PatternError."""
    import re2  # noqa: PLC0415  few workflows have patterns

    if len(text) > MAX_PATTERN_CHARACTERS:
        raise PatternError(f"a pattern may have at most {MAX_PATTERN_CHARACTERS:,} characters")
    if _LONG_REPETITION.search(text):  # RE2 would treat it as text
        raise PatternError("a repetition may be at most {1000}")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_MEMORY
    try:
        return re2.compile(_UNICODE_ESCAPE.sub(_as_re2, text), options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args else "it is not valid"
        message = f"{reason}; patterns use RE2 syntax, without lookaround and backreferences"
        raise PatternError(message) from None


def _as_re2(escape: re.Match[str]) -> str:
    """JSON Schema writes a character as \\u00e9, RE2 as \\x{00e9}."""
    return escape[0] if escape[1] is None else f"\\x{{{escape[1]}}}"


def search_steps(pattern: Any, text: str) -> int:
    """Return the maximum cost of a search in steps of a budget (model/evaluation_budget.py)."""
    return 1 + (len(text) * (64 + int(pattern.programsize)) >> 12)
