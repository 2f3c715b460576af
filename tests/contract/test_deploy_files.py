"""The image, the compose file and the units: what they run exists, and nobody runs as root."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from ruamel.yaml import YAML

from cograil.cli import cli
from cograil.settings import load_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PARTS = ("server", "orchestrator", "worker", "relay")


def parse_command(words: list[str]) -> None:
    """Raises click.UsageError unless the command line knows these words."""
    command: click.Command = cli
    while isinstance(command, click.Group):
        subcommand = command.get_command(click.Context(command), words[0])
        assert subcommand is not None, words
        command, words = subcommand, words[1:]
    command.make_context("cograil", list(words), resilient_parsing=False)


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load((DEPLOY / "docker" / "compose.yaml").read_text("utf-8"))
    return loaded


def test_the_image_has_stages_no_root_and_a_command_that_exists() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text("utf-8")
    assert len(re.findall(r"^FROM ", text, re.MULTILINE)) == 2
    last = text[text.rindex("\nFROM ") :]
    assert re.search(r"^USER [1-9]\d*:", last, re.MULTILINE)
    assert 'ENTRYPOINT ["cograil"]' in last
    parse_command(["up"])
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in copied.split()), copied
    kept = (ROOT / ".dockerignore").read_text("utf-8")
    names = {
        name
        for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
        for name in copied.split()
    }
    assert all(f"!{name}\n" in kept for name in names)


def test_every_service_of_compose_runs_a_command_that_exists() -> None:
    services = compose()["services"]
    ours = {name: service for name, service in services.items() if service["image"] == "cograil"}
    assert set(ours) == {"migrate", *PARTS}
    for service in ours.values():
        parse_command(service["command"])
        for name in service["environment"]:
            assert name == "API_KEY_FILE" or name.startswith("COGRAIL_")
    assert services["server"]["environment"]["API_KEY_FILE"].startswith("/run/secrets/")
    assert all(
        port.startswith("127.0.0.1:") for service in services.values() for port in service.get("ports", ())
    )


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_are_well_formed_and_run_commands_that_exist(unit: Path, tmp_path: Path) -> None:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(unit)
    assert parsed["Service"]["User"] == "cograil"
    program, command, *_ = parsed["Service"]["ExecStart"].split()
    assert program == "/opt/cograil/bin/cograil"
    for part in PARTS if command == "%i" else (command,):
        parse_command([part])
    if shutil.which("systemd-analyze") is None:
        return
    copy = tmp_path / unit.name
    copy.write_text(
        unit.read_text("utf-8").replace(program, "/bin/true").replace("User=cograil", "User=root")
    )
    checked = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    complaints = [line for line in checked.stderr.splitlines() if unit.name in line]
    assert complaints == []


def test_the_settings_of_the_units_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DEPLOY / "systemd" / "cograil.env.example").read_text("utf-8")
    key = tmp_path / "api-key"
    key.write_text("secret")
    for name, value in re.findall(r"^#?([A-Z_]+)=(.*)$", text, re.MULTILINE):
        if name != "ARGUMENTS":
            monkeypatch.setenv(name, str(key) if name == "API_KEY_FILE" else value)
    assert load_settings().host == "0.0.0.0"


def test_the_client_loads_nothing_of_the_server() -> None:
    code = (
        "import sys; before = set(sys.modules); import cograil.client;"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {
        "cograil",
        "httpx2",
        "httpcore2",
        "idna",
        "h11",
        "certifi",
        "typing_extensions",
    }


def test_the_licence_and_the_readme_are_in_the_package() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert 'license-files = ["LICENSE"]' in project
    assert "[project.urls]" in project
    patterns = re.findall(r"^pattern = '(.*)'\nreplacement = '(.*)'$", project, re.MULTILINE)
    text = (ROOT / "README.md").read_text("utf-8")
    for pattern, replacement in patterns:
        text = re.sub(pattern, replacement, text)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert all(link.startswith(("https://", "http://", "#")) for link in links)
