"""`http`: one request. The engine sees a task of the handler `http`, whose params are the request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

from cograil.definitions.diagnostics import child
from cograil.definitions.mapping_reader import MISSING, MappingReader
from cograil.definitions.template_collector import TemplateCollector
from cograil.model.workflow import Json, Node
from cograil.strict_json import kind_of

HANDLER = "http"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
SCHEMES = ("http://", "https://")
ANY_SUCCESS = "2xx"

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # what would end a header; a tab would not
_NOT_IN_URL = re.compile(r"[\x00-\x20\x7f\\]")
_STATUS_CLASS = re.compile(r"[1-5]xx")


def read_http(node: Node, above: MappingReader, holes: TemplateCollector) -> Node:
    """The node as a task: its params are the request, with method and expect_status always given."""
    node = replace(node, handler=HANDLER)
    if not above.require("http", "give the url"):
        return node
    keys = MappingReader.of(above.get("http"), above.at("http"), above.report)
    keys.require("url", "say where the request goes")
    request = {
        "method": keys.choice("method", METHODS, "GET"),
        "url": _read_url(keys),
        "headers": _read_headers(keys),
        "body": keys.get("body"),
        "expect_status": list(_read_statuses(keys)),
    }
    keys.close()
    given = {key: value for key, value in request.items() if value is not MISSING}
    return replace(node, params=holes.template(node.node_id, given, keys.pointer))


def _read_url(keys: MappingReader) -> Json:
    """A url, as far as it is known before it is rendered."""
    url = keys.filled("url")
    if url is None:
        return MISSING
    before, hole, _ = url.partition("{{")
    begun = before.lower()
    if not any(begun.startswith(scheme) or (hole and scheme.startswith(begun)) for scheme in SCHEMES):
        message = f"url must begin with http:// or https://, not {url[:80]!r}"
        keys.report.add("invalid_value", message, keys.at("url"))
    elif not hole and (flaw := _flaw_of(url)):
        keys.report.add("invalid_value", f"url {flaw}: {url[:80]!r}", keys.at("url"))
    return url


def _flaw_of(url: str) -> str | None:
    """What is wrong with a url that has no holes."""
    if _NOT_IN_URL.search(url):
        return "has a blank, a backslash or a control character in it"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"cannot be read ({error})"
    if not host:
        return "names no host"
    return "must not hold a user or password; send a header" if "@" in parts.netloc else None


def _read_headers(keys: MappingReader) -> Json:
    """The headers that can be sent; MISSING without any."""
    headers = keys.section("headers")
    if headers is None:
        return MISSING
    return {name: value for name, value, pointer in headers.items() if _is_header(name, value, pointer, keys)}


def _is_header(name: str, value: Json, pointer: str, keys: MappingReader) -> bool:
    if not _HEADER_NAME.fullmatch(name):
        message = f"{name[:80]!r} cannot be the name of a header: letters, digits and !#$%&'*+.^_`|~- only"
        keys.report.add("invalid_value", message, pointer, at_key=True)
    if not isinstance(value, str):
        message = f"a header must be a string, not {kind_of(value)}; quote it"
        keys.report.add("invalid_type", message, pointer)
        return False
    if "{{" not in value and _CONTROL.search(value):
        keys.report.add("invalid_value", "a header is one line, without control characters", pointer)
    return True


def _read_statuses(keys: MappingReader) -> Iterator[Json]:
    """What counts as success: codes, classes such as 2xx, or a single one of them."""
    value, pointer = keys.get("expect_status"), keys.at("expect_status")
    if value is MISSING:
        yield ANY_SUCCESS
    elif not isinstance(value, list):
        _check_status(value, pointer, keys)
        yield value
    else:
        if not value:
            message = "expect_status is empty; name a status or remove the key"
            keys.report.add("invalid_value", message, pointer)
        for index, status in enumerate(value):
            _check_status(status, child(pointer, index), keys)
            yield status


def _check_status(status: Json, pointer: str, keys: MappingReader) -> None:
    is_code = isinstance(status, int) and not isinstance(status, bool)
    if (is_code and 100 <= status <= 599) or (isinstance(status, str) and _STATUS_CLASS.fullmatch(status)):
        return
    shown = repr(status)[:80] if is_code or isinstance(status, str) else kind_of(status)
    message = f"expect_status takes codes from 100 to 599 and classes such as 2xx, not {shown}"
    keys.report.add(
        "invalid_value" if is_code or isinstance(status, str) else "invalid_type", message, pointer
    )
