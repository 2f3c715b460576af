"""The error format of the API: `application/problem+json` with a stable code and a JSON pointer.

Unreadable input is 400, readable but invalid input 422, too large input 413; bad input is never 500. A detail
echoes at most a hundred characters of the input, without control characters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import orjson
from starlette.responses import Response

from cograil.errors import CograilError, NotFound, Problem, Problems, WorkflowNotFound
from cograil.strict_json import InvalidJson

MEDIA_TYPE = "application/problem+json"
TYPES = "urn:cograil:problem:"
MAX_LISTED = 50


@dataclass
class Refusal(Exception):
    """The error response to a request: status, code, detail and pointer."""

    status: int
    code: str
    detail: str
    pointer: str = ""
    problems: tuple[Problem, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.detail}"


ErrorRenderer = Callable[[Refusal, str], Response]  # a refusal, and the id of the request


def refusal_of(error: CograilError) -> Refusal:
    """Return the error response for an error of the engine."""
    if isinstance(error, Problems):
        first = error.problems[0]
        return Refusal(
            error.status, _code_of(error), plain(first.message), first.pointer, problems=error.problems
        )
    pointer = error.pointer if isinstance(error, InvalidJson) else ""
    wait = 1.0 if error.status == 503 else error.wait_seconds
    later = {} if wait is None else {"Retry-After": str(math.ceil(wait))}
    return Refusal(error.status, _public_code(error), plain(str(error)), pointer, headers=later)


def _public_code(error: CograilError) -> str:
    """Return `not_found` for every missing object except a workflow, which has its own code."""
    is_missing = isinstance(error, NotFound) and not isinstance(error, WorkflowNotFound)
    return NotFound.code if is_missing else error.code


def _code_of(error: Problems) -> str:
    """Return the code that all problems share, else the code of the error."""
    codes = {problem.code for problem in error.problems}
    return codes.pop() if len(codes) == 1 else error.code


def answer(refusal: Refusal, request_id: str) -> Response:
    """Return the problem as a response."""
    body = {
        "type": TYPES + refusal.code,
        "title": HTTPStatus(refusal.status).phrase,
        "status": refusal.status,
        "code": refusal.code,
        "detail": refusal.detail,
        "pointer": refusal.pointer,
        "request_id": request_id,
    }
    if len(refusal.problems) > 1:
        body["problems"] = listed(refusal.problems)
    return Response(orjson.dumps(body), refusal.status, media_type=MEDIA_TYPE, headers={**refusal.headers})


def listed(problems: Iterable[Problem]) -> list[dict[str, object]]:
    entries = []
    for problem in list(problems)[:MAX_LISTED]:
        entry: dict[str, object] = {
            "code": problem.code,
            "detail": plain(problem.message),
            "pointer": problem.pointer,
        }
        if problem.line is not None:
            entry |= {"line": problem.line, "column": problem.column}
        entries.append(entry)
    return entries


def plain(text: str, max_length: int = 1000) -> str:
    """Return this text bounded and without control characters, which a terminal would interpret."""
    bounded = text if len(text) <= max_length else text[: max_length - 3] + "..."
    return "".join([char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in bounded])
