"""Every command that a page names is a command of the CLI."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

import cograil.ui
from cograil.cli import ENTRIES, LazyGroup

UI = Path(cograil.ui.__file__).parent
NAMED = re.compile(r"(?:`|<code>|<pre>|\"|')(?:[A-Z_]+=\S+ )*(cograil [a-z][^`<\"'{]*)")
WORD = re.compile(r"[a-z][a-z-]*")


def named_commands() -> list[tuple[str, str]]:
    """Each command with the file that names it: in templates, and in the sentences of pages."""
    files = [*UI.rglob("*.html"), *UI.rglob("*.py"), *UI.glob("static/*.js")]
    return [(path.name, text.strip()) for path in sorted(files) for text in NAMED.findall(path.read_text())]


@pytest.mark.parametrize(("file", "text"), named_commands())
def test_a_command_on_a_page_exists(file: str, text: str) -> None:
    command: click.Command = LazyGroup("cograil")
    context = click.Context(command)
    used: list[str] = []
    for word in text.split()[1:]:
        if not isinstance(command, click.Group) or not WORD.fullmatch(word):
            break
        subcommand = command.get_command(context, word)
        assert subcommand is not None, f"{file}: {text!r} names an unknown command"
        command, used = subcommand, [*used, word]
    assert used, f"{file}: {text!r} names no command"
    assert not isinstance(command, click.Group), f"{file}: {text!r} lacks a subcommand"
    options = {option for parameter in command.params for option in parameter.opts}
    for option in re.findall(r"--[a-z-]+", text):
        assert option in options, f"{file}: {text!r}: {option} is an unknown option"


def test_there_are_commands_on_the_pages() -> None:
    assert len(named_commands()) > 8
    assert "subscriptions" in ENTRIES
