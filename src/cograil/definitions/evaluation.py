"""The tree of an expression -> one closure over the scope. Built once, called for every task.

`_OPERATIONS` is the complete list of what an expression can do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cograil.definitions import values
from cograil.definitions.expressions import Constant, Expression, Operation, Path, Subject
from cograil.definitions.values import Missing
from cograil.model.workflow import Json, Scope

Evaluate = Callable[[Scope], Json]
Truth = Callable[[Json], bool]
Build = Callable[[Sequence[Evaluate], Truth], Evaluate]


def compile_expression(
    expression: Expression, truth: Truth = bool, subject: Evaluate | None = None
) -> Evaluate:
    """The closure that evaluates an expression.

    `truth` decides what `and`, `or`, `not` and `if` hold for true; `subject` is what a Subject reads.
    """
    match expression:
        case Constant(value):
            return lambda scope: value
        case Path():
            return _path(expression)
        case Operation(name, parts):
            operands = [compile_expression(part, truth, subject) for part in parts]
            return _item(parts[0], operands) if name == "item" else _OPERATIONS[name](operands, truth)
        case Subject():
            assert subject is not None  # the grammar makes no Subject when there is none
            return subject


# Reading the scope


def _path(path: Path) -> Evaluate:
    root, steps = path.root, path.steps
    if root == "upstream":  # upstream.output is another word for output
        root, steps = "output", steps[1:]
    field = values.field

    def evaluate(scope: Scope) -> Json:
        try:
            value = scope[root]
            for step in steps:
                value = field(value, step)
        except LookupError:
            raise Missing(str(path)) from None
        return value

    return evaluate


def _item(whole: Expression, operands: Sequence[Evaluate]) -> Evaluate:
    read, read_key = operands
    label = str(whole) if isinstance(whole, Path) else "(...)"

    def evaluate(scope: Scope) -> Json:
        value, key = read(scope), read_key(scope)
        try:
            return values.field(value, key)
        except LookupError:
            raise Missing(f"{label}[{values.to_json(key)}]") from None

    return evaluate


def _default(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    read, fallback, *if_falsy = operands

    def evaluate(scope: Scope) -> Json:
        try:
            value = read(scope)
        except Missing:
            return fallback(scope)
        if if_falsy and not value and if_falsy[0](scope):
            return fallback(scope)
        return value

    return evaluate


def _or_null(operands: Sequence[Evaluate]) -> Evaluate:
    (read,) = operands

    def evaluate(scope: Scope) -> Json:
        try:
            return read(scope)
        except Missing:
            return None

    return evaluate


def _is_null(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    read = _or_null(operands)
    return lambda scope: read(scope) is None


def _is_not_null(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    read = _or_null(operands)
    return lambda scope: read(scope) is not None


def _is_defined(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    (read,) = operands

    def evaluate(scope: Scope) -> bool:
        try:
            read(scope)
        except Missing:
            return False
        return True

    return evaluate


# Logic: the operands that decide are evaluated, the others are not


def _and(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    *first, last = operands

    def evaluate(scope: Scope) -> Json:
        for read in first:
            if not truth(value := read(scope)):
                return value
        return last(scope)

    return evaluate


def _or(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    *first, last = operands

    def evaluate(scope: Scope) -> Json:
        for read in first:
            if truth(value := read(scope)):
                return value
        return last(scope)

    return evaluate


def _not(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    (read,) = operands
    return lambda scope: not truth(read(scope))


def _if(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    test, then, otherwise = operands
    return lambda scope: then(scope) if truth(test(scope)) else otherwise(scope)


# Values made of values


def _list(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    def evaluate(scope: Scope) -> list[Json]:
        meter = values.Meter()
        return [meter.charged(read(scope)) for read in operands]

    return evaluate


def _object(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    pairs = list(zip(operands[::2], operands[1::2], strict=True))

    def evaluate(scope: Scope) -> dict[str, Json]:
        meter = values.Meter()
        return {meter.charged(key(scope)): meter.charged(read(scope)) for key, read in pairs}

    return evaluate


def _concatenated(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    return lambda scope: values.bounded(values.as_text(read(scope)) for read in operands)


def _applied(function: Callable[..., Json]) -> Build:
    """An operation that needs nothing but the values of its operands."""

    def build(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
        if len(operands) == 2:
            left, right = operands
            return lambda scope: function(left(scope), right(scope))
        return lambda scope: function(*[read(scope) for read in operands])

    return build


_OPERATIONS: dict[str, Build] = {
    "default": _default,
    "is_null": _is_null,
    "is_not_null": _is_not_null,
    "is_defined": _is_defined,
    "and": _and,
    "or": _or,
    "not": _not,
    "if": _if,
    "list": _list,
    "object": _object,
    "~": _concatenated,
    "==": _applied(values.equal),
    "!=": _applied(lambda left, right: not values.equal(left, right)),
    "<": _applied(lambda left, right: values.compare(left, right) < 0),
    ">": _applied(lambda left, right: values.compare(left, right) > 0),
    "<=": _applied(lambda left, right: values.compare(left, right) <= 0),
    ">=": _applied(lambda left, right: values.compare(left, right) >= 0),
    "contains": _applied(values.contains),
    "in": _applied(lambda member, container: values.contains(container, member)),
    "not_in": _applied(lambda member, container: not values.contains(container, member)),
    "starts_with": _applied(values.starts_with),
    "ends_with": _applied(values.ends_with),
    "+": _applied(values.add),
    "-": _applied(values.subtract),
    "negative": _applied(values.negate),
    "lower": _applied(values.lower),
    "upper": _applied(values.upper),
    "length": _applied(values.length),
    "join": _applied(values.join),
    "tojson": _applied(values.to_json),
}
