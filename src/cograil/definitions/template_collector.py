"""Collects every template of a workflow, compiled once, with its pointer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cograil.definitions.conditions import compile_condition, compile_condition_field, refuse_quoted_holes
from cograil.definitions.diagnostics import Diagnostics, child
from cograil.definitions.expressions import TemplateError
from cograil.definitions.templates import CompiledTemplate, compile_template, compile_text
from cograil.model.workflow import Json


@dataclass(frozen=True, slots=True)
class CollectedTemplate:
    """A template, the node that renders it and its source value."""

    node_id: str | None  # None: rendered for the whole job, from its inputs only
    template: CompiledTemplate
    value: Json
    pointer: str
    in_children: bool  # rendered for every child of a fan_out, with item and index
    at_end: bool = False  # rendered when the job ends, with all nodes

    def parts(self) -> Iterator[tuple[CompiledTemplate, str]]:
        """Yield each string of the value, compiled by itself, to locate the invalid one."""
        if isinstance(self.value, dict | list):
            for text, pointer in strings_in(self.value, self.pointer):
                yield compile_template(text), pointer
        else:
            yield self.template, self.pointer


class TemplateCollector:
    """Compiles templates. A string that does not compile is reported at its pointer."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.collected_templates: list[CollectedTemplate] = []
        self._diagnostics = diagnostics

    def template(
        self,
        node_id: str | None,
        value: Json,
        pointer: str,
        *,
        in_children: bool = False,
        at_end: bool = False,
    ) -> CompiledTemplate | None:
        """Compile any value with `{{ }}` in its strings; None when it has problems.

        In that case each string is compiled by itself, so that all problems are reported.
        """
        try:
            template = compile_template(value)
        except TemplateError:
            for text, place in strings_in(value, pointer):
                self._collect(node_id, compile_template, text, place, in_children=in_children, at_end=at_end)
            return None
        self.collected_templates.append(
            CollectedTemplate(node_id, template, value, pointer, in_children, at_end)
        )
        return template

    def text(self, node_id: str, text: str, pointer: str) -> CompiledTemplate | None:
        """Compile a string that renders to text; None when it has problems."""
        return self._collect(node_id, compile_text, text, pointer)

    def condition(
        self, node_id: str, text: str, pointer: str, subject: CompiledTemplate | None
    ) -> CompiledTemplate | None:
        """Compile a boolean expression; with a subject it may start with an operator."""
        return self._collect(node_id, lambda value: self._condition(value, subject=subject), text, pointer)

    def choice(self, node_id: str, text: str, pointer: str) -> CompiledTemplate | None:
        """Compile a boolean expression in which null counts as false."""
        return self._collect(node_id, lambda value: self._condition(value, null_is_false=True), text, pointer)

    def expression(self, node_id: str, text: str, pointer: str) -> CompiledTemplate | None:
        """Compile an expression of any type, with or without braces."""
        compiler = compile_template if "{{" in text else _compile_bare
        return self._collect(node_id, compiler, text, pointer)

    def condition_field(self, node_id: str, text: str, pointer: str) -> CompiledTemplate | None:
        """Compile the subject of a conditional: a template, or a path into the predecessor's output."""
        return self._collect(node_id, compile_condition_field, text, pointer)

    def _condition(self, text: str, **options: Any) -> CompiledTemplate:
        if self._diagnostics.is_new:
            refuse_quoted_holes(text)
        return compile_condition(text, **options)

    def _collect(
        self,
        node_id: str | None,
        compiler: Callable[[str], CompiledTemplate],
        text: str,
        pointer: str,
        *,
        in_children: bool = False,
        at_end: bool = False,
    ) -> CompiledTemplate | None:
        template = self._compile(compiler, text, pointer)
        if template is not None:
            self.collected_templates.append(
                CollectedTemplate(node_id, template, text, pointer, in_children, at_end)
            )
        return template

    def _compile(
        self, compiler: Callable[[str], CompiledTemplate], text: str, pointer: str
    ) -> CompiledTemplate | None:
        try:
            return compiler(text)
        except TemplateError as error:
            self._diagnostics.add(error.code, f"{error.message}{_within_text(error)}", pointer)
            return None


def _compile_bare(text: str) -> CompiledTemplate:
    """Compile an expression without braces."""
    try:
        return compile_template(f"{{{{{text}}}}}")
    except TemplateError as error:
        if error.line == 1 and error.column:
            error.column -= len("{{")
        raise


def _within_text(error: TemplateError) -> str:
    if not error.column:
        return ""
    line = f"line {error.line}, " if error.line and error.line > 1 else ""
    return f" (at {line}character {error.column})"


def strings_in(value: Json, pointer: str) -> Iterator[tuple[str, str]]:
    """Yield the strings in a value with their pointers. The reader limits the depth."""
    if isinstance(value, str):
        yield value, pointer
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from strings_in(inner, child(pointer, index))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from strings_in(inner, child(pointer, key))
