"""Values with placeholders: `"{{ inputs.name }}"` anywhere in the params of a node.

A string that is one placeholder keeps the type of its value; a placeholder in the middle of text becomes
text. Keys are never placeholders. An inserted value is data: it is never evaluated again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from cograil.definitions.evaluation import Evaluate, compile_expression
from cograil.definitions.expressions import (
    MAX_DEPTH,
    MAX_NODES,
    ExpressionUsage,
    TemplateError,
    check_names,
    refuse_long,
)
from cograil.definitions.operators import MAX_RENDERED_BYTES, Meter, as_text, bounded, size_of
from cograil.definitions.parser import parse_placeholder
from cograil.model.evaluation_budget import Budget, ExpressionTooCostly
from cograil.model.workflow import Json, Scope

_MARKER = re.compile(r"\{[{%#]")
_STATEMENTS = {"{%": ("%}", "statements"), "{#": ("#}", "comments")}

_Fill = Callable[[Scope, Meter], Json]


@dataclass(slots=True)
class CompiledTemplate:
    """A compiled value or condition, and the names that it reads.

    `names` are the roots it reads, `references` the nodes, `input_names` the inputs. `uses_output`:
    it reads the output of the direct predecessor. `is_constant`: it always renders to the same value.
    """

    evaluate: Evaluate
    names: frozenset[str]
    references: frozenset[str]
    input_names: frozenset[str]
    uses_output: bool
    is_constant: bool = False
    has_all_inputs: bool = False

    @classmethod
    def of(cls, evaluate: Evaluate, usage: ExpressionUsage, *, is_constant: bool = False) -> CompiledTemplate:
        """Create a template from its closure and usage."""
        uses_output = not usage.names.isdisjoint(("output", "upstream"))
        return cls(
            evaluate,
            usage.names,
            usage.references,
            usage.input_names,
            uses_output,
            is_constant,
            usage.has_all_inputs,
        )

    def render(self, scope: Scope, budget: Budget | None = None) -> Json:
        """Render the value in this scope. Raises RenderError. Without a budget it gets its own."""
        return self.evaluate(scope, Budget() if budget is None else budget)

    def reads_input(self, name: str) -> bool:
        """Whether the result may depend on this input."""
        return self.has_all_inputs or name in self.input_names

    @property
    def usage(self) -> ExpressionUsage:
        """The names that it reads, as one value to merge with others."""
        return ExpressionUsage(self.names, self.references, self.input_names, self.has_all_inputs)


def compile_template(value: Json) -> CompiledTemplate:
    """Compile any JSON value; raises TemplateError for an invalid template in it."""
    compiler = _Compiler()
    fill = compiler.compile(value, depth=0)
    if fill is None:
        return CompiledTemplate.of(lambda scope, budget: value, ExpressionUsage(), is_constant=True)
    room = MAX_RENDERED_BYTES - (size_of(value) - compiler.source_bytes)
    steps = compiler.steps

    def evaluate(scope: Scope, budget: Budget) -> Json:
        budget.spend(steps)
        return fill(scope, Meter(budget, room))

    return CompiledTemplate.of(evaluate, compiler.usage)


def compile_text(text: str) -> CompiledTemplate:
    """Compile a string that always renders to text. Raises TemplateError."""
    template = compile_template(text)
    if template.is_constant:
        return template
    return CompiledTemplate.of(
        lambda scope, budget: as_text(template.evaluate(scope, budget)), template.usage
    )


class _Compiler:
    """Compiles the strings of one value and collects their usage."""

    def __init__(self) -> None:
        self.usage = ExpressionUsage()
        self.steps = 0  # fixed cost of every rendering
        self.source_bytes = 0  # of strings with placeholders; all other bytes are rendered unchanged

    def compile(self, value: Json, depth: int) -> _Fill | None:
        """Return a function that renders a value; None when it has no placeholders."""
        if isinstance(value, str):
            return self._string(value)
        if not isinstance(value, list | dict):
            return None
        if depth >= MAX_DEPTH:
            raise TemplateError("template_too_complex", "the value is nested too deeply")
        return self._members(value, depth)

    def _members(self, value: list[Json] | dict[str, Json], depth: int) -> _Fill | None:
        placeholders: list[tuple[Json, _Fill]] = []
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            try:
                fill = self.compile(member, depth + 1)
            except TemplateError as error:
                error.path = (key, *error.path)
                raise
            if fill is not None:
                placeholders.append((key, fill))
        self.steps += len(value) >> 4 if placeholders else 0
        return _filled(value, placeholders) if placeholders else None

    def _string(self, text: str) -> _Fill | None:
        if not _MARKER.search(text):
            return None
        refuse_long(text)
        self.source_bytes += size_of(text)
        parts = self._parts(text)
        if len(parts) == 1 and not isinstance(parts[0], str):
            return _whole(parts[0], text)
        return _mixed(parts, text)

    def _parts(self, text: str) -> list[str | Evaluate]:
        """Split a text into text and placeholders.

        A newline after the only placeholder is dropped, because YAML blocks end with one.
        """
        parts: list[str | Evaluate] = []
        position, nodes = 0, 0
        while marker := _MARKER.search(text, position):
            start = marker.start()
            _refuse_statement(text, start)
            placeholder = parse_placeholder(text, start, MAX_NODES - nodes)
            before = text[position:start]
            parts.append(before.rstrip() if text.startswith("{{-", start) else before)
            self.usage |= check_names(placeholder.expression, text)
            parts.append(compile_expression(placeholder.expression))
            nodes += placeholder.nodes
            self.steps += 1 + placeholder.nodes
            position = (
                _behind_spaces(text, placeholder.end)
                if text.endswith("-}}", 0, placeholder.end)
                else placeholder.end
            )
        rest = text[position:]
        parts.append("" if rest == "\n" and parts[:-1] == [""] else rest)
        return [part for part in parts if part != ""]


def _behind_spaces(text: str, position: int) -> int:
    while text[position : position + 1].isspace():
        position += 1
    return position


def _refuse_statement(text: str, start: int) -> None:
    marker = text[start : start + 2]
    if marker == "{{":
        return
    closing, what = _STATEMENTS[marker]
    hint = f"(use {{{{ '{marker}' }}}} for a literal {marker})"
    if closing not in text[start:]:
        raise TemplateError.at(text, start, "template_syntax", f"{marker} is not closed {hint}")
    raise TemplateError.at(text, start, "template_forbidden", f"{what} are not part of the language {hint}")


def _filled(value: list[Json] | dict[str, Json], placeholders: list[tuple[Json, _Fill]]) -> _Fill:
    def fill(scope: Scope, meter: Meter) -> Json:
        copy: Json = value.copy()
        for key, fill_member in placeholders:
            copy[key] = fill_member(scope, meter)
        return copy

    return fill


def _whole(evaluate: Evaluate, text: str) -> _Fill:
    def fill(scope: Scope, meter: Meter) -> Json:
        try:
            return meter.charged(evaluate(scope, meter.budget))
        except ExpressionTooCostly as error:
            raise error.located(text) from None

    return fill


def _mixed(parts: list[str | Evaluate], text: str) -> _Fill:
    def fill(scope: Scope, meter: Meter) -> str:
        budget = meter.budget
        pieces = (part if isinstance(part, str) else as_text(part(scope, budget)) for part in parts)
        try:
            rendered = bounded(pieces, budget)
            meter.charged(rendered)
        except ExpressionTooCostly as error:
            raise error.located(text) from None
        return rendered

    return fill
