"""The conditions of branches: expressions that are true or false.

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

    With a subject, an operator that has nothing before it looks at the subject (`"< 100"`,
    `">= 10 and < 20"`, `"is_null"`), and a lone `true` or `false` is what the subject must be equal to.
    With `null_is_false` the whole may also be null, as an optional input is that nobody gave. Raises
    TemplateError.
    """
    refuse_long(text)
    expression = parse_condition(text, has_subject=subject is not None)
    if subject is not None and isinstance(expression, Constant) and isinstance(expression.value, bool):
        # A branch that is always or never taken, whatever the field holds, is nobody's wish.
        expression = Operation("==", (Subject(), expression), depth=2)
    facts = check_names(expression, text) | (subject.facts if subject else ExpressionUsage())
    evaluate = compile_expression(expression, as_boolean, subject.evaluate if subject else None)
    conclude = as_choice if null_is_false else as_boolean
    return CompiledTemplate.of(_counted(evaluate, conclude, expression, text), facts)


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
    """`'{{ inputs.kind }}' == 'a'` would compare two texts, and never be true: nobody's wish either."""
    refuse_long(text)
    for token in Scanner(text).whole():
        if token.kind == "text" and "{{" in token.value:
            message = "{{ between quotes is only text; write the name as it is, as in inputs.kind == 'a'"
            raise TemplateError.at(text, token.offset, "template_syntax", message)


def compile_condition_field(text: str) -> CompiledTemplate:
    """Compile a condition_field: a template, or a dotted path.

    The path begins with a name that expressions know (`output.size`, `nodes.a.output.size`), else it
    leads into the output of the direct predecessor (`size`, `tags.0`). Raises TemplateError.
    """
    if "{{" in text:
        return compile_template(text)
    refuse_long(text)
    path = parse_condition(text, has_subject=False)
    if not isinstance(path, Path):
        raise TemplateError.at(text, 0, "template_syntax", f"{text} is neither a template nor a dotted path")
    if path.root not in _FIELD_ROOTS:
        path = Path("output", (path.root, *path.steps), path.offset)
    read = compile_expression(path)

    def counted(scope: Scope, budget: Budget) -> Json:
        budget.spend(1 + len(path.steps))
        return read(scope, budget)

    return CompiledTemplate.of(counted, check_names(path, text))


def compile_match(subject: CompiledTemplate, key: Json) -> CompiledTemplate:
    """The test of a branch that is named by a value: true when the subject is equal to `key`."""

    def matches(scope: Scope, budget: Budget) -> bool:
        return equal(budget, subject.evaluate(scope, budget), key)

    return CompiledTemplate.of(matches, subject.facts)
