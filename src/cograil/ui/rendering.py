"""Pages from templates: what every page has, and how times, durations and values are written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import orjson
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from starlette.responses import Response

from cograil.engine.states import EVENT_TYPES
from cograil.intake.http.problems import plain
from cograil.model.workflow import Json
from cograil.ui.sessions import COOKIE, FLASH, SECONDS, Session, cookie
from cograil.ui.static_files import address_of_file
from cograil.ui.visits import Visit, session_of

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
ALWAYS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
}
LONG_TIME = re.compile(r"\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)(?:\.\d+)?\+00:00")
MOST_SHOWN = 20_000  # characters of a value; the API has all of it


def page(visit: Visit, template: str, *, status: int = 200, **values: Any) -> Response:
    """A page for this visitor."""
    sessions = visit.instance.sessions
    session = session_of(visit)
    kept = session or sessions.begin()
    said = sessions.unsealed(cookie(visit.headers, FLASH))
    text = rendered(
        template,
        caller=visit.caller,
        apps=[one for one in visit.instance.entries if one.is_for(visit.caller)],
        token=sessions.token(kept),
        said=said,
        at=int(datetime.now(UTC).timestamp() * 1000),
        **values,
    )
    response = html(text, status)
    is_safe = visit.headers.get("x-forwarded-proto", "") == "https"
    if session is None:
        keep_session(response, kept, is_safe=is_safe)
    if said:
        response.delete_cookie(FLASH, path="/ui")
    return response


def html(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A text as an answer, with what keeps a page to itself."""
    return Response(text, status, media_type="text/html", headers={**ALWAYS, **(headers or {})})


def keep_session(response: Response, session: Session, *, is_safe: bool) -> None:
    """Let the browser bring this session with every request, and no script see it."""
    value = f"{session.text}.{session.signature}"
    response.set_cookie(
        COOKIE, value, max_age=SECONDS, path="/ui", httponly=True, samesite="lax", secure=is_safe
    )


def gone_to(visit: Visit, place: str, said: str = "") -> Response:
    """After a form: the page to look at now, which says what was done."""
    response = Response(status_code=303, headers={"Location": place, **ALWAYS})
    if said:
        response.set_cookie(
            FLASH,
            visit.instance.sessions.sealed(said[:150]),
            max_age=30,
            path="/ui",
            httponly=True,
            samesite="lax",
        )
    return response


def rendered(template: str, **values: Any) -> str:
    """The text of a template."""
    return environment().get_template(template).render(**values)


@cache
def environment() -> Environment:
    """Where templates come from. What is no markup is escaped."""
    found = Environment(
        loader=PackageLoader("cograil.ui", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "moment": moment,
        "span": span,
        "between": between,
        "since": since,
        "pretty": pretty,
        "data": data,
        "number": number,
        "plain": plain,
        "share": share,
        "unhinted": unhinted,
        "coded": coded,
    }
    found.globals["file"] = address_of_file
    found.globals["event_types"] = ",".join(EVENT_TYPES)
    return found


def moment(at: datetime | None) -> Markup | str:
    """A time, which the page tells as long ago as it is."""
    if at is None:
        return "—"
    told = at.astimezone(UTC)
    exact = told.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        told.isoformat(timespec="milliseconds"), exact, exact
    )


def span(seconds: float | timedelta | None) -> str:
    """A duration in the two units that matter."""
    if seconds is None:
        return "—"
    left = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    if left < 1:
        return f"{max(0.0, left) * 1000:.0f} ms"
    if left < 60:
        return f"{left:.1f} s"
    minutes, rest = divmod(round(left), 60)
    if minutes < 60:
        return f"{minutes} m {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} m" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def between(first: datetime | None, last: datetime | None) -> str:
    """How long it took, or takes until now."""
    if first is None:
        return "—"
    return span((last or datetime.now(UTC)) - first)


def since(at: datetime, first: datetime) -> Markup:
    """How long after the first this was: in a history all is about as long ago."""
    exact = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return Markup('<span class="nowrap" title="{} UTC">+{}</span>').format(exact, span(at - first))


def pretty(value: Json, most: int = MOST_SHOWN) -> str:
    """A value as people read it; a long one is cut, and says so."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()
    return text if len(text) <= most else text[:most] + f"\n… and {len(text) - most:,} characters more"


def data(value: Json) -> Markup:
    """A value for a script to read, in a block of a page that is no code."""
    text = orjson.dumps(value, option=orjson.OPT_UTC_Z, default=str).decode()
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def number(value: float | None) -> str:
    """A count with its thousands apart."""
    return "—" if value is None else f"{value:,.0f}"


def share(value: float | None) -> str:
    """A share of one, in percent."""
    return "—" if value is None else f"{value * 100:.1f} %"


def unhinted(message: str) -> str:
    """What a blocker says, without the command that the page has a button for, and with shorter times."""
    return LONG_TIME.sub(r"\1 UTC", message.partition("; `cograil ")[0])


def coded(text: str) -> Markup:
    """A text in which what stands between backticks is code."""
    parts = text.split("`")
    whole = Markup("<code>{}</code>")
    return Markup("").join(whole.format(part) if place % 2 else part for place, part in enumerate(parts))
