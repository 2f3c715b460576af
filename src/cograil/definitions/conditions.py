"""Conditions of branches and `when`: expressions that are true or false.

The same language as in templates, but stricter: `and`, `or`, `not` and the whole must be booleans.
"""

from __future__ import annotations

from collections.abc import Callable

from cograil.definitions.evaluation import Evaluate, compile_expression
from cograil.definitions.expressions import (
    Constant,
    Expression,
    ExpressionUsage,
    Operation,
    Path,
    Subject,
    TemplateError,
    check_names,
    expression_size,
    refuse_long,
)
from cograil.definitions.lexer import Scanner
from cograil.definitions.operators import as_boolean, as_choice, equal
from cograil.definitions.parser import parse_condition
from cograil.definitions.templates import CompiledTemplate, compile_template
from cograil.model.evaluation_budget import Budget, ExpressionTooCostly
from cograil.model.workflow import Json, Scope

_FIELD_ROOTS = frozenset(("inputs", "nodes", "output", "upstream"))


def compile_condition(
    text: str, subject: CompiledTemplate | None = None, *, null_is_false: bool = False
) -> CompiledTemplate:
    """Compile the condition of a branch; it renders to true or false.

    With a subject, an operator without a left operand applies to the subject (`"< 100"`,
    `">= 10 and < 20"`, `"is_null"`), and a lone `true` or `false` is compared with the subject.
    With `null_is_false` the result may also be null, which is the value of an optional input without a
    value. Raises TemplateError.
    """
    refuse_long(text)
    expression = parse_condition(text, has_subject=subject is not None)
    if subject is not None and isinstance(expression, Constant) and isinstance(expression.value, bool):
        # A branch that is always or never taken is a mistake.
        expression = Operation("==", (Subject(), expression), depth=2)
    usage = check_names(expression, text) | (subject.usage if subject else ExpressionUsage())
    evaluate = compile_expression(expression, as_boolean, subject.evaluate if subject else None)
    conclude = as_choice if null_is_false else as_boolean
    return CompiledTemplate.of(_counted(evaluate, conclude, expression, text), usage)


def _counted(
    evaluate: Evaluate, conclude: Callable[[Json], bool], expression: Expression, text: str
) -> Evaluate:
    steps = expression_size(expression)

    def counted(scope: Scope, budget: Budget) -> bool:
        try:
            budget.spend(steps)
            return conclude(evaluate(scope, budget))
        except ExpressionTooCostly as error:
            raise error.located(text) from None

    return counted


def refuse_quoted_holes(text: str) -> None:
    """Refuse `'{{ inputs.kind }}' == 'a'`, which compares two texts and is never true."""
    refuse_long(text)
    for token in Scanner(text).whole():
        if token.kind == "text" and "{{" in token.value:
            message = "{{ inside quotes is plain text; use the name without braces, as in inputs.kind == 'a'"
            raise TemplateError.at(text, token.offset, "template_syntax", message)


def compile_condition_field(text: str) -> CompiledTemplate:
    """Compile a condition_field: a template, or a dotted path.

    A path starts with a root name (`output.size`, `nodes.a.output.size`). Any other path is resolved in the
    output of the direct predecessor (`size`, `tags.0`). Raises TemplateError.
    """
    if "{{" in text:
        return compile_template(text)
    refuse_long(text)
    path = parse_condition(text, has_subject=False)
    if not isinstance(path, Path):
        raise TemplateError.at(text, 0, "template_syntax", f"{text} is not a template or a dotted path")
    if path.root not in _FIELD_ROOTS:
        path = Path("output", (path.root, *path.steps), path.offset)
    read = compile_expression(path)

    def counted(scope: Scope, budget: Budget) -> Json:
        budget.spend(1 + len(path.steps))
        return read(scope, budget)

    return CompiledTemplate.of(counted, check_names(path, text))


def compile_match(subject: CompiledTemplate, key: Json) -> CompiledTemplate:
    """Compile the test of a branch by value: true when the subject equals `key`."""

    def matches(scope: Scope, budget: Budget) -> bool:
        return equal(budget, subject.evaluate(scope, budget), key)

    return CompiledTemplate.of(matches, subject.usage)
