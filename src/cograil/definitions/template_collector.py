"""Every template of a workflow, compiled once and remembered with its place."""

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
    """A template, the node that renders it and the value it was made from."""

    node_id: str | None  # None: rendered for the job as a whole, which has nothing but its inputs
    template: CompiledTemplate
    value: Json
    pointer: str
    in_children: bool  # rendered for every child of a fan_out, where item and index are known
    at_end: bool = False  # rendered when the job is over, where all nodes are known

    def parts(self) -> Iterator[tuple[CompiledTemplate, str]]:
        """Every string of the value compiled by itself, to find the one that is wrong."""
        if isinstance(self.value, dict | list):
            for text, pointer in strings_in(self.value, self.pointer):
                yield compile_template(text), pointer
        else:
            yield self.template, self.pointer


class TemplateCollector:
    """Compiles; what does not compile is reported at the string in question."""

    def __init__(self, report: Diagnostics) -> None:
        self.found: list[CollectedTemplate] = []
        self._report = report

    def template(
        self,
        node_id: str | None,
        value: Json,
        pointer: str,
        *,
        in_children: bool = False,
        at_end: bool = False,
    ) -> CompiledTemplate | None:
        """Any value with `{{ }}` in its strings; None when it has problems.

        Then its other strings are kept one by one, so that what is wrong with them is told as well.
        """
        try:
            template = compile_template(value)
        except TemplateError:
            for text, place in strings_in(value, pointer):
                self._kept(node_id, compile_template, text, place, in_children=in_children, at_end=at_end)
            return None
        self.found.append(CollectedTemplate(node_id, template, value, pointer, in_children, at_end))
        return template

    def text(self, node_id: str, text: str, pointer: str) -> CompiledTemplate | None:
        """A string that renders to text; None when it has problems."""
        return self._kept(node_id, compile_text, text, pointer)

    def condition(
        self, node_id: str, text: str, pointer: str, subject: CompiledTemplate | None
    ) -> CompiledTemplate | None:
        """An expression that is true or false; with a subject it may begin with an operator."""
        return self._kept(node_id, lambda value: self._condition(value, subject=subject), text, pointer)

    def choice(self, node_id: str, text: str, pointer: str) -> CompiledTemplate | None:
        """An expression that is true or false, or null, which is false too."""
        return self._kept(node_id, lambda value: self._condition(value, null_is_false=True), text, pointer)

    def expression(self, node_id: str, text: str, pointer: str) -> CompiledTemplate | None:
        """An expression of any type, with or without braces around it."""
        compiler = compile_template if "{{" in text else _compile_bare
        return self._kept(node_id, compiler, text, pointer)

    def condition_field(self, node_id: str, text: str, pointer: str) -> CompiledTemplate | None:
        """The subject of a conditional: a template or a path into the predecessor's output."""
        return self._kept(node_id, compile_condition_field, text, pointer)

    def _condition(self, text: str, **how: Any) -> CompiledTemplate:
        if self._report.is_new:
            refuse_quoted_holes(text)
        return compile_condition(text, **how)

    def _kept(
        self,
        node_id: str | None,
        compiler: Callable[[str], CompiledTemplate],
        text: str,
        pointer: str,
        *,
        in_children: bool = False,
        at_end: bool = False,
    ) -> CompiledTemplate | None:
        template = self._compiled(compiler, text, pointer)
        if template is not None:
            self.found.append(CollectedTemplate(node_id, template, text, pointer, in_children, at_end))
        return template

    def _compiled(
        self, compiler: Callable[[str], CompiledTemplate], text: str, pointer: str
    ) -> CompiledTemplate | None:
        try:
            return compiler(text)
        except TemplateError as error:
            self._report.add(error.code, f"{error.message}{_within_text(error)}", pointer)
            return None


def _compile_bare(text: str) -> CompiledTemplate:
    """Compile an expression that has no braces around it."""
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
    """The strings in a value with their pointers; the reader has limited the depth."""
    if isinstance(value, str):
        yield value, pointer
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from strings_in(inner, child(pointer, index))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from strings_in(inner, child(pointer, key))
