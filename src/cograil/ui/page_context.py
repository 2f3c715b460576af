"""The context and the request of a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from cograil.app_registry import NavigationEntry
from cograil.http.auth.authentication import KeyAuthenticator
from cograil.http.server.dispatcher import ApiContext, Call
from cograil.http.server.problem_details import Refusal
from cograil.http.server.routing import Router
from cograil.ui.browser_sessions import BrowserSession, SessionRing, Sessions, read_form

HTML = "text/html"


@dataclass(slots=True)
class PageContext(ApiContext):
    """What the pages need; `entries` are the menu entries of the enabled apps."""

    sessions: Sessions = field(kw_only=True)
    entries: tuple[NavigationEntry, ...] = field(default=(), kw_only=True)


PageRequest = Call[PageContext]


def make_page_context(instance: ApiContext, entries: tuple[NavigationEntry, ...] = ()) -> PageContext:
    """Return the context of the API, with authentication by sessions."""
    sessions = Sessions(instance.cursors.secret_for("sessions of pages"))
    values: dict[str, Any] = {
        attribute.name: getattr(instance, attribute.name) for attribute in fields(instance)
    }
    ring = SessionRing(cast(KeyAuthenticator, instance.keys), sessions)
    return PageContext(**values | {"keys": ring, "sessions": sessions, "entries": entries})


def as_call(request: PageRequest) -> Call:
    """Return the request as a call of an API route."""
    return cast("Call", request)


def session_of(request: PageRequest) -> BrowserSession | None:
    """Return the verified session of a request."""
    session = request.context.sessions.read(request.headers)
    if session is None or session.key_id != request.caller.key_id:
        return None
    is_known = bool(session.key_id) or request.context.sessions.is_ours(session)
    return session if is_known else None


async def sent_form(request: PageRequest) -> Mapping[str, str]:
    """Return the fields of a form. Raises Refusal for a form of another session."""
    form = await read_form(request.receive, request.headers)
    require_token(request, form.get("token", ""))
    return form


def require_token(request: PageRequest, token: str) -> None:
    """Raise Refusal for an invalid CSRF token."""
    session = session_of(request)
    if session is None or not request.context.sessions.is_token(session, token):
        raise Refusal(
            403, "stale_form", "this form is of another session; go back, reload the page, try again"
        )


def pages(tag: str) -> Router:
    """Return a router for pages."""
    return Router(tag, prefix="/ui")
