"""What the registers may answer, and what becomes of it."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.apps.companies.company_site import CompanySite, company_events, until
from tests.apps.companies.registers import (
    DANONE,
    INPI,
    LOGIN,
    OTHER,
    PASSWORD,
    RCS,
    RECHERCHE,
    SIRET,
    TOKEN,
    USER,
    RegisterRequest,
    cut_short,
    extract,
    formality,
    http_response,
    jwt,
    result,
    results,
    siren_of,
)

from cograil import logs
from cograil.apps.companies.company_search import find_companies
from cograil.delivery import circuit_breaker

USUAL: dict[str, Callable[[str], Any]] = {
    RECHERCHE: lambda siren: results(result(siren)),
    INPI: formality,
    RCS: extract,
}
NOT_FOUND = "API_RECHERCHE_ENTREPRISES:200:NOT_FOUND"
HIDDEN = "[NON-DIFFUSIBLE]"
UNKEPT = "API_RECHERCHE_ENTREPRISES:200:INTERNAL_ERROR"


ANSWERS: list[tuple[str, Callable[[str], bytes], int, str]] = [
    (RECHERCHE, lambda s: http_response(400), 1, "API_RECHERCHE_ENTREPRISES:400:INTERNAL_ERROR"),
    (RECHERCHE, lambda s: http_response(401), 1, "API_RECHERCHE_ENTREPRISES:401:AUTH_ERROR"),
    (RECHERCHE, lambda s: http_response(403), 1, "API_RECHERCHE_ENTREPRISES:403:FORBIDDEN"),
    (RECHERCHE, lambda s: http_response(404), 1, "API_RECHERCHE_ENTREPRISES:404:NOT_FOUND"),
    (RECHERCHE, lambda s: http_response(429), 3, "API_RECHERCHE_ENTREPRISES:429:RATE_LIMIT"),
    (RECHERCHE, lambda s: http_response(500), 3, "API_RECHERCHE_ENTREPRISES:500:UPSTREAM_5XX"),
    (
        RECHERCHE,
        lambda s: http_response(302, location="/"),
        1,
        "API_RECHERCHE_ENTREPRISES:302:SOURCE_UNAVAILABLE",
    ),
    (RECHERCHE, lambda s: http_response(200, results()), 1, NOT_FOUND),
    (RECHERCHE, lambda s: http_response(200, {"results": "none"}), 1, NOT_FOUND),
    (RECHERCHE, lambda s: http_response(200, results(result(OTHER))), 1, NOT_FOUND),
    (
        RECHERCHE,
        lambda s: cut_short(results(result(s))),
        3,
        "API_RECHERCHE_ENTREPRISES:200:SOURCE_UNAVAILABLE",
    ),
    (
        RECHERCHE,
        lambda s: http_response(200, results(result(s)))[:-9],
        3,
        "API_RECHERCHE_ENTREPRISES:-:SOURCE_UNAVAILABLE",
    ),
    (RECHERCHE, lambda s: b"", 3, "API_RECHERCHE_ENTREPRISES:-:SOURCE_UNAVAILABLE"),
    (RECHERCHE, lambda s: http_response(200, results(result(s, sigle="A\0B"))), 1, UNKEPT),
    (RECHERCHE, lambda s: http_response(200, results(result(s, score=2**70))), 1, UNKEPT),
    (INPI, lambda s: http_response(404), 1, "INPI_RNE:404:NOT_FOUND"),
    (INPI, lambda s: http_response(503), 3, "INPI_RNE:503:UPSTREAM_5XX"),
    (INPI, lambda s: http_response(200, formality(OTHER)), 1, "INPI_RNE:200:NOT_FOUND"),
    (
        RCS,
        lambda s: http_response(404, {"errors": [{"code": "08003"}]}),
        1,
        "API_ENTREPRISE_RCS:404:NOT_FOUND",
    ),
    (RCS, lambda s: http_response(200, extract(OTHER)), 1, "API_ENTREPRISE_RCS:200:NOT_FOUND"),
]


async def test_each_answer_has_its_code_and_its_number_of_tries(
    site: CompanySite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once, each of a company of its own."""
    monkeypatch.setattr(circuit_breaker, "FAILURES", 10_000)  # one port is one origin: it would be left alone
    sirens = [str(100_000_000 + n) for n in range(len(ANSWERS))]
    cases = dict(zip(sirens, ANSWERS, strict=True))
    for source, usual in USUAL.items():
        site.registers.answer(source, partial(_of_case, cases, source, usual))
    ids = await asyncio.gather(*(site.request_company(siren) for siren in sirens))
    for siren, id in zip(sirens, ids, strict=True):
        source, _, tries, error = cases[siren]
        shown = (await site.ended(id))["request"]
        status = "FAILED" if source == RECHERCHE else "PARTIAL"
        assert (shown["enrichment_status"], shown["enrichment_error"]) == (status, error)
        counts = Counter(request.source for request in site.registers.requests if siren_of(request) == siren)
        assert counts[source] == tries, error
        assert counts.keys() == {RECHERCHE, INPI, RCS}, "the others are asked all the same"


