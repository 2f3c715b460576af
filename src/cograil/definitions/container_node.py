"""The `container` node. The engine sees a task of the handler `container` with the param `body`."""

from __future__ import annotations

from dataclasses import replace

from cograil.definitions.mapping_reader import MISSING, MappingReader
from cograil.definitions.template_collector import TemplateCollector, strings_in
from cograil.model.artifact_plan import make_plan
from cograil.model.container_spec import ContainerBody, InvalidRequest, read_body
from cograil.model.workflow import CONTAINER, Json, WorkflowNode
from cograil.strict_json import kind_of

KEYS = tuple(field.alias or name for name, field in ContainerBody.model_fields.items())


def read_container(node: WorkflowNode, parent: MappingReader, templates: TemplateCollector) -> WorkflowNode:
    """Return the node as a task. A body without templates is checked now, any other when it is rendered."""
    node = replace(node, handler=CONTAINER)
    if not parent.require("container", "give the image to run"):
        return node
    value, pointer = parent.get("container"), parent.at("container")
    if isinstance(value, dict):
        value = _read_body(MappingReader.of(value, pointer, parent.diagnostics))
    elif not (isinstance(value, str) and "{{" in value):
        message = f"container must be a mapping or a template that renders to one, not {kind_of(value)}"
        parent.diagnostics.add("invalid_type", message, pointer)
        return node
    return replace(node, params=templates.template(node.node_id, {"body": value}, pointer))


def _read_body(keys: MappingReader) -> dict[str, Json]:
    keys.require("image", "give the image to run")
    body = {key: value for key in KEYS if (value := keys.get(key)) is not MISSING}
    keys.close({key: f"{key!r} is a key of POST /v1/jobs, not of a node" for key in ("id", "callback")})
    if "image" in body and not any("{{" in text for text, _ in strings_in(body, "")):
        try:
            make_plan(read_body(body, ContainerBody).artifacts)
        except InvalidRequest as error:
            keys.diagnostics.add("invalid_value", f"container: {error}", keys.pointer)
    return body
