"""The page of the gateway does what it says, by curl."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.acceptance.gateway_site import answers, free_port
from tests.acceptance.instances import Start
from tests.conftest import Eventually

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "gateway.md"

pytestmark = pytest.mark.usefixtures("used_data_dir")


async def test_the_page_works_word_for_word(start: Start, eventually: Eventually, tmp_path: Path) -> None:
    port = free_port()
    up = start(
        *("up", "--port", "0", "--workflows", str(ROOT / "examples")),
        *("--gateway-port", str(port)),
    )
    await eventually(up.is_ready, 60)
    await eventually(lambda: answers(f"http://127.0.0.1:{port}/readyz") == 200)
    part = PAGE.read_text().partition("## With curl")[2].partition("\n## ")[0]
    script = "\n".join(re.findall(r"```sh\n(.*?)```", part, re.DOTALL))
    kept = {name: text for name, text in os.environ.items() if not name.startswith("COGRAIL_")}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=kept
        | {
            "GATEWAY": f"http://127.0.0.1:{port}",
            "COGRAIL_DATA_DIR": str(up.data_dir),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"status":"accepted"' in done.stdout
    assert '"message":"Hello, Ada!"' in done.stdout
    assert '"progress":{"completed":2,"total":2,"percent":100.0}' in done.stdout
    assert '"node_id":"greet"' in done.stdout
    for error in re.findall(r'^# (\{"error".*\})$', part, re.MULTILINE):
        assert error in done.stdout