def _of_case(cases: Any, of: str, usual: Callable[[str], Any], request: RegisterRequest) -> bytes:
    siren = siren_of(request)
    source, answer, *_ = cases[siren]
    return answer(siren) if source == of else http_response(200, usual(siren))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (http_response(401), "INPI_RNE:401:AUTH_ERROR"),
        (http_response(200, {"jeton": "x"}), "INPI_RNE:200:AUTH_ERROR"),
    ],
)
async def test_a_login_that_gives_no_token_is_tried_once(
    site: CompanySite, answer: bytes, error: str
) -> None:
    site.registers.answer(LOGIN, answer)
    shown = await site.ended(await site.request_company())
    assert shown["request"]["enrichment_error"] == error
    assert site.registers.count(LOGIN) == 1


async def test_nothing_is_lost_when_a_company_fails_later(site: CompanySite) -> None:
    id = await site.request_company()
    before = await site.look(id)
    for source in (RECHERCHE, INPI, RCS):
        site.registers.answer(source, http_response(403))
    assert (await site.refresh(id)).status == 202
    after = await site.ended(id)
    assert after["request"]["enrichment_status"] == "FAILED"
    assert after["company"] == before["company"]
    assert [document["checksum"] for document in after["documents"]] == [
        document["checksum"] for document in before["documents"]
    ]


async def test_a_register_that_says_when_to_come_again_is_asked_then(site: CompanySite) -> None:
    extract_response = http_response(200, extract())
    site.registers.answer(RCS, http_response(429, retry_after="1"), extract_response)
    shown = await site.ended(await site.request_company())
    assert shown["request"]["enrichment_status"] == "SUCCESS"
    first, second = [request.at for request in site.registers.requests if request.source == RCS]
    assert second - first >= 1.0


async def test_a_register_with_a_long_retry_after_is_not_asked_again(site: CompanySite) -> None:
    site.registers.answer(RCS, http_response(429, retry_after="3600"))
    shown = await site.ended(await site.request_company())
    assert shown["request"]["enrichment_error"] == "API_ENTREPRISE_RCS:429:RATE_LIMIT"
    assert site.registers.count(RCS) == 1


async def test_requests_to_registers_have_the_documented_form(site: CompanySite) -> None:
    await site.request_company()
    requests = {request.source: request for request in site.registers.requests}
    assert requests[RECHERCHE].query == {
        "q": DANONE,
        "minimal": "true",
        "include": "siege,complements,finances,score",
        "page": "1",
        "per_page": "1",
    }
    assert json.loads(requests[LOGIN].body) == {"username": USER, "password": PASSWORD}
    assert requests[INPI].path == f"/api/companies/{DANONE}"
    assert requests[INPI].headers["authorization"].startswith("Bearer ey")
    assert requests[RCS].path == f"/v3/infogreffe/rcs/unites_legales/{DANONE}/extrait_kbis"
    assert requests[RCS].headers["authorization"] == f"Bearer {TOKEN}"
    assert requests[RCS].query.keys() == {"context", "object", "recipient"}


