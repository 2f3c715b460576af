"""Data on stdout, talk on stderr; colours only where somebody sees them."""

from __future__ import annotations

import json
import os
import sys
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
PIPE_WIDTH = 100  # of tables that nobody sees on a terminal


def out() -> Console:
    """Where data for people goes."""
    return _console(sys.stdout)


def talk() -> Console:
    """Where everything else goes."""
    return _console(sys.stderr)


@cache
def _console(stream: TextIO) -> Console:
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def say(message: str, style: str = "") -> None:
    """A line of talk."""
    talk().print(Text(message, style=style), soft_wrap=True)


def warn(message: str) -> None:
    """A line of talk that wants attention."""
    talk().print(Text.assemble(("warning: ", "yellow"), message), soft_wrap=True)


def write_json(value: Any) -> None:
    """One JSON document on stdout; moments are RFC 3339 in UTC."""
    _write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE))


def write_json_line(value: Any) -> None:
    """One JSON document on a line of its own."""
    _write(orjson.dumps(value, option=orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE))


def _write(text: bytes) -> None:
    click.echo(text, nl=False)


def show_value(value: Any, max_lines: int | None = None) -> int:
    """A JSON value for people: what fits on a line stays there. How many lines were left out.

    On a terminal it has colours, and long lists are cut short; elsewhere it is whole, if not for `max_lines`.
    """
    text = fitted(_cut(value) if out().is_terminal else value, out().width)
    lines = text.split("\n")
    shown = Text("\n".join(lines[:max_lines]))
    out().print(JSONHighlighter()(shown) if out().is_terminal else shown, soft_wrap=True)
    return 0 if max_lines is None else max(0, len(lines) - max_lines)


def show_result(job_id: str, result: Any, *, is_cut: bool) -> None:
    """What a job resulted in; if `is_cut`, its first lines and how to see the others."""
    left_out = show_value(result, MAX_RESULT_LINES if is_cut else None)
    if left_out:
        say(f"... {left_out} more lines: `cograil show {job_id} --result` prints all of it")


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    if isinstance(value, list) and len(value) > MAX_LIST:
        return [*map(_cut, value[:SHOWN_ITEMS]), f"... and {len(value) - SHOWN_ITEMS} more"]
    return [_cut(item) for item in value] if isinstance(value, list) else value


def fitted(value: Any, width: int, indent: str = "", used: int = 0) -> str:
    """Valid JSON in lines of at most this width, where that can be had."""
    flat = _flat(value)
    if not isinstance(value, dict | list) or not value or len(indent) + used + len(flat) < width:
        return flat
    inner = indent + "  "
    if isinstance(value, dict):
        names = {key: f"{_flat(str(key))}: " for key in value}
        items = [names[key] + fitted(value[key], width, inner, len(names[key]) + 1) for key in value]
    elif any(isinstance(item, dict | list) for item in value):
        items = [fitted(item, width, inner, 1) for item in value]
    else:
        items = _packed([_flat(item) for item in value], width - len(inner) - 1)
    first, last = "{}" if isinstance(value, dict) else "[]"
    body = f",\n{inner}".join(items)
    return f"{first}\n{inner}{body}\n{indent}{last}"


def _packed(items: list[str], width: int) -> list[str]:
    """As many short items on a line as fit."""
    lines = [items[0]]
    for item in items[1:]:
        if len(lines[-1]) + len(item) + 2 < width:
            lines[-1] += f", {item}"
        else:
            lines.append(item)
    return lines


def _flat(value: Any) -> str:
    """On one line. JSON escapes control characters; those that it lets pass are escaped here."""
    return json.dumps(value, ensure_ascii=False, default=str).translate(_ESCAPES)


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """An empty table in the style of the house."""
    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return made


def state(status: str) -> Text:
    """A state with its sign, in its colour."""
    shown = f"{sign(status)} {shown_node_status(status)}"
    return Text(shown, style=STATE_STYLES.get(status, ""), no_wrap=True)


def sign(status: str) -> str:
    """The sign of a state, in plain characters where the terminal knows no others."""
    signs = SIGNS if (talk().encoding or "").lower().startswith("utf") else PLAIN_SIGNS
    return signs.get(status, "?")


def plain(value: Any, style: str = "") -> Text:
    """Any value as text that cannot disturb the terminal."""
    return Text("" if value is None else printable(value), style=style)


def error_line(error: Any) -> str:
    """The error of a job or node in one line: its message and its code."""
    if not isinstance(error, dict):
        return printable(error)
    code = f" [{error['code']}]" if error.get("code") else ""
    return printable(f"{error.get('message', 'failed')}{code}")
