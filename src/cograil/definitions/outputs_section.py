"""The outputs of a workflow: what its jobs result in, as templates over its nodes and inputs."""

from __future__ import annotations

from cograil.definitions.mapping_reader import ID, MappingReader
from cograil.definitions.template_collector import TemplateCollector
from cograil.definitions.templates import CompiledTemplate


def read_outputs(section: MappingReader, holes: TemplateCollector) -> dict[str, CompiledTemplate]:
    """The declared outputs; what is wrong goes to the report of the section."""
    found: dict[str, CompiledTemplate] = {}
    for name, value, pointer in section.items():
        if not ID.fullmatch(name):
            rule = "1 to 64 letters, digits, `_`, `.` and `-`, the first a letter or digit"
            section.report.add("invalid_id", f"output {name[:80]!r} must be {rule}", pointer, at_key=True)
        template = holes.template(None, value, pointer, at_end=True)
        if template is not None:
            found[name] = template
    return found