async def test_a_siret_finds_the_company_whose_head_office_it_is(site: CompanySite) -> None:
    companies = results(
        result(OTHER, "73282932000074", nom_raison_sociale="WRONG"), result(nom_raison_sociale="RIGHT")
    )
    site.registers.answer(RECHERCHE, http_response(200, companies))
    answer = await site.ask(None, siret=SIRET)
    assert (answer.body["company"]["legal_name"], answer.body["request"]["siren"]) == ("RIGHT", DANONE)
    assert site.registers.requests[0].query["q"] == SIRET
    assert site.registers.requests[0].query["per_page"] == "5"


async def test_a_siret_of_a_branch_finds_the_company_if_that_comes_first(site: CompanySite) -> None:
    site.registers.answer(RECHERCHE, http_response(200, results(result(DANONE, "55203253400001"))))
    answer = await site.ask(None, siret=SIRET)
    assert answer.body["request"]["enrichment_status"] == "SUCCESS"
    assert answer.body["request"]["siret"] == SIRET, "that of the request stays"


async def test_a_company_that_keeps_its_name_to_itself_is_no_failure(site: CompanySite) -> None:
    hidden = HIDDEN
    siege = {"adresse": hidden, "code_postal": hidden, "libelle_commune": hidden, "siret": SIRET}
    masked = result(nom_complet=hidden, nom_raison_sociale=None, statut_diffusion="P", siege=siege)
    site.registers.answer(RECHERCHE, http_response(200, results(masked)))
    for source in (INPI, RCS):
        site.registers.answer(source, http_response(404))
    answer = await site.ask()
    company = answer.body["company"]
    assert answer.body["request"]["enrichment_status"] == "PARTIAL"
    assert company["data_masked"]
    assert (company["legal_name"], company["address"]["city"]) == (hidden, hidden)
    assert company["address"]["postal_code"] is None


def masked_by(source: str, site: CompanySite) -> None:
    """All three registers answer in full; this one says that the company does not want to be shown."""
    site.registers.answer(RECHERCHE, http_response(200, results(result())))
    site.registers.answer(INPI, http_response(200, formality()))
    site.registers.answer(RCS, http_response(200, extract()))
    if source == RECHERCHE:
        site.registers.answer(RECHERCHE, http_response(200, results(result(statut_diffusion="P"))))
    elif source == INPI:
        masked = formality()
        masked["formality"]["diffusionINSEE"] = "P"
        site.registers.answer(INPI, http_response(200, masked))
    else:
        masked = extract()
        masked["data"]["status_diffusion"] = "partiellement_diffusible"
        site.registers.answer(RCS, http_response(200, masked))


@pytest.mark.parametrize("source", [RECHERCHE, INPI, RCS])
async def test_data_masked_by_one_register_is_not_filled_in_by_another(
    site: CompanySite, source: str
) -> None:
    """Neither in the answer, nor in what is stored, nor in what a search finds."""
    id = await site.request_company()
    assert (await site.ended(id))["company"]["legal_name"] == "DANONE"
    masked_by(source, site)
    await site.age(31)
    await site.refresh(id)
    shown = await site.ended(id)
    company = shown["company"]
    assert (company["data_masked"], company["legal_name"]) == (True, "[NON-DIFFUSIBLE]")
    assert [company[name] for name in ("trade_name", "brand_name")] == [None, None]
    address = company["address"]
    assert [address[name] for name in ("line1", "line2", "postal_code")] == [None, None, None]
    assert not {"legal_name", "trade_name", "address_line1"} & company["fields"].keys()
    stored = await site.lab.rows(
        "select to_jsonb(c)::text from cograil_companies.companies c union all select fields::text from"
        " cograil_companies.company_source_retrievals union all select payload_json::text from"
        " cograil_companies.company_documents union all select data::text from cograil.outbox"
    )
    text = " ".join(str(value) for (value,) in stored)
    assert "DANONE" not in text
    assert "HAUSSMANN" not in text
    async with site.lab.db.transaction("test") as tx:
        assert (await find_companies(tx, "default", text="danone")).companies == []


