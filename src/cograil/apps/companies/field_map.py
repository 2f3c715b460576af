"""Map the responses of each source to our fields. A missing value, or one of another type, is None."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from cograil.apps.companies.constants import MASKED, PRIVATE
from cograil.apps.companies.legal_forms import label_of
from cograil.model.workflow import Json

Fields = dict[str, Json]

HIDDEN = re.compile(r"^\W*(?:NON[ -]DIFFUSIBLE|ND)\W*$", re.IGNORECASE)
OPEN_TO_ALL = frozenset({None, "", "O", "o", "diffusible"})  # public
FLAGS = (
    "statut_diffusion",
    "statut_diffusion_etablissement",
    "statut_diffusion_unite_legale",
    "status_diffusion",
    "diffusionINSEE",
)
EXTRAS = ("finances", "complements")
MAX_TEXT = 500
COUNTRIES = {
    "FRA": "FR", "FRANCE": "FR", "BEL": "BE", "BELGIQUE": "BE", "CHE": "CH", "SUISSE": "CH", "DEU": "DE",
    "ALLEMAGNE": "DE", "ESP": "ES", "ESPAGNE": "ES", "ITA": "IT", "ITALIE": "IT", "LUX": "LU",
    "LUXEMBOURG": "LU", "GBR": "GB", "ROYAUME-UNI": "GB", "NLD": "NL", "PAYS-BAS": "NL", "PRT": "PT",
    "PORTUGAL": "PT", "MCO": "MC", "MONACO": "MC", "IRL": "IE", "IRLANDE": "IE", "USA": "US",
}  # fmt: skip


# -- API Recherche d'Entreprises ---------------------------------------------------------------------------


def choose(results: Any, siren: str, siret: str | None) -> Mapping[str, Any] | None:
    """The requested company among the search results, of which the first may be another; None if missing."""
    companies = (
        [company for company in results if isinstance(company, dict)] if isinstance(results, list) else []
    )
    if siret is not None:
        for company in companies:
            if part(company, "siege").get("siret") == siret:
                return company
    return companies[0] if companies and companies[0].get("siren") == siren else None


def recherche_fields(company: Mapping[str, Any]) -> Fields:
    """The fields of a search result."""
    seat = part(company, "siege")
    foreign_country = text(seat.get("code_pays_etranger"))
    home_country = "FR" if seat.get("code_postal") and foreign_country is None else None
    fields: Fields = {
        "siren": text(company.get("siren")),
        "legal_name": text(company.get("nom_raison_sociale")) or text(company.get("nom_complet")),
        "trade_name": text(company.get("nom_complet")),
        "brand_name": text(company.get("sigle")),
        "legal_form": label_of(company.get("nature_juridique")),
        "creation_date": day(company.get("date_creation")),
        "active_status": text(company.get("etat_administratif")),
        "address_line1": text(seat.get("adresse")),
        "address_line2": text(seat.get("complement_adresse")),
        "postal_code": text(seat.get("code_postal")),
        "city": text(seat.get("libelle_commune")) or text(seat.get("libelle_commune_etranger")),
        "country_code": home_country or country(seat.get("libelle_pays_etranger")),
        "naf_code": naf(company.get("activite_principale")),
        "naf_label": text(company.get("libelle_activite_principale")),
        "headcount_range": text(company.get("tranche_effectif_salarie")),
    }
    return masked(fields, company, seat)


def extras_of(company: Mapping[str, Any]) -> dict[str, Json]:
    """The additional data of a search result, unchanged."""
    return {name: company[name] for name in EXTRAS if company.get(name)}


# -- INPI RNE ----------------------------------------------------------------------------------------------


def inpi_fields(answer: Mapping[str, Any]) -> Fields:
    """The fields of a formality: of a legal person, a natural person, or a farm."""
    formality = part(answer, "formality")
    content = part(formality, "content")
    creation = part(content, "natureCreation")
    body = next((candidate for kind in KINDS if (candidate := part(content, kind))), {})
    entity = part(part(body, "identite"), "entreprise")
    main = part(body, "etablissementPrincipal")
    address = _first_non_empty(part(part(body, "adresseEntreprise"), "adresse"), part(main, "adresse"))
    fields: Fields = {
        "siren": inpi_siren(answer),
        "legal_name": text(entity.get("denomination")) or _person(body),
        "trade_name": text(entity.get("nomCommercial"))
        or text(part(main, "descriptionEtablissement").get("nomCommercial")),
        "brand_name": text(part(part(body, "identite"), "description").get("sigle")),
        "legal_form": _form(entity, creation, formality),
        "creation_date": day(creation.get("dateCreation")) or day(entity.get("dateImmat")),
        "active_status": _activity(body, content),
        "address_line1": _street(address),
        "address_line2": text(address.get("complementLocalisation"))
        or text(address.get("distributionSpeciale")),
        "postal_code": text(address.get("codePostal")),
        "city": text(address.get("commune")),
        "country_code": country(address.get("codePays")) or country(address.get("pays")),
        "naf_code": naf(entity.get("codeApe")) or naf(formality.get("codeAPE")),
    }
    return masked(fields, answer, formality, main)  # INPI also names companies that opted out of publication


def inpi_siren(answer: Mapping[str, Any]) -> str | None:
    """The SIREN of the company in the response, if it has one."""
    return text(part(answer, "formality").get("siren")) or text(answer.get("siren"))


KINDS = ("personneMorale", "personnePhysique", "exploitation")


def _person(body: Mapping[str, Any]) -> str | None:
    person = part(part(part(body, "identite"), "entrepreneur"), "descriptionPersonne")
    first_names = person.get("prenoms")
    first = first_names[0] if isinstance(first_names, list) and first_names else first_names
    return " ".join(word for word in (text(first), text(person.get("nom"))) if word) or None


def _form(*sections: Mapping[str, Any]) -> str | None:
    """The legal form by the codes of INPI or INSEE."""
    codes = (section.get(name) for section in sections for name in ("formeJuridique", "formeJuridiqueInsee"))
    return next((label for code in codes if (label := label_of(code))), None)


def _activity(body: Mapping[str, Any], content: Mapping[str, Any]) -> str | None:
    """C only for a company that was struck off or that INSEE calls closed, not for a dormant one."""
    ended = part(content, "natureCessationEntreprise")
    if part(body, "detailCessationEntreprise").get("dateRadiation") or ended.get("dateRadiation"):
        return "C"
    insee_status = text(ended.get("etatAdministratifInsee"))
    return insee_status if insee_status in ("A", "C") else None


def _street(address: Mapping[str, Any]) -> str | None:
    words = (address.get(name) for name in ("numVoie", "indiceRepetition", "typeVoie", "voie"))
    return " ".join(word for piece in words if (word := text(piece))) or None


# -- API Entreprise, RCS -----------------------------------------------------------------------------------


def rcs_fields(answer: Mapping[str, Any]) -> Fields:
    """The fields of an extract of the register of commerce, which has unknown values as empty strings."""
    data = part(answer, "data")
    body, person = part(data, "personne_morale"), part(data, "personne_physique")
    address = _first_non_empty(part(data, "adresse_siege"), part(person, "adresse"))
    court = text(part(data, "greffe").get("valeur"))
    person_name = (
        " ".join(word for field_name in ("prenom", "nom") if (word := text(person.get(field_name)))) or None
    )
    fields: Fields = {
        "siren": text(data.get("siren")),
        "legal_name": text(body.get("denomination")) or person_name,
        "trade_name": text(data.get("nom_commercial")),
        "legal_form": text(part(body, "forme_juridique").get("valeur")),
        "creation_date": day(data.get("date_immatriculation")),
        "active_status": "C" if data.get("date_radiation") else None,
        "address_line1": _line_of_street(address),
        "postal_code": text(address.get("code_postal")),
        "city": text(address.get("localite")) or text(address.get("bureau_distributeur")),
        "country_code": country(address.get("pays")),
        "naf_code": naf(part(data, "etablissement_principal").get("code_ape")),
        "rcs_city": court,
        "registry_name": None if court is None else f"Greffe de {court}",  # not all are of commerce
    }
    return masked(fields, data, body, person)


def _line_of_street(address: Mapping[str, Any]) -> str | None:
    """The street line: `ligne_2` is the city line of a company, but the street line of a person."""
    words = (text(address.get(name)) for name in ("numero", "type", "voie"))
    street = " ".join(word for word in words if word) or None
    return text(address.get("nom_postal")) or text(address.get("ligne_1")) or street


# -- masking -----------------------------------------------------------------------------------------------


def masked(fields: Fields, *parts: Mapping[str, Any]) -> Fields:
    """The fields without non-public ones, whose names are listed in `masked_fields`.

    A flag in one of these parts of the response hides name and street; a masked value hides its own field too.
    """
    hidden = {name for name, value in fields.items() if isinstance(value, str) and MASKED in value}
    is_flagged = any(section.get(flag) not in OPEN_TO_ALL for section in parts for flag in FLAGS)
    if is_flagged or hidden & {"legal_name", "trade_name", "address_line1"}:
        hidden |= set(PRIVATE)
    visible = fields | dict.fromkeys(hidden & fields.keys())
    return visible | {"data_masked": bool(hidden & set(PRIVATE)), "masked_fields": sorted(hidden)}


# -- words -------------------------------------------------------------------------------------------------


def part(parent: Any, name: str) -> Mapping[str, Any]:
    """A nested object; an empty one when it is missing."""
    child = parent.get(name) if isinstance(parent, dict) else None
    return child if isinstance(child, dict) else {}


def _first_non_empty(*sections: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first of these sections with a non-empty value."""
    return next((section for section in sections if any(text(value) for value in section.values())), {})


def text(value: Any) -> str | None:
    """A non-empty string; MASKED for a value that stands for a hidden one."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    stripped = str(value).strip()
    if HIDDEN.match(stripped):
        return MASKED
    return stripped[:MAX_TEXT] or None


def day(value: Any) -> str | None:
    """A date as 2024-01-31, also from a timestamp."""
    if not isinstance(value, str):
        return None
    try:
        return date.fromisoformat(value[:10]).isoformat()
    except ValueError:
        return None


def naf(value: Any) -> str | None:
    """An activity code as 62.01Z."""
    code = text(value)
    if code is not None and re.fullmatch(r"[0-9]{4}[A-Z]", code):
        return f"{code[:2]}.{code[2:]}"
    return code


def country(value: Any) -> str | None:
    """A two-letter country code from one of three letters or a name."""
    code = (text(value) or "").upper()
    return code if re.fullmatch(r"[A-Z]{2}", code) else COUNTRIES.get(code)
