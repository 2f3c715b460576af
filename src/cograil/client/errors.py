"""What may go wrong between a client and the API."""

from __future__ import annotations

import json
from typing import Any

from cograil.errors import CograilError


class ApiError(CograilError):
    """The API refused: `code` and `pointer` say what and where, `request_id` finds it in the log."""

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
    """The API does not answer. What was sent may have been done: with an idempotency key, send it again."""

    code = "unreachable"


class NotCograil(CograilError):
    """The server at this URL does not answer as the API of cograil does."""

    code, exit_code = "not_cograil", 2

    def __init__(self, url: str, status: int, media_type: str = "") -> None:
        kind = f" with {media_type.partition(';')[0]}" if media_type else ""
        super().__init__(f"{url} is not the API of a cograil server: it answered {status}{kind}")


def problem_of(body: bytes) -> dict[str, Any]:
    """The problem in an answer, whoever gave it: what stands between us may answer in its own way."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    return problem if isinstance(problem, dict) else {"detail": body[:500].decode("utf-8", "replace")}


def refuse_problem(status: int, media_type: str, body: bytes) -> None:
    """Raises ApiError for an answer that says what went wrong instead of what was asked for."""
    if status >= 400 and not media_type.startswith("application/json"):
        raise ApiError(status, problem_of(body))
