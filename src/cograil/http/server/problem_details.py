"""One shape for all that goes wrong: `application/problem+json` with a stable code and a JSON pointer.

Unreadable is 400, readable but wrong 422, too large 413, never 500 for what a caller sent. A detail echoes
at most a hundred characters of what was given, without control characters.
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
    """A request that is answered with a problem."""

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
    """What a caller is told of an error that people can mend."""
    if isinstance(error, Problems):
        first = error.problems[0]
        return Refusal(
            error.status, _code_of(error), plain(first.message), first.pointer, problems=error.problems
        )
    pointer = error.pointer if isinstance(error, InvalidJson) else ""
    wait = 1.0 if error.status == 503 else error.wait_seconds
    later = {} if wait is None else {"Retry-After": str(math.ceil(wait))}
    return Refusal(error.status, _door_code(error), plain(str(error)), pointer, headers=later)


def _door_code(error: CograilError) -> str:
    """What is not there is called the same whatever it would be; only a workflow is called by its name."""
    is_missing = isinstance(error, NotFound) and not isinstance(error, WorkflowNotFound)
    return NotFound.code if is_missing else error.code


def _code_of(error: Problems) -> str:
    """One problem is called by its own name, several by what they have in common."""
    codes = {problem.code for problem in error.problems}
    return codes.pop() if len(codes) == 1 else error.code


def answer(refusal: Refusal, request_id: str) -> Response:
    """The problem as a response."""
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
    listed = []
    for problem in list(problems)[:MAX_LISTED]:
        one: dict[str, object] = {
            "code": problem.code,
            "detail": plain(problem.message),
            "pointer": problem.pointer,
        }
        if problem.line is not None:
            one |= {"line": problem.line, "column": problem.column}
        listed.append(one)
    return listed


def plain(text: str, most: int = 1000) -> str:
    """Text for a caller: bounded, and without characters that would do something to a terminal."""
    cut = text if len(text) <= most else text[: most - 3] + "..."
    return "".join([one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in cut])
