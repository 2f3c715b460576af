"""The expression language of workflow files: syntax tree, limits and allowed names.

Templates (`"{{ inputs.size + 1 }}"`) and conditions (`output.size < 100`) use the same language and grammar
(parser.py). It has no calls, loops, assignments or method access. Everything that could grow without bound
is limited before parsing (lexer.py) and during rendering (operators.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from cograil.model.workflow import Json

MAX_TEXT_BYTES = 16 * 1024
MAX_NODES = 500
MAX_DEPTH = 60  # of brackets, of the recursion of the parser, and of the syntax tree

ROOTS = ("inputs", "nodes", "item", "index", "output", "upstream")
NODE_FIELDS = ("output", "status", "error")

# Names with a meaning in Jinja, which most authors (and attackers) know.
_JINJA_GLOBALS = re.compile(
    r"caller|config|cycler|dict|joiner|kwargs|lipsum|loop|namespace|range|request|self|super|varargs"
)


class TemplateError(Exception):
    """An expression is invalid; `code` says why.

    `line` and `column` count from 1 within the string, `path` leads to the string within the value
    that was compiled.
    """

    def __init__(
        self, code: str, message: str, *, line: int | None = None, column: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.line = line
        self.column = column
        self.path: tuple[str | int, ...] = ()

    @classmethod
    def at(cls, text: str, offset: int, code: str, message: str) -> TemplateError:
        """Return the error for `offset` in `text`."""
        line = text.count("\n", 0, offset) + 1
        column = offset - text.rfind("\n", 0, offset)
        return cls(code, message, line=line, column=column)


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    value: Json
    depth: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Path:
    """A value of the scope: a root name and the fields below it."""

    root: str
    steps: tuple[str | int, ...]
    offset: int
    depth: ClassVar[int] = 1

    def __str__(self) -> str:
        return self.root + "".join(f".{step}" for step in self.steps)


@dataclass(frozen=True, slots=True)
class Subject:
    """The value of condition_field: the implicit left operand of a short condition."""

    depth: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator with its operands; evaluation.py defines the names."""

    name: str
    operands: tuple[Expression, ...]
    depth: int


Expression = Constant | Path | Subject | Operation


@dataclass(frozen=True, slots=True)
class ExpressionUsage:
    """The names, nodes and inputs that an expression reads."""

    names: frozenset[str] = frozenset()
    references: frozenset[str] = frozenset()
    input_names: frozenset[str] = frozenset()
    has_all_inputs: bool = False  # it reads all of `inputs`, or an input by a computed name

    def __or__(self, other: ExpressionUsage) -> ExpressionUsage:
        return ExpressionUsage(
            self.names | other.names,
            self.references | other.references,
            self.input_names | other.input_names,
            self.has_all_inputs or other.has_all_inputs,
        )


def refuse_long(text: str) -> None:
    """Raise template_too_complex for a text that is too long to compile."""
    if len(text) > MAX_TEXT_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES:
        raise TemplateError("template_too_complex", f"an expression may have at most {MAX_TEXT_BYTES} bytes")


def check_names(expression: Expression, text: str) -> ExpressionUsage:
    """Return the usage of an expression. Raises TemplateError for a name that is not allowed."""
    paths = list(_paths(expression))
    for path in paths:
        _check_root(path, text)
        _check_fields(path, text)
    return ExpressionUsage(
        names=frozenset(path.root for path in paths),
        references=frozenset(str(path.steps[0]) for path in paths if path.root == "nodes"),
        input_names=frozenset(
            path.steps[0]
            for path in paths
            if path.root == "inputs" and path.steps and isinstance(path.steps[0], str)
        ),
        has_all_inputs=any(
            path.root == "inputs" and not (path.steps and isinstance(path.steps[0], str)) for path in paths
        ),
    )


def expression_size(expression: Expression) -> int:
    """How many nodes the tree has."""
    if isinstance(expression, Operation):
        return 1 + sum(expression_size(operand) for operand in expression.operands)
    return 1


def _paths(expression: Expression) -> Iterator[Path]:
    if isinstance(expression, Path):
        yield expression
    elif isinstance(expression, Operation):
        for operand in expression.operands:
            yield from _paths(operand)


def _check_root(path: Path, text: str) -> None:
    root = path.root
    if root in ROOTS:
        return
    if root == "env":
        code, message = "template_forbidden", "env is not available to workflows; pass the value as an input"
    elif root == "secrets":
        code, message = "secret_not_allowed_here", "secrets may not be used here"
    elif _JINJA_GLOBALS.fullmatch(root):
        code, message = "template_forbidden", f"{root} is not part of the language"
    else:
        code, message = (
            "template_undefined",
            f"{root} is not defined; use one of {', '.join(ROOTS)}",
        )
    raise TemplateError.at(text, path.offset, code, message)


def _check_fields(path: Path, text: str) -> None:
    if path.root == "nodes":
        if not path.steps or not isinstance(path.steps[0], str):
            code, message = (
                "template_forbidden",
                "a node needs a literal name: nodes.<id>.output or nodes['<id>'].output",
            )
        elif len(path.steps) < 2 or path.steps[1] not in NODE_FIELDS:
            code = "template_undefined"
            message = (
                f"{path}: a node has .output, .status and .error (use nodes['<id>'] for an id with a dot)"
            )
        else:
            return
    elif path.root == "upstream" and path.steps[:1] != ("output",):
        code, message = "template_undefined", f"{path}: use upstream.output"
    else:
        return
    raise TemplateError.at(text, path.offset, code, message)
