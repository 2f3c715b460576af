"""The HTTP client of the command line: errors of a server as the errors that commands know, times as datetimes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime
from typing import Any

from cograil.client import ApiError, AsyncClient, Unreachable
from cograil.client.errors import NotCograil
from cograil.errors import (
    CograilError,
    Conflict,
    DatabaseUnavailable,
    Forbidden,
    InvalidInput,
    NotFound,
    Problem,
    UsageError,
)
from cograil.store.job_queries import View


class ServerUnavailable(DatabaseUnavailable):
    """The server cannot be reached, or cannot answer now."""

    code = "server_unavailable"


class ServerFailed(CograilError):
    """The server failed; its log says why."""

    code, exit_code = "server_failed", 3


class KeyRejected(UsageError):
    """The server does not accept the API key, or requires one."""

    code, status = "key_rejected", 401


class ServerClient(AsyncClient):
    """The client of the API, which raises the errors of the command line instead of ApiError and Unreachable."""

    def __init__(self, url: str, key: str = "", *, traceparent: str | None = None) -> None:
        super().__init__(url, key)
        self.url = url.rstrip("/")
        self._has_key = bool(key)
        if traceparent is not None:
            self._http.headers["traceparent"] = traceparent

    async def _send(self, *arguments: Any, **options: Any) -> Any:
        try:
            return await super()._send(*arguments, **options)
        except (ApiError, Unreachable) as error:
            raise self._translate(error) from error

    async def follow_job(self, job_id: str, after: int) -> AsyncIterator[View]:
        """Yield the events of a job as they are committed, until it has ended."""
        try:
            async with aclosing(self.follow(job_id, after=after)) as events:
                async for event in events:
                    view: dict[str, Any] = dict(event)
                    del view["place"]
                    yield revive(view)
        except (ApiError, Unreachable) as error:
            raise self._translate(error) from error

    def _translate(self, error: ApiError | Unreachable) -> CograilError:
        if isinstance(error, Unreachable):
            return ServerUnavailable(str(error))
        if error.status == 401:
            return KeyRejected(self._key_message(error))
        if error.status == 429 or error.status >= 502:
            return ServerUnavailable(self._outage_message(error))
        if error.code == "unknown":  # the body is not a problem document
            return NotCograil(self.url, error.status)
        return _error_of(error, self.url)

    def _key_message(self, error: ApiError) -> str:
        if self._has_key:
            return f"{self.url} rejects the API key: {error.detail}"
        return f"{self.url} requires an API key; set COGRAIL_API_KEY, or use --api-key-file FILE"

    def _outage_message(self, error: ApiError) -> str:
        detail = error.detail if error.code != "unknown" else f"it answered {error.status}"
        again = f"; try again in {error.retry_after} s" if error.retry_after.isdigit() else ""
        return f"{self.url} cannot answer now: {detail}{again}"


def _error_of(error: ApiError, url: str) -> CograilError:
    """Return the error that the same command raises on a database."""
    if error.status == 403:
        return _with_code(Forbidden(error.detail), error.code)
    if error.status == 404:
        return _with_code(NotFound(error.detail), _not_found_code(error))
    if error.status == 409:
        return _with_code(Conflict(error.detail), error.code)
    if error.status < 500:
        problems = error.problems or ([vars(error)] if error.pointer else [])
        if problems:
            return InvalidInput([_problem(problem) for problem in problems])
        return _with_code(UsageError(error.detail), error.code)
    return ServerFailed(f"{url} failed: {error.detail} (request {error.request_id or 'without id'})")


def _with_code(error: CograilError, code: str) -> CograilError:
    error.code = code
    return error


def _not_found_code(error: ApiError) -> str:
    """Return the code that a database gives: the API has one code for everything that does not exist."""
    if error.code != NotFound.code:
        return error.code
    if " has no node " in error.detail:
        return "node_not_found"
    match = re.match(r"(job|schedule|subscription|delivery) \S+ does not exist", error.detail)
    return f"{match[1]}_not_found" if match else error.code


def _problem(problem: dict[str, Any]) -> Problem:
    return Problem(
        problem["code"],
        problem["detail"],
        problem.get("pointer", ""),
        problem.get("line"),
        problem.get("column"),
    )


TIMES = frozenset({"not_before", "deadline", "bucket_start", "start", "now"})
PAYLOADS = frozenset(  # values of users and handlers, which stay as they are
    {
        *("input_params", "result", "result_data", "error", "error_message", "labels", "input", "output"),
        *("data", "fields", "definition", "source", "info", "filter", "reasons", "headers"),
    }
)


def revive(value: Any, *times: str) -> Any:
    """Return views with timestamps as datetimes: fields that end in `_at`, TIMES, and these."""
    if isinstance(value, list):
        return [revive(item, *times) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: _revive_field(name, item, times) for name, item in value.items()}


def _revive_field(name: str, value: Any, times: tuple[str, ...]) -> Any:
    if name in PAYLOADS:
        return value
    if isinstance(value, str) and (name.endswith("_at") or name in TIMES or name in times):
        return datetime.fromisoformat(value)
    return revive(value, *times)
