"""The page that walks through the API by curl does what it says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.acceptance.instances import Start
from tests.conftest import Eventually

from cograil.embedded.data_directory import read_instance

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "http.md"

pytestmark = pytest.mark.usefixtures("used_data_dir")


async def test_the_page_works_word_for_word(start: Start, eventually: Eventually, tmp_path: Path) -> None:
    up = start("up", "--port", "0", COGRAIL_LEASE__SECONDS="60")  # a worker of shell commands is a slow one
    await eventually(up.is_ready, 60)
    instance = read_instance(up.data_dir)
    assert instance is not None
    script = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=os.environ | {"API": f"http://127.0.0.1:{instance.port}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("HTTP 202") == 2
    assert done.stdout.count("HTTP 200") == 2
    assert '"printed":3' in done.stdout
    assert '"code":"unknown_input"' in done.stdout or '"pointer":"/' in done.stdout
    assert '"kind":"approval"' in done.stdout
    assert "event: approval_requested" in done.stdout
    assert "it is completed" in done.stdout, done.stdout