async def test_a_town_that_one_register_hides_is_not_told_by_another(site: CompanySite) -> None:
    siege = {"adresse": HIDDEN, "code_postal": HIDDEN, "libelle_commune": HIDDEN, "siret": SIRET}
    site.registers.answer(RECHERCHE, http_response(200, results(result(statut_diffusion="P", siege=siege))))
    site.registers.answer(INPI, http_response(200, formality()))
    shown = await site.ended(await site.request_company())
    assert shown["company"]["address"]["city"] == HIDDEN


async def test_a_company_without_a_place_is_not_found(site: CompanySite) -> None:
    site.registers.answer(RECHERCHE, http_response(200, results(result(siege={}))))
    for source in (INPI, RCS):
        site.registers.answer(source, http_response(404))
    shown = await site.ended(await site.request_company())
    assert shown["request"]["enrichment_status"] == "FAILED"
    assert shown["request"]["enrichment_error"].startswith(NOT_FOUND + "|INPI_RNE:404:NOT_FOUND")


async def test_a_token_is_used_until_it_is_refused_and_then_renewed(site: CompanySite) -> None:
    old, new = jwt(3600), jwt(7200)
    site.registers.answer(LOGIN, http_response(200, {"token": old}), http_response(200, {"token": new}))
    is_over = False

    def company(request: RegisterRequest) -> bytes:
        is_old = request.headers["authorization"] == f"Bearer {old}"
        return (
            http_response(401)
            if is_old and is_over
            else http_response(200, formality(request.path.rsplit("/", 1)[1]))
        )

    site.registers.answer(INPI, company)
    for siren in (DANONE, OTHER):
        assert (await site.ask(siren)).body["request"]["enrichment_status"] == "SUCCESS"
    assert site.registers.count(LOGIN) == 1
    is_over = True
    assert (await site.ask("443061841")).body["request"]["enrichment_status"] == "SUCCESS"
    assert site.registers.count(LOGIN) == 2


async def test_a_token_is_renewed_before_it_ends(site: CompanySite) -> None:
    site.registers.answer(
        LOGIN, http_response(200, {"token": jwt(30)}), http_response(200, {"token": jwt(3600)})
    )
    for siren in (DANONE, OTHER, "443061841"):
        await site.request_company(siren)
    assert site.registers.count(LOGIN) == 2


class TestWithoutCredentials:
    @pytest.fixture
    def companies(self) -> dict[str, Any]:
        return {"inpi_password": None, "rcs_token": None}

    async def test_a_source_without_credentials_is_neither_asked_nor_counted(self, site: CompanySite) -> None:
        answer = await site.ask()
        assert answer.body["request"]["enrichment_status"] == "SUCCESS"
        assert site.registers.calls() == {RECHERCHE: 1, INPI: 0, RCS: 0}
        shown = await site.look(answer.body["request"]["id"])
        assert [retrieval["source_api"] for retrieval in shown["source_retrievals"]] == [RECHERCHE]


class TestUnreachable:
    @pytest.fixture
    def companies(self) -> dict[str, Any]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return {"rcs_url": f"http://127.0.0.1:{free.getsockname()[1]}", "inpi_url": "http://10.1.2.3"}

    async def test_a_register_that_is_down_is_unavailable_and_a_forbidden_address_never_asked(
        self, site: CompanySite
    ) -> None:
        shown = await site.ended(await site.request_company())
        error = "INPI_RNE:-:INTERNAL_ERROR|API_ENTREPRISE_RCS:-:SOURCE_UNAVAILABLE"
        assert shown["request"]["enrichment_error"] == error


class TestTooLarge:
    @pytest.fixture
    def companies(self) -> dict[str, Any]:
        return {"payload_bytes": 600}

    async def test_a_document_too_large_to_keep_is_used_all_the_same(self, site: CompanySite) -> None:
        id = await site.request_company()
        shown = await site.look(id)
        assert shown["request"]["enrichment_status"] == "SUCCESS"
        assert not any(document["is_kept"] for document in shown["documents"] if document["size_bytes"] > 600)
        kept = await site.lab.rows(
            "select size_bytes from cograil_companies.company_documents where payload_json is not null"
        )
        assert all(size <= 600 for (size,) in kept)


