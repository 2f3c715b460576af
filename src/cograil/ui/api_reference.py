"""The OpenAPI document for the reference page: operations by tag, with parameters, bodies and responses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from cograil.http.server.application import ROUTERS
from cograil.http.server.openapi import document

Schema = Mapping[str, Any]
MAX_DEPTH = 3
FIRST = ("jobs", "workflows", "schedules", "live events", "deliveries")
METHODS = ("get", "post", "put", "patch", "delete")


@cache
def api_document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the API."""
    return document(endpoint for router in ROUTERS for endpoint in router.endpoints)


@cache
def api_reference() -> dict[str, list[dict[str, Any]]]:
    """Return the operations of the API, by tag."""
    whole = api_document()
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in whole["paths"].items():
        for method in (name for name in METHODS if name in methods):
            operation = methods[method]
            tag = (operation.get("tags") or ["probes"])[0]
            groups.setdefault(tag, []).append(_operation(path, method, operation, whole["components"]))
    return dict(sorted(groups.items(), key=lambda group: _place(group[0])))


def _place(tag: str) -> int:
    """Return the sort position of a tag: common tags first, aliases last."""
    return FIRST.index(tag) if tag in FIRST else len(FIRST) + (tag == "dag")


def _operation(path: str, method: str, operation: Schema, components: Schema) -> dict[str, Any]:
    body = operation.get("requestBody")
    return {
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "summary": operation.get("summary", ""),
        "description": operation.get("description", ""),
        "roles": operation.get("x-requires", ()),
        "parameters": [_parameter(parameter, components) for parameter in operation.get("parameters", ())],
        "body": None if body is None else _content(body, components),
        "answers": [_answer(code, response, components) for code, response in operation["responses"].items()],
        "example": _example(path, method, body, components),
    }


def _parameter(parameter: Schema, components: Schema) -> dict[str, Any]:
    return {
        "name": parameter["name"],
        "place": parameter["in"],
        "is_required": parameter.get("required", False),
        "type": shape_text(parameter.get("schema", {}), components, MAX_DEPTH),
        "description": parameter.get("description", ""),
    }


def _answer(code: str, response: Schema, components: Schema) -> dict[str, Any]:
    resolved = _resolved(response, components)
    is_common = "$ref" in response
    shape = "" if is_common else _content(resolved, components)
    return {
        "code": code,
        "description": resolved.get("description", ""),
        "shape": shape,
        "is_common": is_common,
    }


def _content(response: Schema, components: Schema) -> str:
    schemas = [content.get("schema", {}) for content in response.get("content", {}).values()]
    return shape_text(schemas[0], components) if schemas else ""


def _resolved(schema: Schema, components: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    _, _, kind, name = schema["$ref"].split("/")
    component: Schema = components[kind][name]
    return component


def shape_text(schema: Schema, components: Schema, depth: int = 0) -> str:
    """Return a schema as a JSON outline; deep levels show only the type name."""
    if "$ref" in schema and depth >= MAX_DEPTH:
        return str(schema["$ref"].rsplit("/", 1)[1])
    resolved = _resolved(schema, components)
    if choices := resolved.get("anyOf") or resolved.get("oneOf"):
        return " | ".join(dict.fromkeys(shape_text(choice, components, depth) for choice in choices))
    if "enum" in resolved:
        return " | ".join(repr(value).replace("'", '"') for value in resolved["enum"])
    if "const" in resolved:
        return repr(resolved["const"]).replace("'", '"')
    if resolved.get("properties") and depth < MAX_DEPTH:
        return _object_text(resolved, components, depth)
    if resolved.get("type") == "array":
        return f"[{shape_text(resolved.get('items', {}), components, depth + 1)}, ...]"
    kind = resolved.get("type", "any")
    return " | ".join(kind) if isinstance(kind, list) else str(kind)


def _object_text(schema: Schema, components: Schema, depth: int) -> str:
    indent = "  " * (depth + 1)
    required = schema.get("required", ())
    lines = [
        f"{indent}{name}{'' if name in required else '?'}: {shape_text(property_schema, components, depth + 1)}"
        for name, property_schema in schema["properties"].items()
    ]
    return "{\n" + "\n".join(lines) + "\n" + "  " * depth + "}"


def _example(path: str, method: str, body: Schema | None, components: Schema) -> str:
    """Return an example for curl, with placeholders in capitals."""
    parts = ["curl"] + ([] if method == "get" else [f"-X {method.upper()}"])
    named = path.replace("{", "").replace("}", "")
    for name in [part[1:-1] for part in path.split("/") if part.startswith("{")]:
        named = named.replace(f"/{name}", f"/{name.upper()}", 1)
    parts += ['-H "Authorization: Bearer $COGRAIL_KEY"']
    if body is not None:
        parts += ["-H 'Content-Type: application/json'", f"-d '{_sample(body, components)}'"]
    return " ".join([*parts, f"$COGRAIL_URL{named}"])


def _sample(body: Schema, components: Schema) -> str:
    schemas = [content["schema"] for content in body["content"].values()]
    resolved = _resolved(schemas[0], components)
    return "{" + ", ".join(f'"{name}": ...' for name in resolved.get("required", ())) + "}"
