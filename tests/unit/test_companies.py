"""What the app `companies` decides without asking anybody: numbers, fields, merging, verdicts."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cograil.apps.companies import field_map
from cograil.apps.companies.constants import INPI, PRIVATE, RCS, RECHERCHE, SOURCE_CODES, SOURCES
from cograil.apps.companies.handlers import bucket_of
from cograil.apps.companies.identifiers import Identifiers, doubts, is_luhn, is_plausible_siret
from cograil.apps.companies.legal_forms import LABELS
from cograil.apps.companies.merge import MATRIX, NOTHING, Company, SourceData, freshness, masked_fields, merge
from cograil.apps.companies.run_outcome import MAX_ERROR, SourceOutcome, failed_as, judge
from cograil.apps.companies.source_http import read_retry_after
from cograil.apps.companies.sources import CompanyQuery, expiry, search
from cograil.apps.companies.workflow import WORKFLOW
from cograil.definitions import read_workflow
from cograil.store.database import Database
from cograil.verbs import buckets

NOW = datetime(2026, 1, 31, 9, tzinfo=UTC)


# -- numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["552032534", "732829320", "356000000", "55203253400646"])
def test_numbers_in_use_have_their_check_digit(number: str) -> None:
    assert is_luhn(number)


@pytest.mark.parametrize(
    ("siret", "is_plausible"),
    [
        ("35600000000048", True),
        ("35600000049837", True),
        ("35600000049838", False),
        ("55203253400647", False),
    ],
)
def test_the_establishments_of_la_poste_have_a_rule_of_their_own(siret: str, is_plausible: bool) -> None:
    assert is_plausible_siret(siret) is is_plausible


def test_a_doubt_names_the_field() -> None:
    flaws = doubts(Identifiers("123456789", "12345678900000", None, "12345678900000"))
    assert [flaw["field"] for flaw in flaws] == ["siren", "siret"]


# -- the pipeline ------------------------------------------------------------------------------------------


def test_a_change_of_the_pipeline_needs_the_next_version() -> None:
    """Version 2 is published where this runs: other content under it would refuse every request."""
    workflow = read_workflow(WORKFLOW, app="companies")
    assert (workflow.version, workflow.digest[:12]) == (2, "f91e57e15b11")


# -- merging -----------------------------------------------------------------------------------------------


def said(**fields: Any) -> SourceData:
    return SourceData(fields, NOW)


@pytest.mark.parametrize(("field", "order"), MATRIX.items())
def test_the_first_of_its_order_that_says_something_counts(field: str, order: tuple[str, ...]) -> None:
    everybody = {source: said(**{field: source}) for source in SOURCES}
    for place, source in enumerate(order):
        left = {name: answer for name, answer in everybody.items() if name not in order[:place]}
        company = merge(NOTHING, left)
        assert company.fields[field] == source
        assert company.provenance[field]["source_api"] == source


def test_the_orders_are_those_of_the_contract() -> None:
    assert {field for field, order in MATRIX.items() if order[0] == INPI} == {
        *("legal_form", "creation_date", "country_code")
    }
    assert {field for field, order in MATRIX.items() if order[0] == RCS} == {"rcs_city", "registry_name"}
    assert {field for field, order in MATRIX.items() if order == (RECHERCHE,)} == {
        *("naf_label", "headcount_range")
    }


VALUES = st.one_of(st.none(), st.just(""), st.just("  "), st.text("ab", min_size=1, max_size=3))
ANSWERS = st.dictionaries(st.sampled_from(SOURCES), st.dictionaries(st.sampled_from(list(MATRIX)), VALUES))


@given(st.dictionaries(st.sampled_from(list(MATRIX)), st.text("xyz", min_size=1)), ANSWERS)
def test_an_empty_answer_never_replaces_a_known_field(known: dict[str, str], answers: Any) -> None:
    answers_by_source = {source: SourceData(fields, NOW) for source, fields in answers.items()}
    merged = merge(Company(known, {}), answers_by_source)
    assert all(merged.fields.get(field) for field in known if field not in masked_fields(answers_by_source))
    again = merge(merged, {source: SourceData(fields, NOW) for source, fields in answers.items()})
    assert again == merged, "the same again changes nothing"


def test_core_identity_is_a_name_and_a_piece_of_an_address() -> None:
    assert merge(NOTHING, {INPI: said(legal_name="X", city="Y")}).has_core_identity
    assert not merge(NOTHING, {INPI: said(legal_name="X", country_code="FR")}).has_core_identity
    assert not merge(NOTHING, {INPI: said(city="Y")}).has_core_identity


def test_how_long_a_field_is_fresh_is_shown() -> None:
    company = merge(NOTHING, {RECHERCHE: said(siren="552032534", legal_name="X", active_status="A")})
    for days, fresh in ((8, {"siren", "legal_name"}), (31, {"siren"}), (366, set())):
        shown = freshness(company, 30, NOW + timedelta(days=days))
        assert {field for field, state in shown.items() if state["is_fresh"]} == fresh, days


# -- verdicts ----------------------------------------------------------------------------------------------

OK = [SourceOutcome(source, 200) for source in SOURCES]


def failed(source: str, http: int | None, code: str) -> SourceOutcome:
    return SourceOutcome(source, http, code)


@pytest.mark.parametrize(
    ("ended", "has_core", "status", "error"),
    [
        (OK, True, "SUCCESS", None),
        (OK[:1], True, "SUCCESS", None),
        (OK, False, "FAILED", f"{RECHERCHE}:200:NOT_FOUND"),
        ([*OK[:2], failed(RCS, 429, "RATE_LIMIT")], True, "PARTIAL", f"{RCS}:429:RATE_LIMIT"),
        (
            [OK[0], failed(INPI, 503, "UPSTREAM_5XX"), failed(RCS, None, "TIMEOUT")],
            True,
            "PARTIAL",
            f"{INPI}:503:UPSTREAM_5XX|{RCS}:-:TIMEOUT",
        ),
        ([failed(RECHERCHE, 200, "NOT_FOUND"), *OK[1:]], True, "FAILED", f"{RECHERCHE}:200:NOT_FOUND"),
    ],
)
def test_the_verdict_follows_from_the_sources(
    ended: list[SourceOutcome], has_core: bool, status: str, error: str | None
) -> None:
    verdict = judge(ended, core_identity_present=has_core)
    assert (verdict.status, verdict.error) == (status, error)
    assert verdict.sources_failed_count + verdict.sources_success_count == len(ended)


@given(
    st.lists(
        st.builds(SourceOutcome, st.sampled_from(SOURCES), st.none(), st.sampled_from([None, "TIMEOUT"]))
    ),
    st.booleans(),
)
def test_every_verdict_keeps_the_invariants(ended: list[SourceOutcome], has_core: bool) -> None:
    judgement = judge(ended, core_identity_present=has_core)
    required, optional = judgement.required_sources_failed_count, judgement.optional_sources_failed_count
    if judgement.status == "SUCCESS":
        assert has_core
        assert required == optional == 0
    elif judgement.status == "PARTIAL":
        assert has_core
        assert required == 0 < optional
    else:
        assert required > 0 or not has_core
        assert judgement.error
    assert len(judgement.error or "") <= MAX_ERROR


@pytest.mark.parametrize(
    ("error", "code", "http"),
    [
        ({"code": "RATE_LIMIT", "message": "m", "details": {"http_status": 429}}, "RATE_LIMIT", 429),
        ({"code": "timeout", "message": "too long"}, "TIMEOUT", None),
        ({"code": "poison", "message": "killed"}, "INTERNAL_ERROR", None),
        ({"code": "worker_lost", "details": {"worker": "w"}}, "INTERNAL_ERROR", None),
        (None, "INTERNAL_ERROR", None),
    ],
)
def test_errors_of_the_engine_have_codes_of_the_contract(error: Any, code: str, http: int | None) -> None:
    failure = failed_as(RCS, error)
    assert (failure.error_code, failure.http_status) == (code, http)
    assert failure.error_code in SOURCE_CODES


# -- what registers say ------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [{}, {"formality": None}, {"formality": {"content": []}}, {"data": 1}])
def test_answers_of_another_shape_say_nothing(answer: dict[str, Any]) -> None:
    for read in (field_map.inpi_fields, field_map.rcs_fields, field_map.recherche_fields):
        assert not any(read(answer).values())


def test_a_person_has_a_name_at_inpi_and_at_the_register_of_commerce() -> None:
    person = {"descriptionPersonne": {"nom": "DURAND", "prenoms": ["Anne", "Marie"]}}
    content = {"personnePhysique": {"identite": {"entrepreneur": person}}}
    assert field_map.inpi_fields({"formality": {"content": content}})["legal_name"] == "Anne DURAND"
    fields = field_map.rcs_fields({"data": {"personne_physique": {"nom": "DURAND", "prenom": "Anne"}}})
    assert fields["legal_name"] == "Anne DURAND"


EMPTY_ADDRESS = dict.fromkeys(("nom_postal", "ligne_1", "ligne_2", "code_postal", "pays"), "")


def test_an_extract_says_nothing_in_empty_texts_and_means_two_things_by_its_second_line() -> None:
    """Of a company that is the line of its city, of a person that of its street."""
    head = EMPTY_ADDRESS | {
        "nom_postal": "34 RUE A",
        "ligne_1": "34 RUE A",
        "ligne_2": "75002 PARIS (FRANCE) ",
    }
    nobody = {"nom": "", "prenom": "", "adresse": EMPTY_ADDRESS}
    company = {"adresse_siege": head, "personne_morale": {"denomination": "A"}, "personne_physique": nobody}
    fields = field_map.rcs_fields({"data": company})
    assert (fields["legal_name"], fields["address_line1"], fields.get("address_line2")) == (
        "A",
        "34 RUE A",
        None,
    )
    home = EMPTY_ADDRESS | {"voie": "UN LIEU ", "ligne_2": "UN LIEU ", "bureau_distributeur": "DAX"}
    person = {"nom": "DURAND", "prenom": "ANNE", "adresse": home}
    nothing = {"denomination": "", "forme_juridique": {"valeur": "", "code": ""}}
    whole = {"adresse_siege": EMPTY_ADDRESS, "personne_morale": nothing, "personne_physique": person}
    fields = field_map.rcs_fields({"data": whole})
    assert (fields["legal_name"], fields["address_line1"], fields["city"]) == (
        "ANNE DURAND",
        "UN LIEU",
        "DAX",
    )
    assert fields["legal_form"] is None


def test_a_company_that_does_not_want_to_be_shown_is_not_named_by_inpi_either() -> None:
    person = {"descriptionPersonne": {"nom": "DURAND", "prenoms": ["Anne"]}}
    address = {"codePostal": "40100", "commune": "DAX", "voie": "RUE A", "codePays": "FRA"}
    body = {"identite": {"entrepreneur": person}, "adresseEntreprise": {"adresse": address}}
    answer = {"formality": {"diffusionINSEE": "N", "content": {"personnePhysique": body}}}
    fields = field_map.inpi_fields(answer)
    assert fields["data_masked"]
    assert {fields[name] for name in PRIVATE} == {None}
    assert (fields["city"], fields["country_code"]) == ("DAX", "FR")
    answer["formality"]["diffusionINSEE"] = "O"
    assert field_map.inpi_fields(answer)["legal_name"] == "Anne DURAND"


def test_inpi_has_some_of_it_at_the_main_establishment() -> None:
    main = {"descriptionEtablissement": {"nomCommercial": "CHEZ A"}, "adresse": {"commune": "DAX"}}
    body = {"adresseEntreprise": {"adresse": {"voie": None}}, "etablissementPrincipal": main}
    formality = {"codeAPE": "6201Z", "content": {"personnePhysique": body}}
    fields = field_map.inpi_fields({"formality": formality})
    assert (fields["trade_name"], fields["city"], fields["naf_code"]) == ("CHEZ A", "DAX", "62.01Z")


def test_a_head_office_abroad_has_its_city_and_its_country() -> None:
    head = {
        "code_pays_etranger": "99131",
        "libelle_pays_etranger": "BELGIQUE",
        "libelle_commune_etranger": "GENT",
    }
    fields = field_map.recherche_fields({"siege": head})
    assert (fields["city"], fields["country_code"]) == ("GENT", "BE")


@pytest.mark.parametrize(
    ("code", "label"),
    [
        ("5710", "SAS, société par actions simplifiée"),
        (6540, "Société civile immobilière"),
        ("6565", "Société civile professionnelle de notaires"),
        ("6571", "Société civile professionnelle de médecins"),
        ("6576", "Société civile professionnelle de vétérinaires"),
        ("5658", "SA coopérative de production (SCOP) à directoire"),
        ("7410", "Groupement d'intérêt public (GIP)"),
        ("0000", None),
        (None, None),
    ],
)
def test_legal_forms_have_labels_and_unknown_ones_none(code: Any, label: str | None) -> None:
    assert field_map.recherche_fields({"nature_juridique": code})["legal_form"] == label


def test_a_company_that_was_struck_off_is_closed() -> None:
    assert field_map.rcs_fields({"data": {"date_radiation": "2020-01-01"}})["active_status"] == "C"


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ({"personneMorale": {"detailCessationEntreprise": {"dateRadiation": "2020-01-01"}}}, "C"),
        ({"personneMorale": {"detailCessationEntreprise": {"dateCessationTotaleActivite": "2020"}}}, None),
        ({"natureCessationEntreprise": {"dateRadiation": "2020-01-01", "etatAdministratifInsee": "A"}}, "C"),
        ({"natureCessationEntreprise": {"etatAdministratifInsee": "C"}}, "C"),
        ({"natureCessationEntreprise": {"etatAdministratifInsee": "?"}}, None),
    ],
)
def test_inpi_says_in_three_places_whether_a_company_is_closed(content: Any, status: str | None) -> None:
    assert field_map.inpi_fields({"formality": {"content": content}})["active_status"] == status


def test_where_inpi_has_a_form_of_its_own_that_of_insee_counts() -> None:
    creation = {"formeJuridique": "0001", "formeJuridiqueInsee": "5710"}
    fields = field_map.inpi_fields({"formality": {"content": {"natureCreation": creation}}})
    assert fields["legal_form"] == "SAS, société par actions simplifiée"


def test_every_legal_form_has_the_shape_of_one() -> None:
    assert len(LABELS) > 250
    assert all(len(code) == 4 and code.isdecimal() for code in LABELS)
    assert len(set(LABELS.values())) == len(LABELS), "no two have the same words"


# -- asking ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("page", "per_page"), [(0, 1), (1, 26), (401, 25), (10_001, 1)])
def test_a_page_that_the_register_does_not_give_is_not_asked_for(page: int, per_page: int) -> None:
    with pytest.raises(ValueError, match="not given"):
        search(CompanyQuery("552032534"), page, per_page)


async def test_each_token_wakes_one_waiter(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looks = asyncio.get_running_loop().time, 0
    next_at = clock()

    async def take(*_: Any) -> float:
        nonlocal looks, next_at
        looks, now = looks + 1, clock()
        if now < next_at:
            return next_at - now
        next_at = now + 0.002
        return 0.0

    monkeypatch.setattr(buckets, "take", take)
    token = bucket_of(cast("Database", SimpleNamespace(single=lambda _: nullcontext())), 7)
    await asyncio.gather(*(token() for _ in range(50)))
    assert looks < 300, "all of them at each token would be more than a thousand"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0),
        ("0", 0.0),
        ("Sat, 31 Jan 2026 09:00:30 GMT", 30.0),
        ("Sat, 31 Jan 2026 08:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("Sat, 31 Jan 99999999999999 09:00:30 GMT", None),
        ("Sat, 31 Jan 2026 09:00:30 +99999999999999999", None),
        ("", None),
        (None, None),
    ],
)
def test_when_to_come_again_is_a_number_or_a_date(value: str | None, seconds: float | None) -> None:
    assert read_retry_after(value, NOW) == seconds


@pytest.mark.parametrize("token", ["opaque", "a.b.c", "a.e30.c", "a.W10.c", "..."])
def test_a_token_that_does_not_say_when_it_ends_is_used_until_it_is_refused(token: str) -> None:
    assert expiry(token) is None
