"""Waiting for a seal, and what is logged of the same capture again."""

from __future__ import annotations

import asyncio
import io
import json
from uuid import uuid4

import pytest
from vault import Sealing, Vault, sample

from cograil import logs
from cograil.intake.cli import main


async def test_a_seal_is_waited_for(
    house: Sealing, dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COGRAIL_DATABASE_URL", dsn)

    async def wait(capture_id: str, *more: str) -> tuple[int, str]:
        capsys.readouterr()
        code = await asyncio.to_thread(main, ["captures", "wait", capture_id, *more])
        told = capsys.readouterr()
        return code, told.out + told.err

    good, bad = house.vault.capture(b"evidence"), sample()
    for body in (good, bad):
        assert (await house.vault.post(body)).status == 202
    code, text = await wait(good["capture_id"])
    assert (code, "SEALED: 20" in text) == (0, True), text  # a worker of this test logs there too
    code, text = await wait(bad["capture_id"], "--json")
    assert (code, json.loads(text[text.index("{") :])["state"]) == (1, "FAILED")
    assert (await wait(str(uuid4())))[0] == 3
    assert (await wait("x"))[0] == 2


async def test_the_same_capture_again_is_logged(vault: Vault) -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    try:
        assert [(await vault.post(sample())).status for _ in range(2)] == [202, 200]
    finally:
        logs.configure("info", "auto")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    (replayed,) = (one for one in lines if one["event"] == "capture replayed")
    assert (replayed["capture_id"], replayed["state"]) == (sample()["capture_id"], "UPLOADED")
