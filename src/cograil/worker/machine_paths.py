"""Errors of an app's handlers, without the paths of the machine they ran on.

Whoever may look at a job is not whoever runs the worker. Handlers of users are left alone: their authors need
to see where they failed.
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
    """The same failure; in its message and details the directories of this machine are replaced."""
    pattern = _pattern(settings.data_dir, settings.documents.data_dir)
    return replace(
        outcome, message=pattern.sub(HIDDEN, outcome.message), details=_hide(pattern, outcome.details)
    )


@lru_cache(maxsize=8)
def _pattern(*configured: Path | None) -> re.Pattern[str]:
    """Finds a directory of this machine, the longest that is named."""
    found = {
        *(path for path in configured if path is not None),
        Path(tempfile.gettempdir()),
        Path.home(),
        Path(sys.prefix),
        Path(sys.base_prefix),
        Path(cograil.__file__).parents[1],
        Path.cwd(),
    }
    forms = {form for one in found for form in (str(one), str(one.resolve()))} - {"/", "."}
    roots = "|".join(re.escape(root) for root in sorted(forms, key=len, reverse=True))
    return re.compile(rf"(?<![\w./-])(?:{roots})(?![\w.-])")


def _hide(pattern: re.Pattern[str], value: Json) -> Json:
    if isinstance(value, str):
        return pattern.sub(HIDDEN, value)
    if isinstance(value, dict):
        return {key: _hide(pattern, one) for key, one in value.items()}
    return [_hide(pattern, one) for one in value] if isinstance(value, list) else value
