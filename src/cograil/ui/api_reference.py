"""The OpenAPI document as a page reads it: operations by tag, with their parameters, bodies and answers."""

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
    """The API as OpenAPI 3.1."""
    return document(endpoint for router in ROUTERS for endpoint in router.endpoints)


@cache
def api_reference() -> dict[str, list[dict[str, Any]]]:
    """The operations of the API, by their tag."""
    whole = api_document()
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in whole["paths"].items():
        for method in (name for name in METHODS if name in methods):
            operation = methods[method]
            tag = (operation.get("tags") or ["probes"])[0]
            groups.setdefault(tag, []).append(_operation(path, method, operation, whole["components"]))
    return dict(sorted(groups.items(), key=lambda group: _place(group[0])))


def _place(tag: str) -> int:
    """What most people look for stands first, other names for the same routes last."""
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
        "parameters": [_parameter(one, components) for one in operation.get("parameters", ())],
        "body": None if body is None else _content(body, components),
        "answers": [_answer(code, one, components) for code, one in operation["responses"].items()],
        "example": _example(path, method, body, components),
    }


def _parameter(one: Schema, components: Schema) -> dict[str, Any]:
    return {
        "name": one["name"],
        "place": one["in"],
        "is_required": one.get("required", False),
        "type": shape_text(one.get("schema", {}), components, MAX_DEPTH),
        "description": one.get("description", ""),
    }


def _answer(code: str, one: Schema, components: Schema) -> dict[str, Any]:
    found = _resolved(one, components)
    is_common = "$ref" in one
    shape = "" if is_common else _content(found, components)
    return {
        "code": code,
        "description": found.get("description", ""),
        "shape": shape,
        "is_common": is_common,
    }


def _content(one: Schema, components: Schema) -> str:
    schemas = [content.get("schema", {}) for content in one.get("content", {}).values()]
    return shape_text(schemas[0], components) if schemas else ""


def _resolved(schema: Schema, components: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    _, _, kind, name = schema["$ref"].split("/")
    found: Schema = components[kind][name]
    return found


def shape_text(schema: Schema, components: Schema, depth: int = 0) -> str:
    """A schema as people write the shape of JSON; what lies too deep is named only."""
    if "$ref" in schema and depth >= MAX_DEPTH:
        return str(schema["$ref"].rsplit("/", 1)[1])
    found = _resolved(schema, components)
    if choices := found.get("anyOf") or found.get("oneOf"):
        return " | ".join(dict.fromkeys(shape_text(one, components, depth) for one in choices))
    if "enum" in found:
        return " | ".join(repr(value).replace("'", '"') for value in found["enum"])
    if "const" in found:
        return repr(found["const"]).replace("'", '"')
    if found.get("properties") and depth < MAX_DEPTH:
        return _object_text(found, components, depth)
    if found.get("type") == "array":
        return f"[{shape_text(found.get('items', {}), components, depth + 1)}, ...]"
    kind = found.get("type", "any")
    return " | ".join(kind) if isinstance(kind, list) else str(kind)


def _object_text(schema: Schema, components: Schema, depth: int) -> str:
    indent = "  " * (depth + 1)
    required = schema.get("required", ())
    lines = [
        f"{indent}{name}{'' if name in required else '?'}: {shape_text(one, components, depth + 1)}"
        for name, one in schema["properties"].items()
    ]
    return "{\n" + "\n".join(lines) + "\n" + "  " * depth + "}"


def _example(path: str, method: str, body: Schema | None, components: Schema) -> str:
    """A call by curl. The names in capitals are to be replaced."""
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
    found = _resolved(schemas[0], components)
    return "{" + ", ".join(f'"{name}": ...' for name in found.get("required", ())) + "}"
