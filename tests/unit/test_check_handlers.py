"""`cograil check --app`: params of a file against the signatures of handlers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cograil.cli import main

MODULE = """
from cograil import handler

@handler("NAME.send")
async def send(ctx, sent: str, count: int, tags: list[int] | None = None):
    return {}
"""
FILE = """\
workflow_id: w
nodes:
  a: {handler: NAME.send, params: {sennt: x, count: 3}}
  b:
    handler: NAME.send
    params:
      sent: "{{ inputs.x }}"
      count: many
      tags: [1, two]
  c: {handler: NAME.send}
  d:
    type: fan_out
    source: [1]
    task: {handler: NAME.send, params: {sent: "{{ item }}", cuont: 1}}
  e: {handler: sleep, params: {seconds: never}}
"""
DOUBTFUL = """\
workflow_id: w
nodes:
  a: {handler: NAME.send, params: {sent: "{{ inputs.y }}", count: "{{ inputs.x }}", tags: ["{{ inputs.z }}"]}}
  b: {handler: NAME.sedn}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"checked_{tmp_path.name}"[:40].rstrip("_")
    (tmp_path / f"{name}.py").write_text(MODULE.replace("NAME", name))
    (tmp_path / "wrong.yaml").write_text(FILE.replace("NAME", name))
    (tmp_path / "doubtful.yaml").write_text(DOUBTFUL.replace("NAME", name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    sys.modules.pop(name, None)
    return name


def test_params_that_a_handler_would_refuse_are_told_with_their_place(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "wrong.yaml", "--app", module, "--json"]) == 2
    (report,) = json.loads(capsys.readouterr().out)["files"]
    assert [(problem["code"], problem["line"], problem["pointer"]) for problem in report["problems"]] == [
        ("missing_param", 3, "/nodes/a/params"),
        ("unknown_param", 3, "/nodes/a/params/sennt"),
        ("invalid_param", 8, "/nodes/b/params/count"),
        ("invalid_param", 9, "/nodes/b/params/tags/1"),
        ("missing_param", 10, "/nodes/c"),
        ("missing_param", 10, "/nodes/c"),
        ("missing_param", 14, "/nodes/d/task/params"),
        ("unknown_param", 14, "/nodes/d/task/params/cuont"),
        ("invalid_param", 15, "/nodes/e/params/seconds"),
    ]
    assert "did you mean 'sent'?" in report["problems"][1]["message"]


def test_a_handler_that_nobody_has_is_a_warning_and_strict_makes_it_count(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "doubtful.yaml", "--app", module]) == 0
    error_text = capsys.readouterr().err
    assert (
        f"no handler '{module}.sedn' in cograil or in {module}; did you mean '{module}.send'?" in error_text
    )
    assert "--app" not in error_text
    assert main(["check", "doubtful.yaml", "--app", module, "--strict"]) == 1
    assert main(["check", "doubtful.yaml", "--strict"]) == 0
