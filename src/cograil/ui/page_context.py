"""A visit: one request for a page, or one form that was sent, by somebody who is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from cograil.app_registry import NavigationEntry
from cograil.http.auth.authentication import KeyRing
from cograil.http.server.dispatcher import Call, Instance
from cograil.http.server.problem_details import Refusal
from cograil.http.server.routing import Table
from cograil.ui.browser_sessions import Session, SessionRing, Sessions, read_form

HTML = "text/html"


@dataclass(slots=True)
class PageInstance(Instance):
    """What is behind the door of the pages; `entries` are of the apps that are enabled."""

    sessions: Sessions = field(kw_only=True)
    entries: tuple[NavigationEntry, ...] = field(default=(), kw_only=True)


Visit = Call[PageInstance]


def behind_pages(instance: Instance, entries: tuple[NavigationEntry, ...] = ()) -> PageInstance:
    """The same as behind the API, but people are known by their sessions too."""
    sessions = Sessions(instance.cursors.secret_for("sessions of pages"))
    facts: dict[str, Any] = {one.name: getattr(instance, one.name) for one in fields(instance)}
    ring = SessionRing(cast(KeyRing, instance.keys), sessions)
    return PageInstance(**facts | {"keys": ring, "sessions": sessions, "entries": entries})


def as_call(visit: Visit) -> Call:
    """For what serves the API."""
    return cast("Call", visit)


def session_of(visit: Visit) -> Session | None:
    """The session of a visit, known to be ours."""
    found = visit.instance.sessions.read(visit.headers)
    if found is None or found.key_id != visit.caller.key_id:
        return None
    is_known = bool(found.key_id) or visit.instance.sessions.is_ours(found)
    return found if is_known else None


async def sent_form(visit: Visit) -> Mapping[str, str]:
    """The fields of the form that was sent. Raises Refusal for one that is not of this session."""
    form = await read_form(visit.receive, visit.headers)
    require_token(visit, form.get("token", ""))
    return form


def require_token(visit: Visit, token: str) -> None:
    """Raises Refusal for a token that a page of this session does not have."""
    session = session_of(visit)
    if session is None or not visit.instance.sessions.is_token(session, token):
        raise Refusal(
            403, "stale_form", "this form is of another session; go back, reload the page, try again"
        )


def pages(tag: str) -> Table:
    """A table of pages."""
    return Table(tag, prefix="/ui")
