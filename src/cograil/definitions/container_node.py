"""`container`: one container. The engine sees a task of the handler `container` with the param `body`."""

from __future__ import annotations

from dataclasses import replace

from cograil.definitions.mapping_reader import MISSING, MappingReader
from cograil.definitions.template_collector import TemplateCollector, strings_in
from cograil.model.artifact_plan import make_plan
from cograil.model.container_spec import ContainerBody, InvalidRequest, read_body
from cograil.model.workflow import CONTAINER, Json, Node
from cograil.strict_json import kind_of

KEYS = tuple(field.alias or name for name, field in ContainerBody.model_fields.items())


def read_container(node: Node, above: MappingReader, holes: TemplateCollector) -> Node:
    """The node as a task. What has no holes in it is checked as a whole, the rest when it is rendered."""
    node = replace(node, handler=CONTAINER)
    if not above.require("container", "say which image runs"):
        return node
    value, pointer = above.get("container"), above.at("container")
    if isinstance(value, dict):
        value = _read_body(MappingReader.of(value, pointer, above.report))
    elif not (isinstance(value, str) and "{{" in value):
        message = f"container must be a mapping, or a template that gives one, not {kind_of(value)}"
        above.report.add("invalid_type", message, pointer)
        return node
    return replace(node, params=holes.template(node.node_id, {"body": value}, pointer))


def _read_body(keys: MappingReader) -> dict[str, Json]:
    keys.require("image", "name the image that runs")
    given = {key: value for key in KEYS if (value := keys.get(key)) is not MISSING}
    keys.close({key: f"{key!r} belongs to POST /v1/jobs" for key in ("id", "callback")})
    if "image" in given and not any("{{" in text for text, _ in strings_in(given, "")):
        try:
            make_plan(read_body(given, ContainerBody).artifacts)
        except InvalidRequest as error:
            keys.report.add("invalid_value", f"container: {error}", keys.pointer)
    return given
