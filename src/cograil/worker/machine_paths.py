"""Removal of local directory paths from the errors of an app's handlers.

A user who may read a job need not know the machine of the worker. Errors of users' own handlers keep their
paths: the authors need to see where a handler failed.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import cograil
from cograil.model.outcome import Failed
from cograil.model.workflow import Json
from cograil.settings import Settings

HIDDEN = "[...]"


def hide_paths(outcome: Failed, settings: Settings) -> Failed:
    """Replace the directories of this machine in the message and details of a failure."""
    private = (path for section in settings.sections() for path in section.private_paths())
    pattern = _pattern(settings.data_dir, *private)
    return replace(
        outcome, message=pattern.sub(HIDDEN, outcome.message), details=_hide(pattern, outcome.details)
    )


@lru_cache(maxsize=8)
def _pattern(*configured: Path) -> re.Pattern[str]:
    """Return a pattern that matches the longest known directory of this machine."""
    directories = {
        *configured,
        Path(tempfile.gettempdir()),
        Path.home(),
        Path(sys.prefix),
        Path(sys.base_prefix),
        Path(cograil.__file__).parents[1],
        Path.cwd(),
    }
    forms = {form for path in directories for form in (str(path), str(path.resolve()))} - {"/", "."}
    roots = "|".join(re.escape(root) for root in sorted(forms, key=len, reverse=True))
    return re.compile(rf"(?<![\w./-])(?:{roots})(?![\w.-])")


def _hide(pattern: re.Pattern[str], value: Json) -> Json:
    if isinstance(value, str):
        return pattern.sub(HIDDEN, value)
    if isinstance(value, dict):
        return {key: _hide(pattern, member) for key, member in value.items()}
    return [_hide(pattern, member) for member in value] if isinstance(value, list) else value
