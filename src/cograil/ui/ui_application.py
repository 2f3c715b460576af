"""The application of the pages, and the paths that need no key: login, logout, static files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, quote

import structlog
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cograil.app_registry import NavigationEntry
from cograil.errors import CograilError
from cograil.http.auth.client_address import client_address, reject_foreign_origin
from cograil.http.server import problem_details, request_limits
from cograil.http.server.dispatcher import DATABASE_UNAVAILABLE, ApiContext, Dispatcher
from cograil.http.server.headers import request_headers
from cograil.http.server.problem_details import Refusal
from cograil.http.server.routing import Router
from cograil.model.ids import new_id
from cograil.model.roles import LADDER, Caller
from cograil.store.database import LOST
from cograil.ui.app_pages import app_pages, disabled_app_pages
from cograil.ui.browser_sessions import COOKIE, BrowserSession, SessionRing, read_form
from cograil.ui.page_context import PageContext, make_page_context
from cograil.ui.pages import ROUTERS
from cograil.ui.rendering import ALWAYS, html, keep_session, rendered
from cograil.ui.static_files import PREFIX, serve_file

log = structlog.get_logger("pages")

HOME, LOGIN, LOGOUT = "/ui/", "/ui/login", "/ui/logout"
MOVED = {"/docs": "/ui/docs", "/openapi.json": "/api/v1/openapi.json"}  # common addresses of these pages
REQUEST: ContextVar[Scope] = ContextVar("request")  # the error renderer gets no scope


def page_apps(instance: ApiContext) -> Mapping[str, ASGIApp]:
    """Return the application of the pages, by path prefix; `/` redirects to the dashboard."""
    apps = app_pages(instance.settings)
    context = make_page_context(instance, tuple(app.entry for app in apps))
    pages = Pages(context, [*(app.table for app in apps), *disabled_app_pages(instance.settings)])
    return {path: pages for path in ("/ui", "/", *MOVED)}


class Pages:
    """The application that serves the pages."""

    def __init__(self, instance: PageContext, of_apps: Sequence[Router]) -> None:
        self._instance = instance
        self._dispatcher: Dispatcher[PageContext] = Dispatcher(
            instance, [*ROUTERS, *of_apps], self._render_error
        )
        self._proxies = instance.settings.server.trusted_networks()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._dispatcher(scope, receive, send)
            return
        REQUEST.set(scope)
        try:
            request_limits.check_framing(scope)
            response = await self._open(scope, receive)
        except Refusal as refusal:
            response = self._render_error(refusal, new_id())
        except CograilError as error:
            response = self._render_error(problem_details.refusal_of(error), new_id())
        except LOST as error:
            log.warning("database connection lost", path=scope["path"], error=str(error))
            response = self._render_error(DATABASE_UNAVAILABLE, new_id())
        if response is None and not self._dispatcher.serves(scope["method"], scope["path"]):
            await self._note_caller(scope)
        await (response or self._dispatcher)(scope, receive, send)

    async def _note_caller(self, scope: Scope) -> None:
        """Record the caller for the 404 page, which has the menu of the caller."""
        headers = request_headers(scope)
        with suppress(Refusal, CograilError, *LOST):
            caller = await self._instance.keys.caller(headers, client_address(scope, headers, self._proxies))
            if not caller.key_id:
                reject_foreign_origin(headers, self._instance.settings.host)
            scope["cograil.caller"] = caller

    def _render_error(self, refusal: Refusal, request_id: str) -> Response:
        return render_error(refusal, request_id, self._instance.entries)

    async def _open(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the response of a path that needs no key, or None."""
        path, method, headers = scope["path"], scope["method"], request_headers(scope)
        if path == HOME.rstrip("/"):
            return Response(status_code=308, headers={"Location": HOME})
        if path in MOVED:
            return Response(status_code=307, headers={"Location": MOVED[path]})
        if path == "/":  # temporary: another program may use this port later
            return Response(status_code=307, headers={"Location": HOME})
        if path.startswith(PREFIX) and method in ("GET", "HEAD"):
            return serve_file(path, headers)
        if path == LOGIN:
            return await self._login(scope, receive, headers)
        if path == LOGOUT and method == "POST":
            return await self._logout(receive, headers)
        return None

    # -- login and logout ---------------------------------------------------------------------------------

    async def _login(self, scope: Scope, receive: Receive, headers: Headers) -> Response | None:
        if scope["method"] in ("GET", "HEAD"):
            target = parse_qs(scope["query_string"].decode("ascii", "replace")).get("next", [HOME])[0]
            return self._login_page(headers, _local_path(target))
        if scope["method"] != "POST":
            return None
        form = await read_form(receive, headers)
        target = _local_path(form.get("next", HOME))
        self._check_token(headers, form.get("token", ""))
        try:
            key_id, proof = await self._authenticate(scope, headers, form.get("key", ""))
        except Refusal as refusal:
            return self._login_page(headers, target, refusal)
        response = Response(status_code=303, headers={"Location": target, **ALWAYS})
        keep_session(response, self._instance.sessions.begin(key_id, proof), is_safe=_is_safe(headers))
        return response

    async def _authenticate(self, scope: Scope, headers: Headers, key: str) -> tuple[str, bytes]:
        """Return the id and the hash of the key. Raises Refusal for an invalid key, or after too many of them."""
        keys = self._instance.keys
        assert isinstance(keys, SessionRing)
        key_headers = Headers(
            {"authorization": f"Bearer {key.strip()}"} if _is_plain(key) else {"authorization": "-"}
        )
        caller = await keys.ring.caller(key_headers, client_address(scope, headers, self._proxies))
        if caller.role not in LADDER:
            raise Refusal(403, "forbidden", f"a key with the role {caller.role} has no access to the pages")
        holder = await keys.ring.holder(caller.key_id)
        if holder is None:
            raise Refusal(401, "unauthenticated", "the key is no longer valid")
        return caller.key_id, holder[1]

    def _login_page(self, headers: Headers, target: str, refusal: Refusal | None = None) -> Response:
        sessions = self._instance.sessions
        session = self._anonymous_session(headers)
        current = session or sessions.begin()
        status = 200 if refusal is None else refusal.status
        wrong = None
        if refusal is not None:
            wrong = "This key is not known here." if refusal.status == 401 else refusal.detail
        response = html(
            rendered("login.html", token=sessions.token(current), next=target, wrong=wrong), status
        )
        if session is None:
            keep_session(response, current, is_safe=_is_safe(headers))
        return response

    def _anonymous_session(self, headers: Headers) -> BrowserSession | None:
        """Return the valid session of a visitor who is not logged in."""
        session = self._instance.sessions.read(headers)
        is_ours = session is not None and not session.key_id and self._instance.sessions.is_ours(session)
        return session if is_ours else None

    def _check_token(self, headers: Headers, token: str) -> None:
        session = self._instance.sessions.read(headers)
        if session is None or not self._instance.sessions.is_token(session, token):
            raise Refusal(403, "stale_form", "this form is too old; go back, reload the page, try again")

    async def _logout(self, receive: Receive, headers: Headers) -> Response:
        form = await read_form(receive, headers)
        self._check_token(headers, form.get("token", ""))
        response = Response(status_code=303, headers={"Location": LOGIN, **ALWAYS})
        response.delete_cookie(COOKIE, path="/ui")
        return response


