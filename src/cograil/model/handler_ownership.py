"""Handlers and workflows that belong to an app, so that only jobs of the app use them.

The handlers of an app are named `<app>.<name>`, and its workflows `cograil.<name>`. A handler that an app
offers to the workflows of users (as `containers` offers `container`) is registered without this prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points

from cograil.app_registry import APP_GROUP
from cograil.model.workflow import Workflow

ENGINE = "cograil"  # owns `cograil.bulk`, and every workflow id that begins with it belongs to an app


@cache
def app_names() -> frozenset[str]:
    """Return the names of the installed apps, enabled or not, without importing them."""
    return frozenset(point.name for point in entry_points(group=APP_GROUP))


def owner_of_handler(name: str) -> str | None:
    """Return the app that owns a handler of this name; None when any workflow may use it."""
    prefix, dot, _ = name.partition(".")
    if not dot:
        return None
    return prefix if prefix == ENGINE or prefix in app_names() else None


def is_reserved_workflow(workflow_id: str) -> bool:
    """Return whether only an app may publish a workflow of this id."""
    return workflow_id.startswith(f"{ENGINE}.")


def foreign_handlers(workflow: Workflow) -> Iterator[tuple[str, str, str]]:
    """Yield node, handler and owner of every handler in this workflow that belongs to another app."""
    for node in workflow.nodes.values():
        owner = owner_of_handler(node.handler)
        if owner is not None and owner != workflow.app:
            yield node.node_id, node.handler, owner