async def test_a_register_that_fails_again_and_again_is_left_alone_for_a_while(site: CompanySite) -> None:
    site.registers.answer(RCS, http_response(500))
    # One port is one origin: the others' successes would close the breaker again.
    site.registers.answer(RECHERCHE, http_response(500))
    site.registers.answer(INPI, http_response(500))
    site.registers.answer(LOGIN, http_response(500))
    await site.ended(await site.request_company())
    shown = await site.ended(await site.request_company(OTHER))
    assert shown["request"]["enrichment_error"].startswith("API_RECHERCHE_ENTREPRISES:-:SOURCE_UNAVAILABLE")
    before = len(site.registers.requests)
    shown = await site.ended(await site.request_company("443061841"))
    assert len(site.registers.requests) == before, "nothing was sent"
    site.registers.heal()
    assert (await site.look(shown["request"]["id"]))["request"]["siren"] == "443061841", "reads go on"


@pytest.mark.parametrize(
    "answer", [http_response(429, retry_after="3600"), http_response(503, retry_after="60")]
)
async def test_a_register_with_repeated_long_retry_after_is_left_alone(
    site: CompanySite, answer: bytes
) -> None:
    for source in (RECHERCHE, INPI, LOGIN, RCS):
        site.registers.answer(source, answer)
    for siren in (DANONE, OTHER):
        await site.ended(await site.request_company(siren))
    before = len(site.registers.requests)
    assert before == 5, "one port is one origin: its fifth failure in a row is the last"
    await site.ended(await site.request_company("443061841"))
    assert len(site.registers.requests) == before, "nothing was sent"


async def test_a_company_may_have_thousands_of_establishments(site: CompanySite) -> None:
    large = formality()
    establishment = {"descriptionEtablissement": {f"field{n}": n for n in range(30)}}
    large["formality"]["content"]["personneMorale"]["autresEtablissements"] = [establishment] * 1_000
    site.registers.answer(INPI, http_response(200, large))
    answer = await site.ask()
    assert answer.body["request"]["enrichment_status"] == "SUCCESS"
    assert answer.body["company"]["creation_date"] == "1908-02-02", "which INPI says"


async def test_no_secret_is_in_a_log_an_event_an_error_or_a_row(site: CompanySite) -> None:
    """Also when a register says back what it was sent."""
    stream, token = io.StringIO(), jwt()
    logs.configure("debug", "json", stream)

    def echo(request: RegisterRequest) -> bytes:
        return http_response(500, {"sent": request.headers, "body": request.body.decode()})

    def no_json(request: RegisterRequest) -> bytes:
        return http_response(200, f"{request.headers} {request.body.decode()}".encode())

    login = http_response(200, {"token": token})
    site.registers.answer(LOGIN, login, http_response(401), no_json)
    for source, answer in ((RECHERCHE, echo), (INPI, http_response(401)), (RCS, no_json)):
        site.registers.answer(source, answer)
    async with site.hearing() as receiver:
        shown = await site.ended(await site.request_company())
        await until(lambda: company_events(receiver, "CompanyEnrichmentCompleted"))
    assert {request.source for request in site.registers.requests} == {RECHERCHE, LOGIN, INPI, RCS}
    everything = [
        stream.getvalue(),
        json.dumps(shown),
        *(request.body.decode() for request in receiver.requests),
    ]
    tables = await site.lab.rows("select tablename from pg_tables where schemaname = 'cograil'")
    for (table,) in tables:
        everything += [text for (text,) in await site.lab.rows(f"select t::text from cograil.{table} t")]
    assert any("INPI_RNE:401:AUTH_ERROR" in text for text in everything)
    for secret in (PASSWORD, TOKEN, token):
        assert [text for text in everything if secret in text] == []