def _is_plain(key: str) -> bool:
    return key.strip().isascii() and key.strip().isprintable()


def _is_safe(headers: Headers) -> bool:
    return headers.get("x-forwarded-proto", "") == "https"


def _local_path(path: str) -> str:
    """Return this path if it is one of cograil's pages, else the dashboard: no open redirect."""
    is_own = path.startswith(HOME) and path.isprintable() and "\\" not in path and "//" not in path
    return path if is_own else HOME


def render_error(refusal: Refusal, request_id: str, entries: Sequence[NavigationEntry] = ()) -> Response:
    """Return an error as a page, as a redirect to the login, or as a problem for a script."""
    scope = REQUEST.get()
    headers = request_headers(scope)
    if "text/html" not in headers.get("accept", ""):
        return problem_details.answer(refusal, request_id)
    if refusal.status == 401:
        query = scope["query_string"].decode("ascii", "replace")
        target = scope["path"] + (f"?{query}" if query else "")
        location = (
            LOGIN if scope["method"] != "GET" or target == HOME else f"{LOGIN}?next={quote(target, safe='/')}"
        )
        return Response(status_code=303, headers={"Location": location, **ALWAYS})
    caller: Caller | None = scope.get("cograil.caller")
    context: dict[str, Any] = {}
    if caller is not None:  # the menu of the caller
        context = {"caller": caller, "apps": [entry for entry in entries if entry.is_for(caller)]}
    text = rendered(
        "404.html" if refusal.status == 404 else "error.html",
        status=refusal.status,
        phrase=HTTPStatus(refusal.status).phrase,
        detail=refusal.detail,
        problems=[(problem.pointer, problem.message) for problem in refusal.problems],
        request_id=request_id,
        place=scope["path"],
        is_form=scope["method"] == "POST",
        **context,
    )
    return html(text, refusal.status, refusal.headers)
