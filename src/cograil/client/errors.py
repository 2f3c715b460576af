"""The errors of the client."""

from __future__ import annotations

import json
from typing import Any

from cograil.errors import CograilError


class ApiError(CograilError):
    """An error response of the API: `code` names the error, `pointer` its position, `request_id` its log lines."""

    def __init__(self, status: int, problem: dict[str, Any], *, retry_after: str = "") -> None:
        self.status = status
        self.retry_after = retry_after  # seconds, as in the header of the response
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


class NotCograil(CograilError):
    """The server at this URL does not answer as the API of cograil does."""

    code, exit_code = "not_cograil", 2

    def __init__(self, url: str, status: int, media_type: str = "") -> None:
        kind = f" with {media_type.partition(';')[0]}" if media_type else ""
        super().__init__(f"{url} is not the API of a cograil server: it answered {status}{kind}")


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
