"""The named statements in `sql/`, one per file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement: its name, its text without comments, and the original file."""

    name: str
    text: str
    source: str


@cache
def statement(name: str, parts: frozenset[str] | None = None, package: str = "cograil.store") -> Statement:
    """Return the statement of this name; for one with parts, only these parts and the last.

    The statements of an app are in the `sql` directory of its own package.
    """
    source = resources.files(package).joinpath(f"sql/{name}.sql").read_text("utf-8")
    first, *rest = re.split(r"-- part: (\w+)\n", source)
    parts_by_name = {part: _plain(text) for part, text in zip(rest[::2], rest[1::2], strict=True)}
    if not parts_by_name:
        return Statement(name, _plain(source), source)
    *optional, last = parts_by_name
    chosen = [parts_by_name[part] for part in optional if parts is None or part in parts]
    before = f"{_plain(first)} {', '.join(chosen)} " if chosen else ""
    return Statement(name, before + parts_by_name[last], source)


def _plain(source: str) -> str:
    """Return the statement without comments, on one line."""
    return re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", source)).strip()


@cache
def native(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text with PostgreSQL's own placeholders ($1), and the parameter names in their order.

    Cached for each statement, because the driver would parse the text at every execution.
    """
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${names.setdefault(match[1], len(names) + 1)}"

    return re.sub(r"%\((\w+)\)s", number, text).replace("%%", "%"), tuple(names)


def all_statements() -> list[Statement]:
    """Return every statement, for the tests that compare them with states.py and the planner."""
    folder = resources.files("cograil.store").joinpath("sql")
    return [
        statement(file.name.removesuffix(".sql")) for file in folder.iterdir() if file.name.endswith(".sql")
    ]
