"""Route declarations: path, allowed roles, request and response models.

A route is declared once. The dispatcher serves it, the OpenAPI document describes it, and the tests check
every role against it. A route without roles cannot be declared.
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
SOCKET = "WEBSOCKET"  # stands in the place of a method


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route."""

    method: str
    path: str
    requires: tuple[Role, ...]
    serve: Serve
    body: type[BaseModel] | None = None
    request_model: type[BaseModel] | None = None  # documented instead of `body`, if that parses by itself
    query: type[BaseModel] | None = None
    responses: Mapping[int, str] = field(default_factory=dict)  # the description of each status
    response_model: Any = None  # the type of the response, or a type for each status; `str` for plain text
    error_models: tuple[int, ...] = ()  # statuses >= 400 that are sent as `response_model` or as a problem
    headers: tuple[str, ...] = ()  # request headers that this route reads, besides the common ones
    max_body: int = MAX_BODY
    is_body_optional: bool = False
    is_any_type: bool = False  # parse the body as JSON whatever its Content-Type
    is_type_optional: bool = False  # parse a body without a Content-Type as JSON
    is_stream: bool = False  # the response lasts as long as the client is connected
    allows_stale_auth: bool = False  # responds while the database is down, with a cached key
    media_type: str = "application/json"  # of the response
    tag: str = ""

    @property
    def operation(self) -> str:
        """The operation id: the name of the function, with the prefix of the path unless it is the API's."""
        return f"{self.serve.__name__}{self.prefix_word}"

    @property
    def prefix_word(self) -> str:
        """The suffix that separates one function under two path prefixes; empty for the API itself."""
        is_plain = self.path.startswith(("/api/v1/", "/health"))
        return "" if is_plain else "_" + self.path.strip("/").split("/")[1]

    def model_of(self, status: int) -> Any:
        """Return the type of the response with this status; None means any object."""
        models = self.response_model
        return models.get(status) if isinstance(models, Mapping) else models

    @property
    def summary(self) -> str:
        """The first line of the docstring of the function, without the final period."""
        return (self.serve.__doc__ or "").strip().split("\n")[0].rstrip(".")


class Router:
    """The routes of one part of the API, under a common prefix."""

    def __init__(self, tag: str, prefix: str = "/api/v1") -> None:
        self.tag = tag
        self.prefix = prefix
        self.endpoints: list[Endpoint] = []
        self.sockets: list[Endpoint] = []

    def route(self, method: str, path: str, *requires: Role, **options: Any) -> Callable[[Serve], Serve]:
        """Declare a route. Raises ValueError when no role, or an unknown role, may call it."""
        if not requires or not set(requires) <= set(ROLES):
            raise ValueError(f"{method} {path}: a route must name the roles that may call it")

        def declare(serve: Serve) -> Serve:
            endpoint = Endpoint(method, self.prefix + path, requires, serve, tag=self.tag, **options)
            self.endpoints.append(endpoint)
            return serve

        return declare

    def socket(self, path: str, *requires: Role, **options: Any) -> Callable[[Serve], Serve]:
        """Declare a WebSocket route; OpenAPI cannot describe it. Raises ValueError as `route` does."""
        if not requires or not set(requires) <= set(ROLES):
            raise ValueError(f"socket {path}: a route must name the roles that may call it")

        def declare(serve: Serve) -> Serve:
            options.setdefault("is_stream", True)
            endpoint = Endpoint(SOCKET, self.prefix + path, requires, serve, tag=self.tag, **options)
            self.sockets.append(endpoint)
            return serve

        return declare

    def get(self, path: str, *requires: Role, **options: Any) -> Callable[[Serve], Serve]:
        """Declare a GET route."""
        return self.route("GET", path, *requires, **options)

    def post(self, path: str, *requires: Role, **options: Any) -> Callable[[Serve], Serve]:
        """Declare a POST route."""
        return self.route("POST", path, *requires, **options)

    def patch(self, path: str, *requires: Role, **options: Any) -> Callable[[Serve], Serve]:
        """Declare a PATCH route."""
        return self.route("PATCH", path, *requires, **options)

    def delete(self, path: str, *requires: Role, **options: Any) -> Callable[[Serve], Serve]:
        """Declare a DELETE route."""
        return self.route("DELETE", path, *requires, **options)
