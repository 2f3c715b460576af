"""A request: one request for a page, or one form that was sent, by somebody who is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from cograil.app_registry import NavigationEntry
from cograil.http.auth.authentication import KeyAuthenticator
from cograil.http.server.dispatcher import ApiContext, Call
from cograil.http.server.problem_details import Refusal
from cograil.http.server.routing import Router
from cograil.ui.browser_sessions import Session, SessionRing, Sessions, read_form

HTML = "text/html"


@dataclass(slots=True)
class PageContext(ApiContext):
    """What is behind the door of the pages; `entries` are of the apps that are enabled."""

    sessions: Sessions = field(kw_only=True)
    entries: tuple[NavigationEntry, ...] = field(default=(), kw_only=True)


PageRequest = Call[PageContext]


def make_page_context(instance: ApiContext, entries: tuple[NavigationEntry, ...] = ()) -> PageContext:
    """The same as behind the API, but people are known by their sessions too."""
    sessions = Sessions(instance.cursors.secret_for("sessions of pages"))
    facts: dict[str, Any] = {one.name: getattr(instance, one.name) for one in fields(instance)}
    ring = SessionRing(cast(KeyAuthenticator, instance.keys), sessions)
    return PageContext(**facts | {"keys": ring, "sessions": sessions, "entries": entries})


def as_call(request: PageRequest) -> Call:
    """For what serves the API."""
    return cast("Call", request)


def session_of(request: PageRequest) -> Session | None:
    """The session of a request, known to be ours."""
    found = request.context.sessions.read(request.headers)
    if found is None or found.key_id != request.caller.key_id:
        return None
    is_known = bool(found.key_id) or request.context.sessions.is_ours(found)
    return found if is_known else None


async def sent_form(request: PageRequest) -> Mapping[str, str]:
    """The fields of the form that was sent. Raises Refusal for one that is not of this session."""
    form = await read_form(request.receive, request.headers)
    require_token(request, form.get("token", ""))
    return form


def require_token(request: PageRequest, token: str) -> None:
    """Raises Refusal for a token that a page of this session does not have."""
    session = session_of(request)
    if session is None or not request.context.sessions.is_token(session, token):
        raise Refusal(
            403, "stale_form", "this form is of another session; go back, reload the page, try again"
        )


def pages(tag: str) -> Router:
    """A table of pages."""
    return Router(tag, prefix="/ui")
