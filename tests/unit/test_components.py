"""A missing component skips its tests on a developer's machine and is an error in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("ci", "code", "word"), [("", 0, "SKIPPED"), ("1", 1, "Error"), ("true", 1, "Error")]
)
def test_a_missing_component_is_a_skip_or_an_error(ci: str, code: int, word: str) -> None:
    environment = os.environ | {"COGRAIL_TEST_MISSING": "promtool", "CI": ci}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-rsE",
        "-p",
        "no:cacheprovider",
        "-k",
        "promtool_takes",
    ]
    done = subprocess.run(
        [*command, "tests/contract/test_deploy.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    assert "needs promtool, which is not here: apt-get install prometheus" in done.stdout
    assert word.lower() in done.stdout.lower()
