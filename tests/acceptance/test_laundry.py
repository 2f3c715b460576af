"""The example app `examples/laundry`, installed into a virtual environment of its own and used from outside."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import site
import subprocess
import time
import tomllib
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "examples" / "laundry"
START_SECONDS = 90.0


def install(directory: Path) -> Path:
    """Install the app as a wheel would be: its package, and metadata with its entry points. Needs no network."""
    venv.create(directory, with_pip=False, symlinks=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "cograil_of_the_tests.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    )
    shutil.copytree(SOURCE / "laundry", packages / "laundry", ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    metadata = packages / f"cograil_laundry-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = project["entry-points"].items()
    (metadata / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in groups
        )
    )
    return directory / "bin" / "python"


class Laundry:
    """`cograil` with the app installed."""

    def __init__(self, python: Path, data_dir: Path) -> None:
        self.python, self.data_dir = python, data_dir
        clean = {name: value for name, value in os.environ.items() if not name.startswith("COGRAIL_")}
        self.environment = clean | {
            "COGRAIL_DATA_DIR": str(data_dir),
            "COGRAIL_APPS": "laundry",
            "COGRAIL_LAUNDRY__SOAP": "lavender",
            "COGRAIL_DATABASE__ALLOW_UNSAFE": "true",
        }
        self.url = ""

    def run(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [self.python, "-P", "-m", "cograil", *arguments, "--json"],
            env=self.environment,
            cwd=self.data_dir.parent,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    def send(self, path: str, body: object = None, accept: str = "application/json") -> str:
        content = None if body is None else json.dumps(body).encode()
        headers = {"accept": accept, "content-type": "application/json"}
        with urllib.request.urlopen(
            urllib.request.Request(self.url + path, content, headers), timeout=30
        ) as answer:
            return str(answer.read().decode())


@pytest.fixture(scope="module")
def laundry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laundry]:
    directory = tmp_path_factory.mktemp("laundry")
    installed = Laundry(install(directory / "venv"), directory / "data")
    errors = directory / "stderr"
    with errors.open("wb") as stream:
        command = [str(installed.python), "-P", "-m", "cograil", "up", "--port", "0"]
        process = subprocess.Popen(command, env=installed.environment, cwd=directory, stderr=stream)
    try:
        until = time.monotonic() + START_SECONDS
        instance = installed.data_dir / "instance.json"
        while not instance.exists():
            assert process.poll() is None, errors.read_text()
            assert time.monotonic() < until, errors.read_text()
            time.sleep(0.2)
        installed.url = f"http://127.0.0.1:{json.loads(instance.read_text())['port']}"
        yield installed
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def test_the_laundry_app_imports_only_the_public_module() -> None:
    texts = [path.read_text() for path in SOURCE.rglob("*.py")]
    imported = {module for text in texts for module in re.findall(r"(?:from|import) (cograil[\w.]*)", text)}
    assert imported == {"cograil.plugins"}


def test_a_load_is_washed_by_a_job_and_seen_everywhere(laundry: Laundry) -> None:
    load = json.loads(laundry.send("/v1/laundry", {}))
    assert load["soap"] == "lavender"
    until = time.monotonic() + 60
    while not json.loads(laundry.send("/v1/laundry"))["loads"][0]["is_washed"]:
        assert time.monotonic() < until, laundry.run("show", load["job_id"])
        time.sleep(0.2)
    assert "cograil.laundry" in json.dumps(laundry.run("show", load["job_id"]))
    assert laundry.run("laundry", "list")["loads"][0]["id"] == load["id"]
    page = laundry.send("/ui/laundry", accept="text/html")
    assert load["id"] in page
    assert 'href="/ui/laundry"' in page
    assert 'laundry_loads_washed_total{soap="lavender"} 1' in laundry.send("/metrics")


def test_the_laundry_app_is_listed_with_its_parts(laundry: Laundry) -> None:
    (app,) = [app_info for app_info in laundry.run("apps")["apps"] if app_info["name"] == "laundry"]
    assert app["enabled"]
    assert {"settings", "migrations", "handlers", "workflows", "routes", "pages", "metrics"} <= {*app["adds"]}
    settings = {setting["name"]: setting["value"] for setting in laundry.run("config")["settings"]}
    assert settings["laundry.soap"] == "lavender"


def test_migrations_of_the_laundry_app_are_applied_once(laundry: Laundry) -> None:
    assert laundry.run("db", "migrate") == {"applied": []}
