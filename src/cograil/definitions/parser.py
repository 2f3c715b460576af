"""The parser of expressions. The grammar is an allow-list: nothing else can be written.

Operators from loose to tight: `a if b else c`, `or`, `and`, `not`, one comparison, `+ -`, `~`, unary `-`, and
after a value `.field`, `[key]`, `| filter`, `is defined`. An operator without a left operand applies to the
subject of the condition (`"< 100"`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cograil.definitions.expressions import (
    MAX_DEPTH,
    MAX_NODES,
    Constant,
    Expression,
    Operation,
    Path,
    Subject,
    TemplateError,
)
from cograil.definitions.lexer import Scanner, Token
from cograil.model.workflow import Json

_ANYTHING, _IF, _OR, _AND, _NOT, _COMPARISON, _SUM, _TEXT, _SIGN = range(9)
_COMPARISONS = ("==", "!=", "<", ">", "<=", ">=", "in", "not_in", "contains", "starts_with", "ends_with")
_BINDING = {
    "if": _IF,
    "or": _OR,
    "and": _AND,
    **dict.fromkeys(_COMPARISONS, _COMPARISON),
    "+": _SUM,
    "-": _SUM,
    "~": _TEXT,
}
_ASSOCIATIVE = frozenset(("or", "and", "~"))
_NULL_TESTS = frozenset(("is_null", "is_not_null"))
_LITERALS = {"true": True, "false": False, "null": None, "none": None}
_RESERVED = frozenset((*_BINDING, "not", "is", "else"))

_FILTERS = {
    "default": (1, 2),
    "lower": (0, 0),
    "upper": (0, 0),
    "length": (0, 0),
    "tojson": (0, 0),
    "join": (0, 1),
}
_JINJA_FILTERS = re.compile(
    r"abs|attr|batch|capitalize|center|count|d|dictsort|e|escape|filesizeformat|first|float|forceescape|format"
    r"|groupby|indent|int|items|last|list|map|max|min|pprint|random|reject|rejectattr|replace|reverse|round|safe"
    r"|select|selectattr|slice|sort|string|striptags|sum|title|trim|truncate|unique|urlencode|urlize|wordcount"
    r"|wordwrap|xmlattr"
)


class Placeholder(NamedTuple):
    """The expression of a `{{ ... }}`, the offset of its end and its number of nodes."""

    expression: Expression
    end: int
    nodes: int


def parse_placeholder(text: str, start: int, max_nodes: int = MAX_NODES) -> Placeholder:
    """Parse the `{{ ... }}` at `start`. Raises TemplateError."""
    scanner = Scanner(text, start)
    parser = _Parser(text, scanner.placeholder(), max_nodes=max_nodes)
    return Placeholder(parser.parse(), scanner.position, parser.nodes)


def parse_condition(text: str, *, has_subject: bool) -> Expression:
    """Parse a text that is one expression. Raises TemplateError."""
    return _Parser(text, Scanner(text).whole(), has_subject=has_subject).parse()


class _Parser:
    def __init__(
        self, text: str, tokens: list[Token], *, has_subject: bool = False, max_nodes: int = MAX_NODES
    ) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0
        self._has_subject = has_subject
        self._nesting = 0
        self._max_nodes = max_nodes
        self.nodes = 0

    def parse(self) -> Expression:
        expression = self._expression(_ANYTHING)
        if self._peek().kind != "end":
            raise self._unexpected(self._peek())
        return expression

    # Operators

    def _expression(self, level: int) -> Expression:
        """Parse a value and all operators after it that bind tighter than `level`."""
        self._nesting += 1
        if self._nesting > MAX_DEPTH:
            raise self._too_complex()
        left = self._operand(level)
        while (binding := self._binding()) > level:
            left = self._if(left) if binding == _IF else self._binary(left, binding)
        self._nesting -= 1
        return left

    def _binding(self) -> int:
        token = self._peek()
        if token.kind not in ("word", "symbol"):
            return _ANYTHING
        if token.value == "not" and self._tokens[self._next + 1][:2] == ("word", "in"):
            return _COMPARISON
        return _BINDING.get(token.value, _ANYTHING)

    def _binary(self, left: Expression, binding: int) -> Expression:
        operator = self._take().value
        if operator == "not":
            operator = f"not_{self._take().value}"
        right = self._expression(binding)
        if binding == _COMPARISON and self._binding() == _COMPARISON:
            raise self._syntax(self._peek(), "comparisons cannot be chained; combine them with `and`")
        if operator in _ASSOCIATIVE and isinstance(left, Operation) and left.name == operator:
            return self._operation(operator, *left.operands, right)  # one level for any number of operands
        return self._operation(operator, left, right)

    def _if(self, then: Expression) -> Expression:
        self._take()
        test = self._expression(_IF)
        if not self._accept("else", "word"):
            raise self._syntax(self._peek(), "`if` needs an `else`")
        return self._operation("if", test, then, self._expression(_ANYTHING))

    def _operand(self, level: int) -> Expression:
        if self._accept("not", "word"):
            return self._operation("not", self._expression(_NOT))
        if self._accept("-"):
            return self._negative(self._expression(_SIGN))
        if self._binding() == _COMPARISON and level < _COMPARISON:
            return self._subject(self._peek())
        return self._with_fields(self._value())

    def _negative(self, operand: Expression) -> Expression:
        if isinstance(operand, Constant) and type(operand.value) in (int, float):
            return Constant(-operand.value)
        return self._operation("negative", operand)

    # Values

    def _value(self) -> Expression:
        token = self._take()
        self._count()
        match token.kind, token.value:
            case (("number" | "text"), value):
                return Constant(value)
            case "word", word:
                return self._word(token, word)
            case "symbol", "(":
                return self._group()
            case "symbol", "[":
                return self._operation("list", *self._list_until("]"))
            case "symbol", "{":
                return self._object()
        raise self._unexpected(token)

    def _word(self, token: Token, word: str) -> Expression:
        if word.lower() in _LITERALS:
            return Constant(_LITERALS[word.lower()])
        if word in _NULL_TESTS:
            value = self._group() if self._accept("(") else self._subject(token)
            return self._operation(word, value)
        if word in _RESERVED:
            raise self._unexpected(token)
        return Path(word, (), token.offset)

    def _subject(self, token: Token) -> Subject:
        if not self._has_subject:
            raise self._syntax(token, f"{token.value} needs a left operand, or a condition_field")
        return Subject()

    def _group(self) -> Expression:
        inner = self._expression(_ANYTHING)
        self._expect(")")
        return inner

    def _list_until(self, closing: str) -> list[Expression]:
        members: list[Expression] = []
        while not self._accept(closing):
            members.append(self._expression(_ANYTHING))
            if not self._accept(","):
                self._expect(closing)
                break
        return members

    def _object(self) -> Expression:
        parts: list[Expression] = []
        while not self._accept("}"):
            key = self._take()
            if key.kind != "text":
                raise self._syntax(key, "a key of an object must be a text in quotes")
            self._expect(":")
            parts += (Constant(key.value), self._expression(_ANYTHING))
            if not self._accept(","):
                self._expect("}")
                break
        return self._operation("object", *parts)

    # Suffixes of a value

    def _with_fields(self, value: Expression) -> Expression:
        while True:
            token = self._peek()
            if token.kind == "field":
                value = self._dotted(value, self._take())
            elif self._accept("["):
                value = self._subscript(value, token)
            elif self._accept("|"):
                value = self._filter(value)
            elif self._accept("is", "word"):
                value = self._test(value)
            elif self._accept("("):
                raise self._forbidden(token, "calls are not allowed")
            else:
                return value

    def _dotted(self, value: Expression, field: Token) -> Expression:
        if isinstance(value, Constant) or (isinstance(value, Operation) and value.name in ("list", "object")):
            raise self._forbidden(field, f"a literal has no field {field.value}")
        return self._item(value, Constant(field.value))

    def _subscript(self, value: Expression, bracket: Token) -> Expression:
        if isinstance(value, Constant):
            raise self._forbidden(bracket, "a literal has no fields")
        key = self._expression(_ANYTHING)
        if self._accept(":"):
            raise self._forbidden(bracket, "slices are not part of the language")
        self._expect("]")
        return self._item(value, key)

    def _item(self, value: Expression, key: Expression) -> Expression:
        if isinstance(value, Path) and isinstance(key, Constant) and type(key.value) in (str, int):
            self._count()
            return Path(value.root, (*value.steps, key.value), value.offset)
        return self._operation("item", value, key)

    def _filter(self, value: Expression) -> Expression:
        token = self._take()
        if token.kind == "word" and _JINJA_FILTERS.fullmatch(token.value):
            raise self._forbidden(
                token, f"the filter {token.value} is not allowed; use one of {', '.join(_FILTERS)}"
            )
        if token.kind != "word" or token.value not in _FILTERS:
            raise self._syntax(token, f"unknown filter {token.value}; use one of {', '.join(_FILTERS)}")
        arguments = self._list_until(")") if self._accept("(") else []
        fewest, most = _FILTERS[token.value]
        if not fewest <= len(arguments) <= most:
            raise self._syntax(token, f"{token.value} takes {fewest} to {most} arguments")
        return self._operation(token.value, value, *arguments)

    def _test(self, value: Expression) -> Expression:
        negated = self._accept("not", "word")
        token = self._take()
        if token.kind == "word" and token.value.lower() in _LITERALS:
            literal = Constant(_LITERALS[token.value.lower()])
            return self._operation("!=" if negated else "==", value, literal)
        if token[:2] != ("word", "defined"):
            raise self._forbidden(token, f"the test `is {token.value}` is not part of the language")
        defined = self._operation("is_defined", value)
        return self._operation("not", defined) if negated else defined

    # Tokens and limits

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _accept(self, value: Json, kind: str = "symbol") -> bool:
        if self._peek()[:2] != (kind, value):
            return False
        self._take()
        return True

    def _expect(self, symbol: str) -> None:
        if not self._accept(symbol):
            raise self._unexpected(self._peek())

    def _operation(self, name: str, *operands: Expression) -> Operation:
        self._count()
        depth = 1 + max((operand.depth for operand in operands), default=0)
        if depth > MAX_DEPTH:
            raise self._too_complex()
        return Operation(name, operands, depth)

    def _count(self) -> None:
        self.nodes += 1
        if self.nodes > self._max_nodes:
            raise self._too_complex()

    def _too_complex(self) -> TemplateError:
        return self._error(
            self._peek(), "template_too_complex", "the expression is too large or nested too deeply"
        )

    def _forbidden(self, token: Token, message: str) -> TemplateError:
        return self._error(token, "template_forbidden", message)

    def _syntax(self, token: Token, message: str) -> TemplateError:
        return self._error(token, "template_syntax", message)

    def _unexpected(self, token: Token) -> TemplateError:
        is_edge = self._text.startswith(("{{", "}}"), token.offset)  # read as parentheses, see lexer.py
        symbol = self._text[token.offset : token.offset + 2] if is_edge else token.value
        return self._syntax(token, f"unexpected {symbol}")

    def _error(self, token: Token, code: str, message: str) -> TemplateError:
        return TemplateError.at(self._text, token.offset, code, message)
