"""Which runtime is taken, and what is said of it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from cograil.apps.containers.runtime.container_runtime import ContainerPolicy, ContainerRun, Runtime
from cograil.apps.containers.runtime.docker_engine import ContainerEngine, engine_urls
from cograil.apps.containers.runtime.runtime_selection import choose_runtime
from cograil.apps.containers.runtime.sandbox import Sandbox
from cograil.cli import main
from cograil.settings import load_settings


async def chosen(data_dir: Path, runtime: str) -> tuple[type[Any] | None, str]:
    choice = await choose_runtime(load_settings({"data_dir": data_dir, "containers.runtime": runtime}))
    if choice.runtime is None:
        return None, choice.why
    async with choice.runtime as opened:
        return type(opened), choice.why


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize("runtime", ["auto", "docker"])
async def test_an_engine_that_answers_is_taken_first(
    engine_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runtime: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine_url)
    kind, why = await chosen(tmp_path, runtime)
    assert kind is ContainerEngine
    assert why.startswith("containers run on docker ")


@pytest.mark.parametrize("place", ["docker.sock", "podman/podman.sock"])
async def test_without_a_word_of_where_it_is_the_usual_sockets_are_tried(
    engine_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as own:  # a short name: sockets cannot have long ones
        (Path(own) / place).parent.mkdir(exist_ok=True)
        (Path(own) / place).symlink_to(engine_url.removeprefix("unix://"))
        monkeypatch.delenv("DOCKER_HOST", raising=False)
        monkeypatch.setenv("XDG_RUNTIME_DIR", own)
        assert f"unix://{own}/{place}" in engine_urls()
        assert (await chosen(tmp_path, "auto"))[0] is ContainerEngine
        monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
        assert engine_urls() == ["tcp://127.0.0.1:1"]


@pytest.mark.usefixtures("no_engine")
async def test_a_sandbox_is_taken_when_no_engine_answers(tmp_path: Path) -> None:
    kind, why = await chosen(tmp_path, "auto")
    assert kind is Sandbox
    assert "does not answer" in why
    assert "containers run in sandboxes of bubblewrap" in why


@pytest.mark.usefixtures("no_engine", "no_bubblewrap")
async def test_without_engine_or_sandbox_no_runtime_is_taken_and_it_says_why(tmp_path: Path) -> None:
    kind, why = await chosen(tmp_path, "auto")
    assert kind is None
    assert why.startswith("containers do not run here: ")
    assert "does not answer" in why
    assert "it is not installed" in why


async def test_a_configured_runtime_is_taken_alone(
    engine_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine_url)
    assert (await chosen(tmp_path, "sandbox"))[0] is Sandbox
    assert await chosen(tmp_path, "none") == (
        None,
        "containers do not run here: COGRAIL_CONTAINERS__RUNTIME is none",
    )
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    assert (await chosen(tmp_path, "docker"))[0] is None


@pytest.mark.usefixtures("no_engine")
def test_the_runtime_command_describes_the_sandbox(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["containers", "runtime", "--data-dir", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "sandboxes of bubblewrap" in output
    assert "- it has no network" in output


@pytest.mark.usefixtures("no_engine")
def test_the_runtime_command_exits_1_without_a_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COGRAIL_CONTAINERS__RUNTIME", "none")
    assert main(["containers", "runtime", "--json", "--data-dir", str(tmp_path)]) == 1
    assert '"is_there":false' in capsys.readouterr().out.replace(" ", "")


def test_images_are_imported_and_listed_by_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.apps.containers.runtimes import root_file_system

    archive, data = tmp_path / "root.tar", ["--data-dir", str(tmp_path / "data")]
    archive.write_bytes(root_file_system())
    assert main(["containers", "import", "team/box:2", str(archive), *data]) == 0
    assert main(["containers", "images", *data]) == 0
    assert capsys.readouterr().out.split() == ["team/box:2"]
    archive.write_bytes(b"no tar at all" * 100)
    assert main(["containers", "import", "broken", str(archive), *data]) == 2
    assert main(["containers", "import", "../../x", str(archive), *data]) == 2
    assert main(["containers", "images", *data]) == 0
    assert capsys.readouterr().out.split() == ["team/box:2"]


async def test_an_image_in_which_something_runs_is_not_replaced(
    sandbox_place: Path, room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.apps.containers.runtimes import IMAGE, root_file_system

    archive = tmp_path / "root.tar"
    archive.write_bytes(root_file_system())
    command = ["containers", "import", f"{IMAGE}:latest", str(archive), "--data-dir", str(sandbox_place)]
    runtime: Runtime = Sandbox(sandbox_place)
    request = ContainerRun(
        "n-in-use", IMAGE, "sleep 600", room, "/workspace", 1.0, 64, {}, {"cograil.test": "yes"}
    )
    container = await runtime.start(request, ContainerPolicy(network="none"))
    assert main(command) == 4
    assert "n-in-use" in capsys.readouterr().err
    await runtime.remove(container)
    assert main(command) == 0
