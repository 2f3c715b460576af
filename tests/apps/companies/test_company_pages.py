"""The pages of companies as requests: what is shown to whom, what one does there, and what is refused."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from tests.apps.companies.company_site import CompanySite, open_company_site, until
from tests.apps.companies.registers import DANONE, INPI, OTHER, SIRET, http_response
from tests.support.page_client import PageClient, check_required_roles, form_token

from cograil.apps.companies import company_search
from cograil.apps.companies.company_search import find_companies
from cograil.apps.companies.pages import companies

REFRESH = re.compile(rb'action="(/ui/companies/requests/[^"]+/refresh)"')


@pytest.fixture
def browser(idle_site: CompanySite) -> PageClient:
    return PageClient(idle_site.api)


async def shown(browser: PageClient, path: str = f"/ui/companies/{DANONE}") -> bytes:
    page = await browser.get(path)
    assert page.status == 200, page.raw
    return page.raw


async def test_a_company_is_asked_for_and_shown_with_all_that_is_known(
    site: CompanySite, browser: PageClient
) -> None:
    empty = await browser.get("/ui/companies")
    assert b"No companies yet" in empty.raw
    response = await browser.post(
        "/ui/companies", {"token": form_token(empty), "number": " 552 032 534 00646 "}
    )
    assert (response.status, response.headers["location"]) == (303, f"/ui/companies/{DANONE}")
    page = (await shown(browser)).decode()
    (run,) = await site.lab.rows("select job_id::text, siren from cograil_companies.company_runs")
    documents = await site.lab.rows("select checksum, size_bytes from cograil_companies.company_documents")
    for text in (
        "<h1>DANONE</h1>",
        '<span class="badge completed">SUCCESS</span>',
        "75009 PARIS",
        "API_RECHERCHE_ENTREPRISES",
        "INPI_RNE",
        "API_ENTREPRISE_RCS",
        "REQUEST_CREATED",
        f'href="/ui/jobs/{run[0]}"',
        "3 of 3",
        *(f"SHA-256 {checksum}" for checksum, _ in documents),
        *(f"{size:,} bytes" for _, size in documents),
    ):
        assert text in page, text
    assert len(documents) == 3
    assert "DANONE" in (await shown(browser, "/ui/companies")).decode()
    ((siret, action, target),) = await site.lab.rows(
        "select r.siret, a.action, a.target from cograil_companies.company_requests r"
        " join cograil.audit_log a on a.target = r.id::text"
    )
    assert (siret, action) == (SIRET, "request company")
    assert target


async def test_an_invalid_number_is_reported_beside_the_form(
    idle_site: CompanySite, browser: PageClient
) -> None:
    token = await browser.token("/ui/companies")
    for number, message in (
        ("", b"give a siren of 9 digits or a siret of 14"),
        ("12", b"a siren has 9 digits"),
        ("5520325340", b"a siret has 14 digits"),
        ("<b>", b"a siren has 9 digits"),
    ):
        answer = await browser.post("/ui/companies", {"token": token, "number": number})
        assert (answer.status, message in answer.raw, b'value="<b>"' in answer.raw) == (400, True, False)
    assert await idle_site.lab.rows("select count(*) from cograil_companies.company_requests") == [(0,)]


async def test_a_number_that_looks_mistyped_is_asked_for_and_told(
    site: CompanySite, browser: PageClient
) -> None:
    token = await browser.token("/ui/companies")
    answer = await browser.post("/ui/companies", {"token": token, "number": "123456789"})
    assert answer.headers["location"] == "/ui/companies/123456789"
    assert b"123456789 was requested; the check digit of the siren is wrong" in await shown(
        browser, "/ui/companies/123456789"
    )
    await until(lambda: _is_over(site, "123456789"))


async def _is_over(site: CompanySite, siren: str = DANONE) -> bool:
    rows = await site.lab.rows(
        "select job_id is null from cograil_companies.company_enrichments where siren = %(siren)s",
        siren=siren,
    )
    return bool(rows[0][0])


async def test_a_refresh_is_confirmed_audited_and_refused_within_the_cooldown(
    site: CompanySite, browser: PageClient
) -> None:
    id = await site.request_company()
    page = await shown(browser)
    (path,) = REFRESH.findall(page)
    place = path.decode()
    assert place == f"/ui/companies/requests/{id}/refresh"
    form = {"token": await browser.token("/ui/companies"), "back": f"/ui/companies/{DANONE}"}
    response = await browser.post(place, form)
    assert (response.status, b"Ask the registers anew?" in response.raw) == (200, True)
    assert await site.lab.rows("select count(*) from cograil_companies.company_runs") == [(1,)]
    done = await browser.post(place, form | {"confirmed": "yes"})
    assert (done.status, done.headers["location"]) == (303, f"/ui/companies/{DANONE}")
    await until(lambda: _is_over(site))
    page = await shown(browser)
    assert (REFRESH.findall(page), b"MANUAL_REFRESH" in page, b"again in" in page) == ([], True, True)
    early = await browser.post(place, form | {"confirmed": "yes"})
    assert early.status == 409
    assert b"refreshed a short while ago; come again in" in early.raw
    assert f'href="/ui/companies/{DANONE}">Go back'.encode() in early.raw
    script = await browser.post(place, form | {"confirmed": "yes"}, accept="*/*")
    assert (script.status, script.code) == (409, "refresh_too_soon")
    audited = await site.lab.rows("select action, target from cograil.audit_log where action like 'refresh%'")
    assert audited == [("refresh company", DANONE)]
    await site.lab.rows(
        "update cograil_companies.company_enrichments set refresh_asked_at = now() - interval '1 h'"
    )
    assert REFRESH.search(await shown(browser)) is not None


async def test_while_a_run_is_under_way_its_job_is_shown_and_no_button(dsn: str) -> None:
    async with open_company_site(dsn, sync_seconds=0) as site:
        await site.request_company()
        page = await shown(PageClient(site.api))
        ((job_id,),) = await site.lab.rows("select id::text from cograil.jobs")
    assert f'href="/ui/jobs/{job_id}"'.encode() in page
    assert b"No data yet" in page
    assert REFRESH.search(page) is None


async def test_a_page_names_the_failed_register_and_marks_stale_data(
    site: CompanySite, browser: PageClient
) -> None:
    site.registers.answer(INPI, http_response(503))
    id = await site.request_company()
    await site.over(id)
    await site.age(40)
    page = await shown(browser)
    assert b"<code>INPI_RNE:<wbr>503:<wbr>UPSTREAM_5XX</code>" in page
    assert b"<code>503 UPSTREAM_5XX</code>" in page
    assert b"is stale since" in page


async def test_each_role_sees_and_does_what_the_api_lets_it(site: CompanySite, browser: PageClient) -> None:
    api, ann = site.api, str(uuid4())
    id = await site.request_company(key=await api.make_key("submitter", user_id=ann))
    path = f"/ui/companies/requests/{id}/refresh"
    wanted: dict[str, tuple[Any, ...]] = {  # documents, a form to ask, a button to refresh
        "viewer": (False, False, False),
        "submitter": (True, True, False),
        "operator": (True, True, True),
    }
    for role, (documents, asks, refreshes) in wanted.items():
        browser.cookies.clear()
        await browser.login(await api.make_key(role, **({"user_id": ann} if role == "submitter" else {})))
        page, listed = await shown(browser), await shown(browser, "/ui/companies")
        assert DANONE.encode() in listed
        assert (b"SHA-256" in page, b'name="number"' in listed) == (documents, asks), role
        assert (REFRESH.search(page) is not None) == refreshes, role
        yes = {"token": form_token(await browser.get("/ui/companies")), "confirmed": "yes"}
        if not refreshes:
            assert (await browser.post(path, yes)).status == 403
        if not asks:
            assert (await browser.post("/ui/companies", yes | {"number": OTHER})).status == 403
    assert await site.lab.rows("select count(*) from cograil_companies.company_runs") == [(1,)]


async def test_requests_of_others_are_hidden_from_submitters_and_other_tenants(
    site: CompanySite, browser: PageClient
) -> None:
    api = site.api
    id = await site.request_company(key=await api.make_key("operator"))
    for key in (
        await api.make_key("submitter", user_id=str(uuid4())),
        await api.make_key("admin", tenant="other"),
    ):
        browser.cookies.clear()
        await browser.login(key)
        for path in ("/ui/companies", "/ui/companies?q=danone", f"/ui/companies?q={DANONE}"):
            assert f"/ui/companies/{DANONE}".encode() not in await shown(browser, path)
        assert (await browser.get(f"/ui/companies/{DANONE}")).status == 404
    token = await browser.token("/ui/companies")
    refused = await browser.post(f"/ui/companies/requests/{id}/refresh", {"token": token, "confirmed": "yes"})
    assert refused.status == 404
    for siren in ("000000000", "nobody", "requests"):
        assert (await browser.get(f"/ui/companies/{siren}")).status == 404


async def test_companies_are_found_by_number_and_by_name_page_after_page(
    site: CompanySite, browser: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for siren in (DANONE, OTHER, DANONE):
        await site.request_company(siren)
    await asyncio.gather(*(until(partial(_is_over, site, siren)) for siren in (DANONE, OTHER)))
    for text, wanted in (
        ("", [DANONE, OTHER]),
        ("55203", [DANONE]),
        (SIRET, [DANONE]),
        ("DANONE", [DANONE, OTHER]),
        ("anon", [DANONE, OTHER]),
        ("nobody", []),
        ("9", []),
    ):
        async with site.lab.db.transaction("test") as tx:
            listed = await find_companies(tx, "default", text=text)
        assert ([company["siren"] for company in listed.companies], listed.stopped_at) == (wanted, None), text
    assert b"No company matches" in await shown(browser, "/ui/companies?q=nobody")
    monkeypatch.setattr(company_search, "REQUESTS_LOOKED_THROUGH", 1)
    seen, path = [], "/ui/companies"
    while path:
        page = (await shown(browser, path)).decode()
        seen += re.findall(r'href="/ui/companies/(\d{9})"', page)
        older = re.search(r'href="(/ui/companies\?[^"]+)" rel="next"', page)
        path = older[1].replace("&amp;", "&") if older else ""
    assert seen == [DANONE, OTHER]  # each once, though one was asked for twice


async def test_every_page_and_every_form_asks_for_its_role(browser: PageClient) -> None:
    await check_required_roles(browser, [companies])


async def test_without_the_app_there_are_no_pages(dsn: str) -> None:
    async with open_company_site(dsn, is_enabled=False) as site:
        browser = PageClient(site.api)
        page = await browser.get("/ui/companies")
        assert (page.status, b"is off" in page.raw) == (200, True)
        assert b"/ui/companies" not in await shown(browser, "/ui/")


async def test_with_the_app_companies_are_in_the_navigation(browser: PageClient) -> None:
    assert b'href="/ui/companies"' in await shown(browser, "/ui/")
