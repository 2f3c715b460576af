"""Output of commands: data on stdout, messages on stderr, colours on a terminal only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, TextIO

import click
import orjson
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

from cograil.cli.display.formatting import PLAIN_SIGNS, SIGNS, STATE_STYLES, printable
from cograil.model.job import shown_node_status

_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F))}
MAX_LIST, SHOWN_ITEMS = 6, 3  # on a terminal
MAX_RESULT_LINES = 20
PIPE_WIDTH = 100  # of tables that do not go to a terminal


def out() -> Console:
    """Return the console for data, stdout."""
    return _console(sys.stdout)


def err() -> Console:
    """Return the console for messages, stderr."""
    return _console(sys.stderr)


@cache
def _console(stream: TextIO) -> Console:
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def say(message: str, style: str = "") -> None:
    """Print a message on stderr."""
    err().print(Text(message, style=style), soft_wrap=True)


def warn(message: str) -> None:
    """Print a warning on stderr."""
    err().print(Text.assemble(("warning: ", "yellow"), message), soft_wrap=True)


def write_json(value: Any) -> None:
    """Print one JSON document on stdout; timestamps are RFC 3339 in UTC."""
    _write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE))


def write_json_line(value: Any) -> None:
    """Print one JSON document on a single line."""
    _write(orjson.dumps(value, option=orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE))


def render(value: Any, show: str | Callable[[], None], as_json: bool) -> None:
    """Print `value` as JSON, or show it as text: `show` is a message for stderr, or a function that prints."""
    if as_json:
        write_json(value)
    elif isinstance(show, str):
        say(show)
    else:
        show()


def _write(text: bytes) -> None:
    click.echo(text, nl=False)


def show_value(value: Any, max_lines: int | None = None) -> int:
    """Print a JSON value for people and return how many lines were omitted because of `max_lines`.

    On a terminal it has colours and long lists are shortened; elsewhere lists are complete.
    """
    text = format_json(_shorten(value) if out().is_terminal else value, out().width)
    lines = text.split("\n")
    body = Text("\n".join(lines[:max_lines]))
    out().print(JSONHighlighter()(body) if out().is_terminal else body, soft_wrap=True)
    return 0 if max_lines is None else max(0, len(lines) - max_lines)


def show_result(job_id: str, result: Any, *, is_short: bool) -> None:
    """Print the result of a job; if `is_short`, its first lines and the command that prints all of it."""
    omitted = show_value(result, MAX_RESULT_LINES if is_short else None)
    if omitted:
        say(f"... {omitted} more lines: `cograil show {job_id} --result` prints all of it")


def _shorten(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shorten(item) for key, item in value.items()}
    if isinstance(value, list) and len(value) > MAX_LIST:
        return [*map(_shorten, value[:SHOWN_ITEMS]), f"... and {len(value) - SHOWN_ITEMS} more"]
    return [_shorten(item) for item in value] if isinstance(value, list) else value


def format_json(value: Any, width: int, indent: str = "", used: int = 0) -> str:
    """Format as JSON in lines of at most this width, where possible; short values stay on one line."""
    flat = _flat(value)
    if not isinstance(value, dict | list) or not value or len(indent) + used + len(flat) < width:
        return flat
    inner = indent + "  "
    if isinstance(value, dict):
        names = {key: f"{_flat(str(key))}: " for key in value}
        items = [names[key] + format_json(value[key], width, inner, len(names[key]) + 1) for key in value]
    elif any(isinstance(item, dict | list) for item in value):
        items = [format_json(item, width, inner, 1) for item in value]
    else:
        items = _pack([_flat(item) for item in value], width - len(inner) - 1)
    first, last = "{}" if isinstance(value, dict) else "[]"
    body = f",\n{inner}".join(items)
    return f"{first}\n{inner}{body}\n{indent}{last}"


def _pack(items: list[str], width: int) -> list[str]:
    """Put as many short items on a line as fit."""
    lines = [items[0]]
    for item in items[1:]:
        if len(lines[-1]) + len(item) + 2 < width:
            lines[-1] += f", {item}"
        else:
            lines.append(item)
    return lines


def _flat(value: Any) -> str:
    """Format on one line. Control characters that JSON does not escape are escaped here."""
    return json.dumps(value, ensure_ascii=False, default=str).translate(_ESCAPES)


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return an empty table in the common style."""
    rows = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        rows.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return rows


def state(status: str) -> Text:
    """Return a state with its symbol, in its colour."""
    label = f"{sign(status)} {shown_node_status(status)}"
    return Text(label, style=STATE_STYLES.get(status, ""), no_wrap=True)


def sign(status: str) -> str:
    """Return the symbol of a state, in ASCII where the terminal does not support Unicode."""
    signs = SIGNS if (err().encoding or "").lower().startswith("utf") else PLAIN_SIGNS
    return signs.get(status, "?")


def plain(value: Any, style: str = "") -> Text:
    """Return any value as text without control characters."""
    return Text("" if value is None else printable(value), style=style)


def error_line(error: Any) -> str:
    """Return the error of a job or node on one line: its message and code."""
    if not isinstance(error, dict):
        return printable(error)
    code = f" [{error['code']}]" if error.get("code") else ""
    return printable(f"{error.get('message', 'failed')}{code}")
