"""The lexer of expressions, with the limits that protect the parser.

`{{` and `}}` are read as parentheses, so that one grammar serves a placeholder of a template, a condition
that is wrapped in `{{ }}` and a condition that has templates in it.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from cograil.definitions.expressions import MAX_DEPTH, TemplateError
from cograil.model.workflow import Json

MAX_TOKENS = 2000  # 500 nodes never need more; scanning them takes a few milliseconds
MAX_DIGITS = 40

_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?!\w))
    | (?P<node>nodes\s*\.\s*[\w-]+)
    | (?P<word>[^\W\d]\w*)
    | (?P<field>\.\s*\w+)
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<symbol>\{\{-?|-?\}\}|==|!=|<=|>=|\*\*|//|[-+~<>|,:()\[\]{}*/%])
    """,
    re.VERBOSE | re.DOTALL,
)
_CLOSED_BY = {"{{": "}}", "(": ")", "[": "]", "{": "}"}
_FORBIDDEN = frozenset(("*", "**", "/", "//", "%"))
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


class Token(NamedTuple):
    """`kind` is number, text, word, field, symbol or end."""

    kind: str
    value: Json
    offset: int


class Scanner:
    """Reads one placeholder of a template, or a whole condition."""

    def __init__(self, text: str, position: int = 0) -> None:
        self.text = text
        self.position = position
        self._tokens: list[Token] = []
        self._awaited: list[str] = []

    def placeholder(self) -> list[Token]:
        """Return the tokens of the `{{ ... }}` at `position`, and move `position` behind it."""
        self._step()
        while self._awaited:
            self._step()
        return self._ended()

    def whole(self) -> list[Token]:
        """Return the tokens of the rest of the text."""
        while self.position < len(self.text):
            self._step()
        if self._awaited:
            raise self._unclosed()
        return self._ended()

    def _ended(self) -> list[Token]:
        self._add("end", "the end", self.position)
        return self._tokens

    def _step(self) -> None:
        offset = self.position
        match = _TOKEN.match(self.text, offset)
        if match is None:
            raise self._unreadable(offset)
        self.position = match.end()
        lexeme = match.group()
        match match.lastgroup:
            case "number":
                self._add("number", self._number(lexeme, offset), offset)
            case "text":
                self._add("text", _unquoted(lexeme), offset)
            case "word":
                self._add("word", lexeme, offset)
            case "field":
                self._add("field", lexeme[1:].lstrip(), offset)
            case "node":
                self._node(lexeme, offset)
            case "symbol":
                self._symbol(lexeme, offset)

    def _add(self, kind: str, value: Json, offset: int) -> None:
        if len(self._tokens) > MAX_TOKENS:
            raise self._error(offset, "template_too_complex", "the expression is too long")
        self._tokens.append(Token(kind, value, offset))

    def _number(self, digits: str, offset: int) -> int | float:
        if len(digits) > MAX_DIGITS:
            raise self._error(offset, "template_syntax", f"a number may have at most {MAX_DIGITS} digits")
        if digits.isdigit():
            return int(digits)
        number = float(digits)
        if not math.isfinite(number):
            raise self._error(offset, "invalid_number", f"{digits} is too large")
        return number

    def _node(self, lexeme: str, offset: int) -> None:
        # Ids of nodes may have hyphens. `nodes.a` is not a number, so `nodes.a-b` is never a subtraction.
        self._add("word", "nodes", offset)
        self._add("field", lexeme.partition(".")[2].lstrip(), offset)

    def _symbol(self, symbol: str, offset: int) -> None:
        if symbol in _FORBIDDEN:
            raise self._error(offset, "template_forbidden", f"{symbol} is not part of the language")
        if symbol.endswith("}}") and self._awaited[-1:] == ["}"]:
            symbol = symbol[0]  # the end of one of two nested objects, not of the placeholder
            self.position = offset + 1
        symbol = symbol.strip("-") or symbol  # {{- and -}} concern the text around the placeholder
        if symbol in _CLOSED_BY:
            self._open(symbol, offset)
        elif symbol in _CLOSED_BY.values():
            self._close(symbol, offset)
        self._add("symbol", {"{{": "(", "}}": ")"}.get(symbol, symbol), offset)

    def _open(self, symbol: str, offset: int) -> None:
        if symbol == "{{" and "}}" in self._awaited:
            raise self._error(offset, "template_syntax", "{{ inside {{ }}")
        if len(self._awaited) >= MAX_DEPTH:
            raise self._error(offset, "template_too_complex", "the expression is nested too deeply")
        self._awaited.append(_CLOSED_BY[symbol])

    def _close(self, symbol: str, offset: int) -> None:
        awaited = self._awaited.pop() if self._awaited else "an opening bracket"
        if awaited != symbol:
            raise self._error(offset, "template_syntax", f"unexpected {symbol}: {awaited} is missing")

    def _unreadable(self, offset: int) -> TemplateError:
        rest = self.text[offset : offset + 1]
        if not rest:
            return self._unclosed()
        if rest in "'\"":
            return self._error(offset, "template_syntax", f"the text that starts with {rest} is not closed")
        hint = " (write == to compare)" if rest == "=" else ""
        return self._error(offset, "template_syntax", f"unexpected {rest}{hint}")

    def _unclosed(self) -> TemplateError:
        return self._error(self.position, "template_syntax", f"{self._awaited[-1]} is missing")

    def _error(self, offset: int, code: str, message: str) -> TemplateError:
        return TemplateError.at(self.text, offset, code, message)


def _unquoted(lexeme: str) -> str:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), lexeme[1:-1], flags=re.DOTALL)
