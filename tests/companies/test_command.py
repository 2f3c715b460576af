"""`cograil companies`: what a person gets, and the exit codes."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest
from bureau import Bureau
from registers import DANONE, OTHER, RECHERCHE, SIRET, said

from cograil import logs
from cograil.intake.cli import main


class Shell:
    """`cograil companies ...` on the database of a test, in a thread of this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capsys.readouterr()
        found = await asyncio.to_thread(main, ["companies", *arguments])
        told = self._capsys.readouterr()
        assert found == code, told
        return told.out if code < 2 else told.err

    async def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(await self(*arguments, "--json", code=code))


@pytest.fixture
def shell(dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.setenv("COGRAIL_DATABASE_URL", dsn)
    logs.configure("info", "json", io.StringIO())  # of the worker, which is in this process here
    return Shell(capsys)


async def test_a_company_is_asked_for_and_shown(bureau: Bureau, shell: Shell) -> None:
    page = await shell.json("enrich", "552 032 534 00646")
    assert (page["siren"], page["enrichment_status"]) == (DANONE, "SUCCESS")
    assert page["company"]["legal_name"] == "DANONE"
    text = await shell("show", DANONE)
    assert "legal name: DANONE" in text
    assert "API_ENTREPRISE_RCS: ok" in text
    ((siret,),) = await bureau.lab.rows("select siret from cograil.company_requests")
    assert siret == SIRET, "as people write it"
    again = await shell.json("enrich", DANONE)
    assert again == page | {"latest_request_id": again["latest_request_id"]}
    assert bureau.registers.count(RECHERCHE) == 1, "it is fresh"
    actions = await bureau.lab.rows("select action, role from cograil.audit_log order by at")
    assert actions == [("request company", "cli")] * 2


async def test_a_failure_is_exit_1_and_a_refresh_too_soon_4(bureau: Bureau, shell: Shell) -> None:
    bureau.registers.answer(RECHERCHE, said(404))
    assert (await shell.json("enrich", OTHER, code=1))["enrichment_status"] == "FAILED"
    bureau.registers.heal()
    assert (await shell.json("enrich", OTHER, "--refresh"))["enrichment_status"] == "SUCCESS"
    assert "short while ago" in await shell("enrich", OTHER, "--refresh", code=4)


async def test_what_is_no_number_is_exit_2_what_nobody_asked_for_3_and_no_end_5(
    closed: Bureau, shell: Shell
) -> None:
    assert "9 digits" in await shell("enrich", "123", code=2)
    assert "nobody has asked" in await shell("show", DANONE, code=3)
    assert "did not end" in await shell("enrich", DANONE, "--timeout", "0.1", code=5)
