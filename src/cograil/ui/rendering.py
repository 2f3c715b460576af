"""Renders pages from templates: common values and filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import orjson
from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup
from starlette.responses import Response

from cograil import clock
from cograil.app_registry import installed_apps
from cograil.http.server.problem_details import plain
from cograil.model.states import EVENT_TYPES
from cograil.model.workflow import Json
from cograil.ui import times
from cograil.ui.browser_sessions import COOKIE, FLASH, SECONDS, BrowserSession, cookie
from cograil.ui.event_text import event_summary, log_fields
from cograil.ui.json_tree import json_tree
from cograil.ui.page_context import PageRequest, session_of
from cograil.ui.static_files import address_of_file

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
WAITING_NAMES = {
    "approval": "for approval",
    "timer": "for a timer",
    "retry": "for a retry",
    "start": "for its start time",
}
MAX_SHOWN = 20_000  # characters of a value; the API returns all of it


def page(request: PageRequest, template: str, *, status: int = 200, **values: Any) -> Response:
    """Return a page for this visitor."""
    sessions = request.context.sessions
    session = session_of(request)
    kept = session or sessions.begin()
    message = sessions.unsealed(cookie(request.headers, FLASH))
    text = rendered(
        template,
        caller=request.caller,
        apps=[entry for entry in request.context.entries if entry.is_for(request.caller)],
        token=sessions.token(kept),
        said=message,
        at=int(clock.now().timestamp() * 1000),
        **values,
    )
    response = html(text, status)
    is_safe = request.headers.get("x-forwarded-proto", "") == "https"
    if session is None:
        keep_session(response, kept, is_safe=is_safe)
    if message:
        response.delete_cookie(FLASH, path="/ui")
    return response


def html(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an HTML response with the security headers."""
    return Response(text, status, media_type="text/html", headers={**ALWAYS, **(headers or {})})


def keep_session(response: Response, session: BrowserSession, *, is_safe: bool) -> None:
    """Set the session cookie; scripts cannot read it."""
    value = f"{session.text}.{session.signature}"
    response.set_cookie(
        COOKIE, value, max_age=SECONDS, path="/ui", httponly=True, samesite="lax", secure=is_safe
    )


def gone_to(request: PageRequest, place: str, message: str = "") -> Response:
    """Return a redirect after a form; the next page shows `message`."""
    response = Response(status_code=303, headers={"Location": place, **ALWAYS})
    if message:
        response.set_cookie(
            FLASH,
            request.context.sessions.sealed(message[:150]),
            max_age=30,
            path="/ui",
            httponly=True,
            samesite="lax",
        )
    return response


def rendered(template: str, **values: Any) -> str:
    """Render a template."""
    return environment().get_template(template).render(**values)


@cache
def environment() -> Environment:
    """Return the template environment. All values except Markup are escaped."""
    packages = ["cograil.ui", *(app.templates for app in installed_apps() if app.templates)]
    jinja = Environment(
        loader=ChoiceLoader([PackageLoader(package, "templates") for package in packages]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {
        **times.FILTERS,
        "pretty": pretty,
        "data": data,
        "number": number,
        "plain": plain,
        "share": share,
        "size": size,
        "detail": detail,
        "unhinted": unhinted,
        "coded": coded,
        "json_tree": json_tree,
        "event_summary": event_summary,
        "log_fields": log_fields,
    }
    jinja.globals["file"] = address_of_file
    jinja.globals["waiting_names"] = WAITING_NAMES
    jinja.globals["event_types"] = ",".join(EVENT_TYPES)
    return jinja


def pretty(value: Json, max_length: int = MAX_SHOWN) -> str:
    """Return a value as indented JSON; a long one is truncated, with a note."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()
    return (
        text
        if len(text) <= max_length
        else text[:max_length] + f"\n… and {len(text) - max_length:,} characters more"
    )


def data(value: Json) -> Markup:
    """Return a value as JSON for a script, in a data block of a page."""
    text = orjson.dumps(value, option=orjson.OPT_UTC_Z, default=str).decode()
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def number(value: float | None) -> str:
    """Return a count with thousands separators."""
    return "—" if value is None else f"{value:,.0f}"


UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """Return a number of bytes in a readable unit."""
    unit = 0
    while abs(count) >= 1024 and unit < len(UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:,.0f} {UNITS[unit]}" if unit == 0 else f"{count:,.1f} {UNITS[unit]}"


MEASURES: dict[str, Callable[[float], str]] = {
    "bytes": size,
    "seconds": times.span,
    "ms": lambda value: f"{value:,.0f} ms",
}


def detail(name: str, value: Json) -> tuple[str, str]:
    """Return a name and a value of a health check; the unit moves from the name to the value."""
    label, _, unit = name.rpartition("_")
    if unit in MEASURES and (value is None or isinstance(value, int | float)):
        return label.replace("_", " "), "—" if value is None else MEASURES[unit](value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return name.replace("_", " "), plain(", ".join(value) or "—", 500)
    text = value if isinstance(value, str) else pretty(value, 500).replace("\n", " ").replace("  ", "")
    return name.replace("_", " "), "—" if value is None else plain(text, 500)


def share(value: float | None) -> str:
    """Return a share in percent."""
    return "—" if value is None else f"{value * 100:.1f} %"


def unhinted(message: str) -> str:
    """Return the message of a blocker without its command: the page has a button for it."""
    return message.partition("; `cograil ")[0]


def coded(text: str) -> Markup:
    """Return a text with the parts between backticks as code."""
    parts = text.split("`")
    whole = Markup("<code>{}</code>")
    return Markup("").join(whole.format(part) if place % 2 else part for place, part in enumerate(parts))
