"""Values with holes: `"{{ inputs.name }}"` anywhere in the params of a node.

A string that is one hole keeps the type of its value; a hole in the middle of text becomes text. Keys
are never templates, and what is put into a hole is data: it is not looked at again.
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
    """A compiled value or condition, and what is known of it without rendering.

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
    def of(cls, evaluate: Evaluate, facts: ExpressionUsage, *, is_constant: bool = False) -> CompiledTemplate:
        """A template that renders so and mentions these."""
        uses_output = not facts.names.isdisjoint(("output", "upstream"))
        return cls(
            evaluate,
            facts.names,
            facts.references,
            facts.input_names,
            uses_output,
            is_constant,
            facts.has_all_inputs,
        )

    def render(self, scope: Scope, budget: Budget | None = None) -> Json:
        """Its value in this scope; without a budget it has one of its own. Raises RenderError."""
        return self.evaluate(scope, Budget() if budget is None else budget)

    def reads_input(self, name: str) -> bool:
        """Whether what it renders to may depend on this input."""
        return self.has_all_inputs or name in self.input_names

    @property
    def facts(self) -> ExpressionUsage:
        """What it mentions, to be joined with the facts of others."""
        return ExpressionUsage(self.names, self.references, self.input_names, self.has_all_inputs)


def compile_template(value: Json) -> CompiledTemplate:
    """Compile any JSON value; raises TemplateError for a string in it that is no valid template."""
    compiler = _Compiler()
    fill = compiler.compile(value, depth=0)
    if fill is None:
        return CompiledTemplate.of(lambda scope, budget: value, ExpressionUsage(), is_constant=True)
    room = MAX_RENDERED_BYTES - (size_of(value) - compiler.source_bytes)
    steps = compiler.steps

    def evaluate(scope: Scope, budget: Budget) -> Json:
        budget.spend(steps)
        return fill(scope, Meter(budget, room))

    return CompiledTemplate.of(evaluate, compiler.facts)


def compile_text(text: str) -> CompiledTemplate:
    """Compile a string that renders to text even where it is a single hole; raises TemplateError."""
    template = compile_template(text)
    if template.is_constant:
        return template
    return CompiledTemplate.of(
        lambda scope, budget: as_text(template.evaluate(scope, budget)), template.facts
    )


class _Compiler:
    """Compiles the strings of one value and gathers what they mention."""

    def __init__(self) -> None:
        self.facts = ExpressionUsage()
        self.steps = 0  # what every rendering takes, whatever the values are
        self.source_bytes = 0  # of the strings with holes: all other bytes are rendered as they stand

    def compile(self, value: Json, depth: int) -> _Fill | None:
        """How to fill the holes of a value; None when it has none."""
        if isinstance(value, str):
            return self._string(value)
        if not isinstance(value, list | dict):
            return None
        if depth >= MAX_DEPTH:
            raise TemplateError("template_too_complex", "the value is nested too deeply")
        return self._members(value, depth)

    def _members(self, value: list[Json] | dict[str, Json], depth: int) -> _Fill | None:
        holes: list[tuple[Json, _Fill]] = []
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            try:
                fill = self.compile(member, depth + 1)
            except TemplateError as error:
                error.path = (key, *error.path)
                raise
            if fill is not None:
                holes.append((key, fill))
        self.steps += len(value) >> 4 if holes else 0
        return _filled(value, holes) if holes else None

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
        """Text and holes in turn. A newline behind the only hole is dropped, as YAML blocks end in one."""
        parts: list[str | Evaluate] = []
        position, nodes = 0, 0
        while marker := _MARKER.search(text, position):
            start = marker.start()
            _refuse_statement(text, start)
            hole = parse_placeholder(text, start, MAX_NODES - nodes)
            before = text[position:start]
            parts.append(before.rstrip() if text.startswith("{{-", start) else before)
            self.facts |= check_names(hole.expression, text)
            parts.append(compile_expression(hole.expression))
            nodes += hole.nodes
            self.steps += 1 + hole.nodes
            position = _behind_spaces(text, hole.end) if text.endswith("-}}", 0, hole.end) else hole.end
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
    hint = f"(to write {marker} as text: {{{{ '{marker}' }}}})"
    if closing not in text[start:]:
        raise TemplateError.at(text, start, "template_syntax", f"{marker} is not closed {hint}")
    raise TemplateError.at(text, start, "template_forbidden", f"{what} are not part of the language {hint}")


def _filled(value: list[Json] | dict[str, Json], holes: list[tuple[Json, _Fill]]) -> _Fill:
    def fill(scope: Scope, meter: Meter) -> Json:
        copy: Json = value.copy()
        for key, fill_member in holes:
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
