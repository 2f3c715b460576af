"""`cograil companies`: what a person gets, and the exit codes."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.apps.companies.company_site import CompanySite
from tests.apps.companies.registers import DANONE, INPI, OTHER, RCS, RECHERCHE, SIRET, http_response

from cograil import logs, metrics
from cograil.cli import main


class Shell:
    """`cograil companies ...` on the database of a test, in a thread of this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capsys.readouterr()
        exit_code = await asyncio.to_thread(main, ["companies", *arguments])
        captured = self._capsys.readouterr()
        assert exit_code == code, captured
        return captured.out if code < 2 else captured.err

    async def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(await self(*arguments, "--json", code=code))


@pytest.fixture
def shell(dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.setenv("COGRAIL_DATABASE_URL", dsn)
    logs.configure("info", "json", io.StringIO())  # of the worker, which is in this process here
    return Shell(capsys)


async def test_a_company_is_asked_for_and_shown(site: CompanySite, shell: Shell) -> None:
    page = await shell.json("enrich", "552 032 534 00646")
    assert (page["siren"], page["enrichment_status"]) == (DANONE, "SUCCESS")
    assert page["company"]["legal_name"] == "DANONE"
    text = await shell("show", DANONE)
    assert "legal name: DANONE" in text
    assert "API_ENTREPRISE_RCS: ok" in text
    ((siret,),) = await site.lab.rows("select siret from cograil_companies.company_requests")
    assert siret == SIRET, "as people write it"
    again = await shell.json("enrich", DANONE)
    assert again == page | {"latest_request_id": again["latest_request_id"]}
    assert site.registers.count(RECHERCHE) == 1, "it is fresh"
    actions = await site.lab.rows("select action, role from cograil.audit_log order by at")
    assert actions == [("request company", "cli")] * 2


async def test_get_exits_1_for_a_failure_and_4_for_an_early_refresh(site: CompanySite, shell: Shell) -> None:
    site.registers.answer(RECHERCHE, http_response(404))
    assert (await shell.json("enrich", OTHER, code=1))["enrichment_status"] == "FAILED"
    site.registers.heal()
    assert (await shell.json("enrich", OTHER, "--refresh"))["enrichment_status"] == "SUCCESS"
    assert "short while ago" in await shell("enrich", OTHER, "--refresh", code=4)


async def test_a_failure_says_which_register_why_and_which_job(site: CompanySite, shell: Shell) -> None:
    """And the job of a run that reached no register has failed, so that operators see it."""
    for source in (RECHERCHE, INPI, RCS):
        site.registers.answer(source, http_response(503))
    text = await shell("enrich", OTHER, code=1)
    assert "API_RECHERCHE_ENTREPRISES: the register has an error of its own, HTTP 503, UPSTREAM_5XX" in text
    ((job_id, status, error),) = await site.lab.rows(
        "select id::text, status, error ->> 'code' from cograil.jobs"
    )
    assert f"job {job_id}" in text
    assert (status, error) == ("failed", "no_source_answered")
    assert text.splitlines()[1:4] == (await shell("show", OTHER, code=1)).splitlines()[1:4]
    counted = metrics.company_sources.labels(RECHERCHE, "UPSTREAM_5XX")._value.get()
    assert counted >= 3


async def test_a_company_that_nobody_knows_is_no_failure_of_the_registers(
    site: CompanySite, shell: Shell
) -> None:
    for source in (RECHERCHE, INPI, RCS):
        site.registers.answer(source, http_response(404))
    assert "does not know this company" in await shell("enrich", OTHER, code=1)
    assert await site.lab.rows("select status from cograil.jobs") == [("completed",)]


async def test_codes_are_shown_in_words_and_a_town_once(site: CompanySite, shell: Shell) -> None:
    text = await shell("enrich", DANONE)
    assert "headcount range: 1,000 to 1,999 employees (42)" in text
    assert "active status: active (A)" in text
    assert text.count("75009") == 1, text


async def test_many_are_asked_for_by_a_file_and_listed(
    site: CompanySite, shell: Shell, tmp_path: Path
) -> None:
    path = tmp_path / "customers.csv"
    path.write_text(f"siren;name\n{DANONE};Danone\n# none\n\n{OTHER[:3]} {OTHER[3:]},x\n")
    text = await shell("enrich", "--file", str(path))
    assert [line.split()[:2] for line in text.splitlines()[1:]] == [[DANONE, "SUCCESS"], [OTHER, "SUCCESS"]]
    assert len(await shell.json("enrich", DANONE, OTHER)) == 2
    assert [company["siren"] for company in await shell.json("list", "danon")] == [OTHER, DANONE]
    assert DANONE in await shell("list", DANONE[:4])
    assert "at least one" in await shell("enrich", code=2)


async def test_what_is_no_number_is_exit_2_what_nobody_asked_for_3_and_no_end_5(
    idle_site: CompanySite, shell: Shell
) -> None:
    assert "9 digits" in await shell("enrich", "123", code=2)
    assert "was never requested" in await shell("show", DANONE, code=3)
    assert "did not end" in await shell("enrich", DANONE, "--timeout", "0.1", code=5)


async def test_a_worker_is_added_where_the_instance_has_none_for_companies(
    idle_site: CompanySite, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance without this app must not let the command wait for its timeout."""
    for name, value in idle_site.registers.settings().items():
        monkeypatch.setenv(f"COGRAIL_COMPANIES__{name.upper()}", str(value))
    monkeypatch.setenv("COGRAIL_OUTBOUND__ALLOW_NETWORKS", "127.0.0.0/8")
    async with idle_site.lab.orchestrator():
        page = await shell.json("enrich", DANONE)
    assert page["enrichment_status"] == "SUCCESS"
