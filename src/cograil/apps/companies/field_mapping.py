"""What each source answers, as the fields we know. What is not there, or of another kind, is None."""

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
OPEN_TO_ALL = frozenset({None, "", "O", "o", "diffusible"})  # what everybody may see
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
    """The company that was asked for, of those that were found; the first one may be another."""
    found = [one for one in results if isinstance(one, dict)] if isinstance(results, list) else []
    if siret is not None:
        for one in found:
            if part(one, "siege").get("siret") == siret:
                return one
    return found[0] if found and found[0].get("siren") == siren else None


def recherche_fields(found: Mapping[str, Any]) -> Fields:
    """One result of the search."""
    head = part(found, "siege")
    abroad = text(head.get("code_pays_etranger"))
    home = "FR" if head.get("code_postal") and abroad is None else None
    fields: Fields = {
        "siren": text(found.get("siren")),
        "legal_name": text(found.get("nom_raison_sociale")) or text(found.get("nom_complet")),
        "trade_name": text(found.get("nom_complet")),
        "brand_name": text(found.get("sigle")),
        "legal_form": label_of(found.get("nature_juridique")),
        "creation_date": day(found.get("date_creation")),
        "active_status": text(found.get("etat_administratif")),
        "address_line1": text(head.get("adresse")),
        "address_line2": text(head.get("complement_adresse")),
        "postal_code": text(head.get("code_postal")),
        "city": text(head.get("libelle_commune")) or text(head.get("libelle_commune_etranger")),
        "country_code": home or country(head.get("libelle_pays_etranger")),
        "naf_code": naf(found.get("activite_principale")),
        "naf_label": text(found.get("libelle_activite_principale")),
        "headcount_range": text(found.get("tranche_effectif_salarie")),
    }
    return masked(fields, found, head)


def extras_of(found: Mapping[str, Any]) -> dict[str, Json]:
    """What is shown beside the fields, as it came."""
    return {name: found[name] for name in EXTRAS if found.get(name)}


# -- INPI RNE ----------------------------------------------------------------------------------------------


def inpi_fields(answer: Mapping[str, Any]) -> Fields:
    """The formality of a company: of a legal person, of a person, or of a farm."""
    formality = part(answer, "formality")
    content = part(formality, "content")
    creation = part(content, "natureCreation")
    body = next((found for kind in KINDS if (found := part(content, kind))), {})
    entity = part(part(body, "identite"), "entreprise")
    main = part(body, "etablissementPrincipal")
    address = _first_told(part(part(body, "adresseEntreprise"), "adresse"), part(main, "adresse"))
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
    return masked(fields, answer, formality, main)  # INPI names a company that asks not to be shown


def inpi_siren(answer: Mapping[str, Any]) -> str | None:
    """Of which company the answer is, if it says so."""
    return text(part(answer, "formality").get("siren")) or text(answer.get("siren"))


KINDS = ("personneMorale", "personnePhysique", "exploitation")


def _person(body: Mapping[str, Any]) -> str | None:
    person = part(part(part(body, "identite"), "entrepreneur"), "descriptionPersonne")
    given = person.get("prenoms")
    first = given[0] if isinstance(given, list) and given else given
    return " ".join(word for word in (text(first), text(person.get("nom"))) if word) or None


def _form(*said: Mapping[str, Any]) -> str | None:
    """INPI has codes of its own beside those of INSEE; where it has one, it gives the other too."""
    codes = (one.get(name) for one in said for name in ("formeJuridique", "formeJuridiqueInsee"))
    return next((label for code in codes if (label := label_of(code))), None)


def _activity(body: Mapping[str, Any], content: Mapping[str, Any]) -> str | None:
    """Whoever rests is not closed: that is only who was struck off, or of whom INSEE says so."""
    ended = part(content, "natureCessationEntreprise")
    if part(body, "detailCessationEntreprise").get("dateRadiation") or ended.get("dateRadiation"):
        return "C"
    said = text(ended.get("etatAdministratifInsee"))
    return said if said in ("A", "C") else None


def _street(address: Mapping[str, Any]) -> str | None:
    words = (address.get(name) for name in ("numVoie", "indiceRepetition", "typeVoie", "voie"))
    return " ".join(word for one in words if (word := text(one))) or None


# -- API Entreprise, RCS -----------------------------------------------------------------------------------


def rcs_fields(answer: Mapping[str, Any]) -> Fields:
    """An extract of the register of commerce. What it does not know is there, as empty texts."""
    data = part(answer, "data")
    body, person = part(data, "personne_morale"), part(data, "personne_physique")
    address = _first_told(part(data, "adresse_siege"), part(person, "adresse"))
    court = text(part(data, "greffe").get("valeur"))
    named = " ".join(word for one in ("prenom", "nom") if (word := text(person.get(one)))) or None
    fields: Fields = {
        "siren": text(data.get("siren")),
        "legal_name": text(body.get("denomination")) or named,
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
    """Of a company `ligne_2` is the line of the city, of a person that of the street."""
    words = (text(address.get(name)) for name in ("numero", "type", "voie"))
    street = " ".join(word for word in words if word) or None
    return text(address.get("nom_postal")) or text(address.get("ligne_1")) or street


# -- masking -----------------------------------------------------------------------------------------------


def masked(fields: Fields, *parts: Mapping[str, Any]) -> Fields:
    """These fields without what must not be shown; `masked_fields` names what was hidden.

    A flag in one of these parts of the answer hides name and street; a value that says it is hidden hides
    its own field too.
    """
    hidden = {name for name, value in fields.items() if isinstance(value, str) and MASKED in value}
    is_flagged = any(one.get(flag) not in OPEN_TO_ALL for one in parts for flag in FLAGS)
    if is_flagged or hidden & {"legal_name", "trade_name", "address_line1"}:
        hidden |= set(PRIVATE)
    found = fields | dict.fromkeys(hidden & fields.keys())
    return found | {"data_masked": bool(hidden & set(PRIVATE)), "masked_fields": sorted(hidden)}


# -- words -------------------------------------------------------------------------------------------------


def part(of: Any, name: str) -> Mapping[str, Any]:
    """An object inside another; an empty one when it is not there."""
    found = of.get(name) if isinstance(of, dict) else None
    return found if isinstance(found, dict) else {}


def _first_told(*found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first of these in which something is said."""
    return next((one for one in found if any(text(value) for value in one.values())), {})


def text(value: Any) -> str | None:
    """A text that says something; MASKED for one that says it is hidden."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    found = str(value).strip()
    if HIDDEN.match(found):
        return MASKED
    return found[:MAX_TEXT] or None


def day(value: Any) -> str | None:
    """A day as 2024-01-31, also of a time."""
    if not isinstance(value, str):
        return None
    try:
        return date.fromisoformat(value[:10]).isoformat()
    except ValueError:
        return None


def naf(value: Any) -> str | None:
    """A code of activity as 62.01Z."""
    found = text(value)
    if found is not None and re.fullmatch(r"[0-9]{4}[A-Z]", found):
        return f"{found[:2]}.{found[2:]}"
    return found


def country(value: Any) -> str | None:
    """Two letters, of what is mostly three or a name."""
    found = (text(value) or "").upper()
    return found if re.fullmatch(r"[A-Z]{2}", found) else COUNTRIES.get(found)
