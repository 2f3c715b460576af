"""The three registers on one port of this machine, answering in the shapes of the real ones."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

RECHERCHE, INPI, RCS = "API_RECHERCHE_ENTREPRISES", "INPI_RNE", "API_ENTREPRISE_RCS"
LOGIN = "login"
DANONE, OTHER = "552032534", "732829320"
SIRET = "55203253400646"
USER, PASSWORD, TOKEN = "who@example.org", "pa55-of-inpi", "token-of-rcs"


@dataclass(frozen=True)
class RegisterRequest:
    """A request that a register got."""

    source: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    at: float


Script = Callable[[RegisterRequest], bytes | Awaitable[bytes]]


def http_response(status: int, body: Any = None, **headers: str) -> bytes:
    """A whole answer."""
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Said", "Content-Type: application/json", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


def cut_short(body: Any) -> bytes:
    """JSON that ends in its middle, as a whole answer."""
    return http_response(200, json.dumps(body).encode()[:-20])


def result(siren: str = DANONE, siret: str = SIRET, **more: Any) -> dict[str, Any]:
    """One result of the search, as API Recherche d'Entreprises gives it."""
    company = {
        "siren": siren,
        "nom_complet": "DANONE (DANONE)",
        "nom_raison_sociale": "DANONE",
        "sigle": None,
        "nombre_etablissements": 12,
        "nombre_etablissements_ouverts": 1,
        "siege": {
            "activite_principale": "70.10Z",
            "adresse": "59 RUE LA FAYETTE 75009 PARIS",
            "code_pays_etranger": None,
            "code_postal": "75009",
            "complement_adresse": "17 BD HAUSSMANN",
            "libelle_commune": "PARIS",
            "siret": siret,
        },
        "activite_principale": "70.10Z",
        "categorie_entreprise": "GE",
        "date_creation": "1955-01-01",
        "date_fermeture": None,
        "etat_administratif": "A",
        "nature_juridique": "5599",
        "section_activite_principale": "M",
        "statut_diffusion": "O",
        "tranche_effectif_salarie": "42",
        "complements": {"est_bio": False, "est_ess": False, "identifiant_association": None},
        "finances": {"2023": {"ca": 27619000000, "resultat_net": 881000000}},
        "score": 1.0,
    }
    return company | more


def results(*companies: dict[str, Any]) -> dict[str, Any]:
    """A page of the search."""
    count = len(companies)
    return {"results": list(companies), "total_results": count, "page": 1, "per_page": 1, "total_pages": 1}


def formality(siren: str = DANONE) -> dict[str, Any]:
    """A company as INPI RNE gives it."""
    return {
        "id": "63f7b1f5c2b2a1",
        "siren": siren,
        "updatedAt": "2024-05-13T09:54:10+02:00",
        "formality": {
            "siren": siren,
            "typePersonne": "M",
            "formeJuridique": "5599",
            "diffusionINSEE": "O",
            "diffusionCommerciale": True,
            "content": {
                "natureCessationEntreprise": {"etatAdministratifInsee": "A"},
                "natureCreation": {
                    "dateCreation": "1908-02-02",
                    "formeJuridique": "5599",
                    "societeEtrangere": False,
                },
                "personneMorale": {
                    "identite": {
                        "entreprise": {
                            "siren": siren,
                            "denomination": "DANONE SA",
                            "formeJuridique": "5599",
                            "nomCommercial": "DANONE GROUPE",
                            "codeApe": "7010Z",
                            "dateImmat": "1955-01-01T00:00:00+01:00",
                            "dateDebutActiv": "1955-01-01",
                            "effectifSalarie": "42",
                        },
                        "description": {"sigle": "BSN", "objet": "Alimentation", "duree": 99},
                    },
                    "adresseEntreprise": {
                        "adresse": {
                            "pays": "FRANCE",
                            "codePays": "FRA",
                            "codePostal": "75009",
                            "commune": "PARIS 9",
                            "codeInseeCommune": "75109",
                            "numVoie": "17",
                            "typeVoie": "BD",
                            "voie": "HAUSSMANN",
                        }
                    },
                    "etablissementPrincipal": {
                        "descriptionEtablissement": {"siret": f"{siren}00646", "codeApe": "7010Z"},
                        "adresse": {},
                        "activites": [{"indicateurPrincipal": True, "codeApe": "7010Z"}],
                    },
                    "detailCessationEntreprise": {},
                },
            },
        },
    }


RCS_ADDRESS = (
    *("nom_postal", "numero", "type", "voie", "ligne_1"),
    *("ligne_2", "localite", "code_postal", "bureau_distributeur", "pays"),
)


