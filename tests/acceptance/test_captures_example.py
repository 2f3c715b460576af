"""The worked example of docs/how-to/captures.md, on a real instance."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.acceptance.instances import Start

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("used_data_dir")
@pytest.mark.timeout(180)
async def test_evidence_goes_from_the_device_to_its_proof(
    start: Start, eventually: Any, tmp_path: Path
) -> None:
    up = start("up", "--port", "0", "--apps", "containers,captures")
    await eventually(up.is_ready, timeout=60)
    nobody = await asyncio.to_thread(
        subprocess.run,
        [
            *(sys.executable, "-m", "examples.captures", "x"),
            *("--data-dir", str(tmp_path), "--wait", "0", "--url", "http://127.0.0.1:9"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "start it with `cograil up`" in nobody.stderr
    assert "Traceback" not in nobody.stderr
    picture = tmp_path / "picture.png"
    picture.write_bytes(os.urandom(100_000))
    data_dir, out = tmp_path / "data", tmp_path / "proof"
    words = [str(picture), "--url", up.url, "--data-dir", str(data_dir), "--out", str(out)]
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "examples.captures", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("posted: 202, and the same again: 200\nSEALED: ")
    assert run.stdout.count("yes  ") == 6
    proof = orjson.loads((out / "proof.json").read_bytes())
    assert proof["manifest"]["payload"]["mime_type"] == "image/png"
    entries = orjson.loads((out / "audit.json").read_bytes())["entries"]
    assert {"CAPTURE_RECEIVED", "CAPTURE_REPLAYED", "CAPTURE_SEALED"} <= {entry["event"] for entry in entries}
