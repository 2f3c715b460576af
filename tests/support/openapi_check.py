"""Every answer is as the OpenAPI document says: its status, its kind, and its shape with no key too many."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import jsonschema_rs

from cograil.app_registry import installed_apps
from cograil.gateway.gateway_openapi import gateway_document
from cograil.http.server.application import ROUTERS
from cograil.http.server.openapi import document

# What the dispatcher responds before it knows the route, or of faults of ours; the document names them once for all.
EVERYWHERE = (404, 405, 414, 417, 421, 431, 500, 508)
METHODS = ("get", "post", "patch", "delete")


class OpenApiChecker:
    """Checks responses against one OpenAPI document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = copy.deepcopy(dict(document))
        self.operations: dict[str, tuple[str, str]] = {}
        _close(self.document["components"]["schemas"])
        self._routes: list[tuple[str, re.Pattern[str], Any]] = []
        for path, methods in self.document["paths"].items():
            pattern = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))
            for method in METHODS:
                if method in methods:
                    self._routes.append((method, pattern, methods[method]))
                    self.operations[methods[method]["operationId"]] = (method.upper(), path)
        self._routes.sort(key=lambda route: route[1].pattern.count("[^/]+"))
        self._validators: dict[str, Any] = {}

    def find(self, method: str, path: str) -> Any:
        """The operation of a request, or None."""
        plain = path.partition("?")[0]
        method = "get" if method == "HEAD" else method.lower()
        return next(
            (operation for of, match, operation in self._routes if of == method and match.fullmatch(plain)),
            None,
        )

    def wrong(self, method: str, path: str, status: int, media_type: str, body: bytes) -> list[str]:
        """How this response differs from the document."""
        operation = self.find(method, path)
        if operation is None or (status in EVERYWHERE and str(status) not in operation["responses"]):
            return []
        response = operation["responses"].get(str(status))
        if response is None:
            return [f"{operation['operationId']} says nothing of {status}: {body[:200]!r}"]
        return self._misshapen(operation["operationId"], status, self._followed(response), media_type, body)

    def _followed(self, response: Any) -> Any:
        while "$ref" in response:
            response = self.document["components"]["responses"][response["$ref"].rpartition("/")[2]]
        return response

    def _misshapen(self, name: str, status: int, response: Any, media_type: str, body: bytes) -> list[str]:
        content = response.get("content", {})
        kind = media_type.partition(";")[0]
        if not content or not body:
            return [f"{name} {status}: a body where there should be none"] if body else []
        if kind not in content:
            return [f"{name} {status}: {kind} instead of {' or '.join(content)}"]
        if "json" not in kind:
            return []
        errors = self._validator(content[kind]["schema"]).iter_errors(json.loads(body))
        return [f"{name} {status} at {list(error.instance_path)}: {error.message[:300]}" for error in errors]

    def _validator(self, schema: Any) -> Any:
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            whole = schema | {"components": self.document["components"]}
            self._validators[key] = jsonschema_rs.Draft202012Validator(whole, validate_formats=True)
        return self._validators[key]


def _close(schema: Any) -> None:
    """No key that is not named: what is answered and not described would go unnoticed else."""
    if isinstance(schema, dict):
        if "properties" in schema and isinstance(schema["properties"], dict):
            schema.setdefault("additionalProperties", False)
        for value in schema.values():
            _close(value)
    elif isinstance(schema, list):
        for value in schema:
            _close(value)


@cache
def api_checker() -> OpenApiChecker:
    """The checker for the document of the API."""
    return OpenApiChecker(document(endpoint for router in ROUTERS for endpoint in router.endpoints))


@cache
def app_checkers() -> dict[str, OpenApiChecker]:
    """The checkers for the documents of the apps, by their names."""
    return {app.name: OpenApiChecker(app.api().document()) for app in installed_apps() if app.api}


def find_mismatches(method: str, path: str, status: int, media_type: str, body: bytes) -> list[str]:
    """How this answer differs from the document that describes this path."""
    documents = (api_checker(), *app_checkers().values())
    return [flaw for document in documents for flaw in document.wrong(method, path, status, media_type, body)]


@cache
def gateway_checker() -> OpenApiChecker:
    """The checker for the document of the gateway."""
    return OpenApiChecker(gateway_document())
