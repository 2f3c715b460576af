"""The `http` node: one request. The engine sees a task of the handler `http`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

from cograil.definitions.diagnostics import child
from cograil.definitions.mapping_reader import MISSING, MappingReader
from cograil.definitions.template_collector import TemplateCollector
from cograil.model.workflow import Json, WorkflowNode
from cograil.strict_json import kind_of

HANDLER = "http"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
SCHEMES = ("http://", "https://")
ANY_SUCCESS = "2xx"

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # characters that would end a header; a tab does not
_NOT_IN_URL = re.compile(r"[\x00-\x20\x7f\\]")
_STATUS_CLASS = re.compile(r"[1-5]xx")


def read_http(node: WorkflowNode, parent: MappingReader, templates: TemplateCollector) -> WorkflowNode:
    """Return the node as a task whose params are the request, always with method and expect_status."""
    node = replace(node, handler=HANDLER)
    if not parent.require("http", "give the url"):
        return node
    keys = MappingReader.of(parent.get("http"), parent.at("http"), parent.diagnostics)
    keys.require("url", "give the url of the request")
    request = {
        "method": keys.choice("method", METHODS, "GET"),
        "url": _read_url(keys),
        "headers": _read_headers(keys),
        "body": keys.get("body"),
        "expect_status": list(_read_statuses(keys)),
    }
    keys.close()
    params = {key: value for key, value in request.items() if value is not MISSING}
    return replace(node, params=templates.template(node.node_id, params, keys.pointer))


def _read_url(keys: MappingReader) -> Json:
    """Return the url, checked as far as possible before it is rendered."""
    url = keys.filled("url")
    if url is None:
        return MISSING
    before, hole, _ = url.partition("{{")
    begun = before.lower()
    if not any(begun.startswith(scheme) or (hole and scheme.startswith(begun)) for scheme in SCHEMES):
        message = f"url must begin with http:// or https://, not {url[:80]!r}"
        keys.diagnostics.add("invalid_value", message, keys.at("url"))
    elif not hole and (problem := _url_problem(url)):
        keys.diagnostics.add("invalid_value", f"url {problem}: {url[:80]!r}", keys.at("url"))
    return url


def _url_problem(url: str) -> str | None:
    """Return the problem of a url without templates; None when it is valid."""
    if _NOT_IN_URL.search(url):
        return "contains a space, a backslash or a control character"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"cannot be read ({error})"
    if not host:
        return "has no host"
    return "must not contain a user or password; use a header" if "@" in parts.netloc else None


def _read_headers(keys: MappingReader) -> Json:
    """Return the valid headers; MISSING without any."""
    headers = keys.section("headers")
    if headers is None:
        return MISSING
    return {name: value for name, value, pointer in headers.items() if _is_header(name, value, pointer, keys)}


def _is_header(name: str, value: Json, pointer: str, keys: MappingReader) -> bool:
    if not _HEADER_NAME.fullmatch(name):
        message = f"{name[:80]!r} is not a valid header name; use letters, digits and !#$%&'*+.^_`|~-"
        keys.diagnostics.add("invalid_value", message, pointer, at_key=True)
    if not isinstance(value, str):
        message = f"a header must be a string, not {kind_of(value)}; quote it"
        keys.diagnostics.add("invalid_type", message, pointer)
        return False
    if "{{" not in value and _CONTROL.search(value):
        keys.diagnostics.add(
            "invalid_value", "a header must not contain line breaks or control characters", pointer
        )
    return True


def _read_statuses(keys: MappingReader) -> Iterator[Json]:
    """Yield the statuses that count as success: codes, or classes such as 2xx."""
    value, pointer = keys.get("expect_status"), keys.at("expect_status")
    if value is MISSING:
        yield ANY_SUCCESS
    elif not isinstance(value, list):
        _check_status(value, pointer, keys)
        yield value
    else:
        if not value:
            message = "expect_status is empty; add a status or remove the key"
            keys.diagnostics.add("invalid_value", message, pointer)
        for index, status in enumerate(value):
            _check_status(status, child(pointer, index), keys)
            yield status


def _check_status(status: Json, pointer: str, keys: MappingReader) -> None:
    is_code = isinstance(status, int) and not isinstance(status, bool)
    if (is_code and 100 <= status <= 599) or (isinstance(status, str) and _STATUS_CLASS.fullmatch(status)):
        return
    preview = repr(status)[:80] if is_code or isinstance(status, str) else kind_of(status)
    message = f"expect_status must be a code from 100 to 599 or a class such as 2xx, not {preview}"
    keys.diagnostics.add(
        "invalid_value" if is_code or isinstance(status, str) else "invalid_type", message, pointer
    )