def extract(siren: str = DANONE) -> dict[str, Any]:
    """An extract of the register of commerce, as API Entreprise gives it."""
    return {
        "data": {
            "siren": siren,
            "date_extrait": "2024-01-15",
            "date_immatriculation": "1955-03-23",
            "date_radiation": None,
            "mandataires_sociaux": [{"type": "personne_physique", "fonction": "Directeur", "nom": "MARTIN"}],
            "observations": [],
            "nom_commercial": "DANONE RCS",
            "etablissement_principal": {"activite": "Holding", "code_ape": "7010Z"},
            "adresse_siege": {
                "nom_postal": "17 BOULEVARD HAUSSMANN",
                "numero": "",
                "type": "",
                "voie": "",
                "ligne_1": "17 BOULEVARD HAUSSMANN",
                "ligne_2": "75009 PARIS (FRANCE) ",
                "localite": "",
                "code_postal": "75009",
                "bureau_distributeur": "PARIS",
                "pays": "FRANCE",
            },
            "capital": {"montant": 169.0, "devise": "EUROS", "code_devise": "EUR"},
            "greffe": {"valeur": "PARIS", "code": "7501"},
            "personne_morale": {
                "forme_juridique": {"valeur": "SOCIETE ANONYME", "code": "SAh"},
                "denomination": "DANONE (RCS)",
                "date_cloture_exercice_comptable": "12-31",
                "date_fin_de_vie": "2054-12-31",
            },
            "personne_physique": {  # of a company there is nobody, and it is said so
                "adresse": dict.fromkeys(RCS_ADDRESS, ""),
                "nationalite": {"valeur": "", "code": ""},
                "nom": "",
                "prenom": "",
                "naissance": {"pays": {"valeur": "", "code": ""}, "date": "", "lieu": ""},
            },
        },
        "links": {},
        "meta": {},
    }


def jwt(seconds: float = 3600.0) -> str:
    """A token that says when it ends; nobody checks its signature."""
    parts = ({"alg": "none"}, {"exp": int(time.time() + seconds)}, "signature")
    words = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join(words)


def siren_of(request: RegisterRequest) -> str:
    """Which company a register was asked for; none at a login."""
    if request.source == RECHERCHE:
        return request.query["q"][:9]
    place = {INPI: 3, RCS: 5}.get(request.source)
    return "" if place is None else request.path.split("/")[place]


def _search(request: RegisterRequest) -> bytes:
    return http_response(200, results(result(siren_of(request))))


def _company(request: RegisterRequest) -> bytes:
    return http_response(200, formality(siren_of(request)))


def _extract(request: RegisterRequest) -> bytes:
    return http_response(200, extract(siren_of(request)))


@dataclass
class Registers:
    """What was asked, and what is answered: `scripts` by source, else as if all were well."""

    port: int = 0
    requests: list[RegisterRequest] = field(default_factory=list)
    scripts: dict[str, Script] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def settings(self, **more: Any) -> dict[str, Any]:
        """The settings of the app that lead here."""
        own = {
            "recherche_url": self.url,
            "recherche_per_second": 1000,
            "inpi_url": self.url,
            "inpi_username": USER,
            "inpi_password": PASSWORD,
            "rcs_url": self.url,
            "rcs_token": TOKEN,
            "rcs_recipient": "13002526500013",
            "sweep_seconds": 0.2,
            "sync_seconds": 10,
        }
        return own | more

    def answer(self, source: str, *answers: bytes | Script) -> None:
        """These answers one after another, then the last again and again."""
        left = list(answers)

        def script(request: RegisterRequest) -> bytes | Awaitable[bytes]:
            answer = left.pop(0) if len(left) > 1 else left[0]
            return answer if isinstance(answer, bytes) else answer(request)

        self.scripts[source] = script

    def heal(self, *sources: str) -> None:
        """Answer as if all were well."""
        for source in sources or (RECHERCHE, INPI, RCS, LOGIN):
            self.scripts.pop(source, None)

    def count(self, source: str) -> int:
        return sum(request.source == source for request in self.requests)

    def calls(self) -> dict[str, int]:
        """How often each source was asked."""
        return {source: self.count(source) for source in (RECHERCHE, INPI, RCS)}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._answer_one(reader, writer):
                pass
        writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")[:-2]
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        url = urlsplit(first.split(" ")[1])
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        source, usual = _source_of(url.path)
        request = RegisterRequest(source, url.path, query, headers, body, time.monotonic())
        self.requests.append(request)
        answer = self.scripts.get(source, usual)(request)
        content = answer if isinstance(answer, bytes) else await answer
        writer.write(content)
        await writer.drain()
        return content.endswith((b"}", b"\r\n\r\n"))


def _source_of(path: str) -> tuple[str, Script]:
    if path == "/search":
        return RECHERCHE, _search
    if path == "/api/sso/login":
        return LOGIN, lambda _: http_response(200, {"token": jwt()})
    if path.startswith("/api/companies/"):
        return INPI, _company
    return RCS, _extract


async def silence(request: RegisterRequest) -> bytes:
    """Never answers."""
    await asyncio.Event().wait()
    return b""


@contextlib.asynccontextmanager
async def serving_registers() -> AsyncIterator[Registers]:
    """The registers, for a while."""
    registers = Registers()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(asyncio.CancelledError):
            await registers.serve(reader, writer)
        tasks.discard(task)
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    registers.port = server.sockets[0].getsockname()[1]
    try:
        yield registers
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks)
