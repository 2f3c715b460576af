"""The client has a method for every route of the OpenAPI document, and the same ones for both who call."""

from __future__ import annotations

import inspect
import typing

import pytest
from tests.support.client_methods import EXCUSED, METHODS
from tests.support.openapi_check import api_checker
from tools import clients

from cograil.client import AsyncClient, Client
from cograil.http.server.application import ROUTERS


def test_every_route_has_a_method_or_an_excuse() -> None:
    """A new route fails here: name its method in tests/support/client_methods.py, or say why it has none."""
    assert METHODS.keys() | EXCUSED.keys() == api_checker().operations.keys()
    assert not METHODS.keys() & EXCUSED.keys()
    assert all(len(reason) > 20 for reason in EXCUSED.values())


def test_every_socket_is_served_as_a_stream_that_the_client_follows_too() -> None:
    sockets = {endpoint.path.rpartition("/ws/")[2] for router in ROUTERS for endpoint in router.sockets}
    assert sockets == {"jobs/{job_id}"}
    assert METHODS["stream_job"] == "follow"


@pytest.mark.parametrize("method", sorted(set(METHODS.values())))
def test_both_clients_have_it_with_types_and_a_promise(method: str) -> None:
    awaited, waited = getattr(AsyncClient, method), getattr(Client, method)
    assert inspect.getdoc(awaited) == inspect.getdoc(waited) != None  # noqa: E711
    assert list(inspect.signature(awaited).parameters) == list(inspect.signature(waited).parameters)
    hints = inspect.get_annotations(awaited)
    assert set(hints) == {*inspect.signature(awaited).parameters, "return"} - {"self"}
    assert hints["return"] not in ("Any", "dict[str, Any]"), method


def test_the_types_of_the_client_are_those_of_the_document() -> None:
    """A method that gives back a whole answer names the shape that its route names."""
    for operation, method in METHODS.items():
        hint = inspect.get_annotations(getattr(AsyncClient, method))["return"]
        shapes = {model.__name__ for model in _shapes(operation)}
        if not {"[", "|"} & set(hint) and hint not in ("bool", "None", "str") and shapes:
            assert hint in shapes, (operation, method)


def _shapes(operation: str) -> list[type]:
    endpoint = next(
        (endpoint for router in ROUTERS for endpoint in router.endpoints if endpoint.operation == operation),
        None,
    )
    gives = None if endpoint is None else endpoint.response_model
    if gives is None:
        return []
    models = list(gives.values()) if isinstance(gives, typing.Mapping) else [gives]
    return [model for model in models if model is not str]


@pytest.mark.parametrize("name", sorted(clients.sources()))
def test_the_two_clients_are_one(name: str) -> None:
    assert (clients.FOLDER / name).read_text("utf-8") == clients.written(name), "run `make docs`"


def test_the_generated_client_has_no_leftover_modules() -> None:
    written = {path.name for path in (clients.FOLDER / "_sync").glob("*.py")}
    assert written == {path.name for path in (clients.FOLDER / "_async").glob("*.py")}
