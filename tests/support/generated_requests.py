"""Requests generated from an OpenAPI document, good ones and bad ones, and the flaws of the responses."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from tests.support.api_client import ApiClient
from tests.support.openapi_check import OpenApiChecker

from cograil.gateway.gateway_readiness import UpstreamUrls, application, opened
from cograil.http.server.port import bind, serving
from cograil.settings import GatewaySettings

MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
PATIENCE_SECONDS = 30


class RequestFuzzer:
    """Requests for all operations of a document, and what was wrong with the answers."""

    def __init__(self, described: OpenApiChecker, port: int, key: str, known: Mapping[str, str]) -> None:
        self._described = described
        self._base = f"http://127.0.0.1:{port}"
        self._headers = {"authorization": f"Bearer {key}"}
        self._known = known
        self._session = requests.Session()
        self._is_known = False
        self.answers: Counter[tuple[str, int]] = Counter()
        self.wrong: list[str] = []
        self.tried: set[str] = set()

    def run(self, mode: GenerationMode, examples: int, *, is_random: bool = False) -> None:
        """Try every operation with `examples` requests; with one, if it takes nothing that could be wrong."""
        schema = schemathesis.openapi.from_dict(self._described.document)
        for result in schema.get_all_operations():
            assert isinstance(result, Ok)
            operation = result.ok()
            parts = [*operation.query, *operation.headers, *operation.path_parameters, *operation.body]
            takes = [part for part in parts if part.name.lower() != "authorization"]
            try:
                _examples(operation, mode, examples if takes else 1, is_random)(self._try)
            except Unsatisfiable:
                assert not takes, operation.label
            self.tried.add(operation.label)
        self._session.close()

    def _try(self, case: Any) -> None:
        """Every other time with names of things that are there: else no request gets past the first look."""
        self._is_known = not self._is_known
        for name, value in self._known.items() if self._is_known else ():
            if name in (case.path_parameters or {}):
                case.path_parameters[name] = value
        sent = case.as_transport_kwargs(base_url=self._base)
        if isinstance(sent.get("json"), dict) and "wait_seconds" in sent["json"]:
            sent["json"]["wait_seconds"] = 0  # nobody has the time
        sent["headers"] = {**sent.get("headers", {}), **self._headers}
        try:
            with self._session.request(**sent, timeout=PATIENCE_SECONDS, stream=True) as answer:
                self._judge(case, answer)
        except (requests.exceptions.InvalidHeader, UnicodeError):
            return  # this cannot be sent at all

    def _judge(self, case: Any, answer: requests.Response) -> None:
        operation, status = case.operation, answer.status_code
        self.answers[operation.label, status] += 1
        kind = answer.headers.get("content-type", "")
        body = b"" if kind.startswith("text/event-stream") else answer.content
        if status >= 500 and status not in _reports(operation, kind):
            self.wrong.append(f"{operation.label} {status} {body[:300]!r}")
        path = str(answer.request.path_url)
        self.wrong += self._described.wrong(str(answer.request.method), path, status, kind, body)


def _reports(operation: Any, kind: str) -> tuple[int, ...]:
    """What says how something else is doing, not that the request went wrong."""
    is_report = operation.path.endswith(("/health", "/health/{check}", "/readyz"))
    return (503,) if is_report and kind == "application/json" else ()


def _examples(operation: Any, mode: GenerationMode, examples: int, is_random: bool) -> Callable[[Any], None]:
    def run(attempt: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library's own
            strategy = operation.as_strategy(generation_mode=mode)
            settings(
                max_examples=examples,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
                derandomize=not is_random,
            )(given(case=strategy)(attempt))()

    return run


@contextlib.asynccontextmanager
async def open_gateway(api: ApiClient, dsn: str) -> AsyncIterator[int]:
    """The port of a gateway before this API; the API is its worker too, so that all it passes on arrives."""
    url = f"http://127.0.0.1:{api.port}"
    settings_ = api.harness.settings.model_copy(update={"gateway": GatewaySettings(worker_url=url)})

    async def find() -> UpstreamUrls:
        return UpstreamUrls(dsn, url)

    async def approve(_: Any) -> None:
        return None

    listening = bind("127.0.0.1", 0)
    async with opened(settings_, find, approve) as startup:
        assert await startup._check_all(), startup.checks
        async with serving(application(startup), listening):
            yield listening.getsockname()[1]
