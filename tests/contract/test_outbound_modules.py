"""There is one way out: no other module can send a request, and none opens a connection by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import cograil

ROOT = Path(cograil.__file__).parent
CLIENTS = {"httpx", "httpx2", "httpcore", "httpcore2", "requests", "aiohttp", "urllib3", "h11"}
CLIENT_MODULES = {"http.client", "urllib.request", "xmlrpc.client", "ftplib", "smtplib", "telnetlib"}
OPENERS = {"open_connection", "create_connection", "sock_connect"}

# All but the first only name the errors and the answers of the way out; `apps/containers/runtime/docker_engine.py`
# those of the container engine, to whose socket its own library speaks.
MAY_NAME_THE_CLIENT = {
    "apps/companies/source_http.py",
    "egress/http_sender.py",
    "apps/captures/rfc3161.py",
    "gateway/upstream_client.py",
    "delivery/http_delivery.py",
    "runners/http_handler.py",
    "apps/containers/runtime/artifact_transfer.py",
    "apps/containers/runtime/docker_engine.py",
    "apps/documents/service_client.py",
}
# Socket pairs with their own children.
MAY_CONNECT = {"processes/worker_process.py", "runners/ipc.py"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    """All but `cograil.client`, which runs in programs of users and calls whom they tell it to."""
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith("client/"):
            yield name, ast.parse(path.read_text("utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_client(name: str) -> bool:
    return name.partition(".")[0] in CLIENTS or name in CLIENT_MODULES


def test_no_other_module_imports_an_http_client() -> None:
    importers = {name for name, tree in modules() if any(map(is_client, imported(tree)))}
    assert importers == MAY_NAME_THE_CLIENT


def test_modules_that_name_the_client_for_its_errors_make_none() -> None:
    makes = {
        name
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node).startswith(("httpx2.Async", "httpx2.Client", "httpx2.HTTPTransport"))
    }
    assert makes == {"egress/http_sender.py"}


def test_no_other_module_opens_a_connection() -> None:
    openers = {
        name
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in OPENERS
    }
    assert openers == MAY_CONNECT


def test_serving_modules_do_not_use_the_client_of_the_api() -> None:
    importers = {
        name
        for name, tree in modules()
        if name != "__init__.py"
        and any(imported_name.startswith("cograil.client") for imported_name in imported(tree))
    }
    assert importers == {f"cli/backends/{name}.py" for name in ("server_client", "server_jobs")}
