"""The metrics of container jobs, with the names that existing dashboards use."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cograil import metrics
from cograil.apps.containers.jobs import SettledEnd
from cograil.apps.containers.status import FAILED

METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS"})
CODES = frozenset({
    "container_gone", "create_failed", "exit_code", "image_not_found", "input_failed", "out_of_memory",
    "start_failed", "timeout",
})  # fmt: skip
OTHER = "other"
UNANSWERED = 500
BAD = 400


def counted(app: ASGIApp) -> ASGIApp:
    """Wrap this application so that its requests are counted, under a bounded set of labels."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        status = UNANSWERED

        async def send_seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began = time.monotonic()
        try:
            await app(scope, receive, send_seen)
        finally:
            if scope["type"] == "http":
                _count_request(scope["method"], scope["path"], status, time.monotonic() - began)

    return serve


def _count_request(method: str, path: str, status: int, seconds: float) -> None:
    labels = (method if method in METHODS else OTHER, path_label(path), f"{status // 100}xx")
    metrics.http_request_duration.labels(*labels).observe(seconds)
    metrics.http_requests.labels(*labels).inc()
    if status >= BAD:
        metrics.http_errors.labels(*labels).inc()


def path_label(path: str) -> str:
    """The route of this path: callers choose ids, and there must not be a series for each."""
    match path.split("/"):
        case ["", "v1", "jobs"]:
            return "/v1/jobs"
        case ["", "v1", "jobs", _]:
            return "/v1/jobs/{jobId}"
    return OTHER


def count_end(end: SettledEnd | None) -> None:
    """Count a settled job; call this after the commit."""
    if end is None:
        return
    status = end.status
    metrics.container_job_duration.labels(status.word).observe(end.seconds)
    if status.word == FAILED:
        metrics.container_job_errors.labels(status.kind if status.kind in CODES else OTHER).inc()
