"""Compilation of an expression tree to one closure over the scope, which every task calls.

`_OPERATIONS` is the complete list of what an expression can do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cograil.definitions import operators
from cograil.definitions.expressions import Constant, Expression, Operation, Path, Subject
from cograil.definitions.operators import Missing
from cograil.model.evaluation_budget import Budget
from cograil.model.workflow import Json, Scope

Evaluate = Callable[[Scope, Budget], Json]
Truth = Callable[[Json], bool]
Build = Callable[[Sequence[Evaluate], Truth], Evaluate]


def compile_expression(
    expression: Expression, truth: Truth = bool, subject: Evaluate | None = None
) -> Evaluate:
    """Return a closure that evaluates an expression.

    `truth` converts operands of `and`, `or`, `not` and `if` to booleans; `subject` evaluates a Subject.
    """
    match expression:
        case Constant(value):
            return lambda scope, budget: value
        case Path():
            return _path(expression)
        case Operation(name, parts):
            operands = [compile_expression(part, truth, subject) for part in parts]
            return _item(parts[0], operands) if name == "item" else _OPERATIONS[name](operands, truth)
        case Subject():
            assert subject is not None  # the parser creates a Subject only when there is one
            return subject


# Reading the scope


def _path(path: Path) -> Evaluate:
    root, steps = path.root, path.steps
    if root == "upstream":  # upstream.output is an alias of output
        root, steps = "output", steps[1:]
    field = operators.field

    def evaluate(scope: Scope, budget: Budget) -> Json:
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

    def evaluate(scope: Scope, budget: Budget) -> Json:
        value, key = read(scope, budget), read_key(scope, budget)
        try:
            return operators.field(value, key)
        except LookupError:
            raise Missing(f"{label}[{operators.to_json(key)}]") from None

    return evaluate


def _default(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    read, fallback, *if_falsy = operands

    def evaluate(scope: Scope, budget: Budget) -> Json:
        try:
            value = read(scope, budget)
        except Missing:
            return fallback(scope, budget)
        if if_falsy and not value and if_falsy[0](scope, budget):
            return fallback(scope, budget)
        return value

    return evaluate


def _or_null(operands: Sequence[Evaluate]) -> Evaluate:
    (read,) = operands

    def evaluate(scope: Scope, budget: Budget) -> Json:
        try:
            return read(scope, budget)
        except Missing:
            return None

    return evaluate


def _is_null(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    read = _or_null(operands)
    return lambda scope, budget: read(scope, budget) is None


def _is_not_null(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    read = _or_null(operands)
    return lambda scope, budget: read(scope, budget) is not None


def _is_defined(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    (read,) = operands

    def evaluate(scope: Scope, budget: Budget) -> bool:
        try:
            read(scope, budget)
        except Missing:
            return False
        return True

    return evaluate


# Logic: operators evaluate only the operands that they need


def _and(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    *first, last = operands

    def evaluate(scope: Scope, budget: Budget) -> Json:
        for read in first:
            if not truth(value := read(scope, budget)):
                return value
        return last(scope, budget)

    return evaluate


def _or(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    *first, last = operands

    def evaluate(scope: Scope, budget: Budget) -> Json:
        for read in first:
            if truth(value := read(scope, budget)):
                return value
        return last(scope, budget)

    return evaluate


def _not(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    (read,) = operands
    return lambda scope, budget: not truth(read(scope, budget))


def _if(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    test, then, otherwise = operands
    return lambda scope, budget: (
        then(scope, budget) if truth(test(scope, budget)) else otherwise(scope, budget)
    )


# Composite values


def _list(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    def evaluate(scope: Scope, budget: Budget) -> list[Json]:
        meter = operators.Meter(budget)
        return [meter.charged(read(scope, budget)) for read in operands]

    return evaluate


def _object(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    pairs = list(zip(operands[::2], operands[1::2], strict=True))

    def evaluate(scope: Scope, budget: Budget) -> dict[str, Json]:
        meter = operators.Meter(budget)
        return {meter.charged(key(scope, budget)): meter.charged(read(scope, budget)) for key, read in pairs}

    return evaluate


def _concatenated(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
    return lambda scope, budget: operators.bounded(
        (operators.as_text(read(scope, budget)) for read in operands), budget
    )


def _applied(function: Callable[..., Json]) -> Build:
    """Build an operation whose cost does not depend on the size of its operands."""

    def build(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
        if len(operands) == 2:
            left, right = operands
            return lambda scope, budget: function(left(scope, budget), right(scope, budget))
        return lambda scope, budget: function(*[read(scope, budget) for read in operands])

    return build


def _metered(function: Callable[..., Json]) -> Build:
    """Build an operation whose cost grows with its operands; it spends steps of the budget."""

    def build(operands: Sequence[Evaluate], truth: Truth) -> Evaluate:
        if len(operands) == 2:
            left, right = operands
            return lambda scope, budget: function(budget, left(scope, budget), right(scope, budget))
        return lambda scope, budget: function(budget, *[read(scope, budget) for read in operands])

    return build


def _in(budget: Budget, member: Json, container: Json) -> bool:
    return operators.contains(budget, container, member)


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
    "==": _metered(operators.equal),
    "!=": _metered(lambda budget, left, right: not operators.equal(budget, left, right)),
    "<": _metered(lambda budget, left, right: operators.compare(budget, left, right) < 0),
    ">": _metered(lambda budget, left, right: operators.compare(budget, left, right) > 0),
    "<=": _metered(lambda budget, left, right: operators.compare(budget, left, right) <= 0),
    ">=": _metered(lambda budget, left, right: operators.compare(budget, left, right) >= 0),
    "contains": _metered(operators.contains),
    "in": _metered(_in),
    "not_in": _metered(lambda budget, member, container: not _in(budget, member, container)),
    "starts_with": _metered(operators.starts_with),
    "ends_with": _metered(operators.ends_with),
    "+": _applied(operators.add),
    "-": _applied(operators.subtract),
    "negative": _applied(operators.negate),
    "lower": _metered(operators.lower),
    "upper": _metered(operators.upper),
    "length": _applied(operators.length),
    "join": _metered(operators.join),
    "tojson": _metered(operators.to_json_counted),
}
