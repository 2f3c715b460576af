"""Validation of the result of a handler, and its conversion to JSON text."""

from __future__ import annotations

import inspect
from typing import Any

from cograil import strict_json
from cograil.model.outcome import Completed


class BadResult(Exception):
    """The result or item of a handler is invalid; `code` says why."""

    def __init__(self, message: str, code: str = "bad_result") -> None:
        super().__init__(message)
        self.code = code


def completed(value: Any, max_bytes: int) -> Completed:
    """Convert a result to JSON. Raises BadResult when it is not a JSON object within the limit."""
    if value is None:
        return Completed(b"{}")
    if inspect.iscoroutine(value):
        value.close()
        raise BadResult("the handler returned a coroutine; declare it with `async def`")
    try:
        output = strict_json.write(value, max_bytes=max_bytes)
    except strict_json.InvalidJson as error:
        code = "result_too_large" if error.code == "too_large" else "bad_result"
        raise BadResult(f"the result cannot be stored: {error}", code) from None
    if not output.startswith(b"{"):
        raise BadResult(f"a handler must return a JSON object, not {type(value).__name__}")
    return Completed(output)
