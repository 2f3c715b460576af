"""The table of routes: what is served, to whom, what it takes and what it answers.

A route is declared once. The door serves it, the OpenAPI document describes it, and the matrix of roles
is tested from it; a route that says nothing of who may call it cannot be declared.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from starlette.responses import Response

from cograil.model.roles import ROLES, Role

if TYPE_CHECKING:
    from cograil.http.server.dispatcher import Call

Serve = Callable[["Call[Any]"], Awaitable[Response]]
MAX_BODY = 1024 * 1024
SOCKET = "WEBSOCKET"  # instead of a method


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route."""

    method: str
    path: str
    requires: tuple[Role, ...]
    serve: Serve
    body: type[BaseModel] | None = None
    takes: type[BaseModel] | None = None  # the shape of the body, where its model reads it in its own way
    query: type[BaseModel] | None = None
    answers: Mapping[int, str] = field(default_factory=dict)  # what each status means
    gives: Any = None  # the shape of what is answered, or one for each status; `str` for what is no JSON
    reports: tuple[int, ...] = ()  # of 400 and more, what is answered with that shape, or with a problem
    heeds: tuple[str, ...] = ()  # headers that mean something here, beside those that always do
    max_body: int = MAX_BODY
    is_body_optional: bool = False
    is_any_type: bool = False  # a body is read as JSON, whatever it says of itself
    is_type_optional: bool = False  # a body without a Content-Type is read as JSON
    is_stream: bool = False  # answers as long as the caller listens
    is_quick: bool = False  # answers though the database does not
    media_type: str = "application/json"  # of what is answered
    tag: str = ""

    @property
    def operation(self) -> str:
        """Its name for programs: what serves it, and where that serves several paths."""
        return f"{self.serve.__name__}{self.prefix_word}"

    @property
    def prefix_word(self) -> str:
        """What tells it from the same function under another prefix."""
        is_plain = self.path.startswith(("/api/v1/", "/health"))
        return "" if is_plain else "_" + self.path.strip("/").split("/")[1]

    def shape(self, status: int) -> Any:
        """What is answered with this status, as a type; None for any object."""
        return self.gives.get(status) if isinstance(self.gives, Mapping) else self.gives

    @property
    def summary(self) -> str:
        """The first sentence of what serves it."""
        return (self.serve.__doc__ or "").strip().split("\n")[0].rstrip(".")


class Table:
    """The routes of one part of the API, under a common prefix."""

    def __init__(self, tag: str, prefix: str = "/api/v1") -> None:
        self.tag = tag
        self.prefix = prefix
        self.endpoints: list[Endpoint] = []
        self.sockets: list[Endpoint] = []

    def route(self, method: str, path: str, *requires: Role, **facts: Any) -> Callable[[Serve], Serve]:
        """Declare that a function serves this path. Raises ValueError without the roles that may call it."""
        if not requires or not set(requires) <= set(ROLES):
            raise ValueError(f"{method} {path}: a route names the roles that may call it")

        def declare(serve: Serve) -> Serve:
            endpoint = Endpoint(method, self.prefix + path, requires, serve, tag=self.tag, **facts)
            self.endpoints.append(endpoint)
            return serve

        return declare

    def socket(self, path: str, *requires: Role, **facts: Any) -> Callable[[Serve], Serve]:
        """Declare a WebSocket; OpenAPI has no word for it. Raises ValueError as `route` does."""
        if not requires or not set(requires) <= set(ROLES):
            raise ValueError(f"socket {path}: a route names the roles that may call it")

        def declare(serve: Serve) -> Serve:
            facts.setdefault("is_stream", True)
            endpoint = Endpoint(SOCKET, self.prefix + path, requires, serve, tag=self.tag, **facts)
            self.sockets.append(endpoint)
            return serve

        return declare

    def get(self, path: str, *requires: Role, **facts: Any) -> Callable[[Serve], Serve]:
        """Declare a GET."""
        return self.route("GET", path, *requires, **facts)

    def post(self, path: str, *requires: Role, **facts: Any) -> Callable[[Serve], Serve]:
        """Declare a POST."""
        return self.route("POST", path, *requires, **facts)

    def patch(self, path: str, *requires: Role, **facts: Any) -> Callable[[Serve], Serve]:
        """Declare a PATCH."""
        return self.route("PATCH", path, *requires, **facts)

    def delete(self, path: str, *requires: Role, **facts: Any) -> Callable[[Serve], Serve]:
        """Declare a DELETE."""
        return self.route("DELETE", path, *requires, **facts)
