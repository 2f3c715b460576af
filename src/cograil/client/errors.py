"""The errors of the client."""

from __future__ import annotations

import json
from typing import Any

from cograil.errors import CograilError


class ApiError(CograilError):
    """An error response of the API: `code` names the error, `pointer` its position, `request_id` its log lines."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        self.code = str(problem.get("code", "unknown"))
        self.detail = str(problem.get("detail", ""))
        self.pointer = str(problem.get("pointer", ""))
        self.problems: list[dict[str, Any]] = problem.get("problems", [])
        self.request_id = str(problem.get("request_id", ""))
        where = f" at {self.pointer}" if self.pointer else ""
        super().__init__(f"{self.status} {self.code}{where}: {self.detail}")


class Unreachable(CograilError):
    """The API does not respond. The request may have been completed; with an idempotency key, repeat it."""

    code = "unreachable"


def problem_of(body: bytes) -> dict[str, Any]:
    """Return the problem of a response. A proxy may answer in another format: then its text is the detail."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    return problem if isinstance(problem, dict) else {"detail": body[:500].decode("utf-8", "replace")}


def refuse_problem(status: int, media_type: str, body: bytes) -> None:
    """Raise ApiError for an error response that is not a report."""
    if status >= 400 and not media_type.startswith("application/json"):
        raise ApiError(status, problem_of(body))
