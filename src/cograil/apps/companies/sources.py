"""The three registers, as clients: what is sent, and what of the answer is the company that was asked for."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlencode

import orjson

from cograil.apps.companies import field_mapping
from cograil.apps.companies.constants import AUTH_ERROR, INPI, NOT_FOUND, RCS, RECHERCHE
from cograil.apps.companies.field_mapping import Fields
from cograil.apps.companies.settings import CompanySettings
from cograil.apps.companies.source_http import Reply, SourceCaller, SourceFailure
from cograil.model.workflow import Json

INCLUDED = "siege,complements,finances,score"
MAX_PER_PAGE, MAX_RESULTS, LEAST_QUERY = 25, 10_000, 3
FOR_A_SIREN, FOR_A_SIRET = 1, 5  # how many results are asked for
RENEW_SECONDS = 60.0  # a token is not used in its last minute


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which company, and which establishment, if one."""

    siren: str
    siret: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What a source says: the fields we know, the answer as it came, and what is shown beside the fields."""

    fields: Fields
    reply: Reply
    extras: dict[str, Json] = field(default_factory=dict)


class Source(Protocol):
    """A register that can be asked for a company."""

    async def fetch(self, wanted: Wanted) -> Found:
        """What it says of this company. Raises SourceFailure."""


Token = Callable[[], Awaitable[None]]  # returns when a request may be sent


class Recherche:
    """API Recherche d'Entreprises: no key, but so many requests a second and no more."""

    def __init__(self, caller: SourceCaller, base: str, token: Token) -> None:
        self._caller = caller
        self._base = base
        self._token = token

    async def fetch(self, wanted: Wanted) -> Found:
        await self._token()
        reply = await self._caller.ask("GET", f"{self._base}/search?{search(wanted)}", {})
        results = reply.body.get("results") if isinstance(reply.body, dict) else None
        chosen = field_mapping.choose(results, wanted.siren, wanted.siret)
        if chosen is None:
            raise SourceFailure(NOT_FOUND, "the register does not know this company", reply.status)
        return Found(field_mapping.recherche_fields(chosen), reply, field_mapping.extras_of(chosen))


def search(wanted: Wanted, page: int = 1, per_page: int | None = None) -> str:
    """The parameters of a search. Raises ValueError for a page that the register does not give."""
    most = per_page or (FOR_A_SIREN if wanted.siret is None else FOR_A_SIRET)
    query = wanted.siret or wanted.siren
    if not 1 <= most <= MAX_PER_PAGE or page < 1 or page * most > MAX_RESULTS or len(query) < LEAST_QUERY:
        raise ValueError(f"page {page} of {most} results is not given by the register")
    facts = {"q": query, "minimal": "true", "include": INCLUDED, "page": page, "per_page": most}
    return urlencode(facts, safe=",")


class Inpi:
    """INPI RNE: a login gives a token, which is used until it ends or is refused."""

    def __init__(
        self,
        caller: SourceCaller,
        base: str,
        username: str,
        password: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._caller = caller
        self._base = base
        self._login = orjson.dumps({"username": username, "password": password})
        self._clock = clock
        self._token: str | None = None
        self._logging_in = asyncio.Lock()

    async def fetch(self, wanted: Wanted) -> Found:
        token = await self._current(None)
        try:
            reply = await self._ask(wanted, token)
        except SourceFailure as failure:
            if failure.code != AUTH_ERROR:
                raise
            reply = await self._ask(wanted, await self._current(token))  # it may just have ended
        named = field_mapping.inpi_siren(reply.body) if isinstance(reply.body, dict) else ""
        if named not in (None, wanted.siren):  # who names no company means that which was asked for
            raise SourceFailure(NOT_FOUND, "the answer is of another company", reply.status)
        return Found(field_mapping.inpi_fields(reply.body), reply)

    async def _ask(self, wanted: Wanted, token: str) -> Reply:
        headers = {"authorization": f"Bearer {token}"}
        return await self._caller.ask("GET", f"{self._base}/api/companies/{wanted.siren}", headers)

    async def _current(self, refused: str | None) -> str:
        """A token that is not the refused one; of all who need one at once, one logs in."""
        async with self._logging_in:
            if self._token is None or self._token == refused or self._ends_soon(self._token):
                self._token = None
                self._token = await self._log_in()
            return self._token

    async def _log_in(self) -> str:
        headers = {"content-type": "application/json"}
        reply = await self._caller.ask("POST", f"{self._base}/api/sso/login", headers, self._login)
        token = reply.body.get("token") if isinstance(reply.body, dict) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise SourceFailure(AUTH_ERROR, "the login gave no token", reply.status)
        return token

    def _ends_soon(self, token: str) -> bool:
        ends = expiry(token)
        return ends is not None and ends - RENEW_SECONDS < self._clock()


def expiry(token: str) -> float | None:
    """When a JSON Web Token ends; None for one that does not say."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return None
    ends = claims.get("exp") if isinstance(claims, dict) else None
    return float(ends) if isinstance(ends, int | float) else None


class Rcs:
    """API Entreprise: an extract of the register of commerce, for whoever has a token."""

    def __init__(self, caller: SourceCaller, settings: CompanySettings) -> None:
        self._caller = caller
        self._base = settings.rcs_url
        self._headers = {"authorization": f"Bearer {settings.rcs_token}"}
        told = {"context": settings.rcs_context, "object": settings.rcs_object}
        if settings.rcs_recipient is not None:
            told["recipient"] = settings.rcs_recipient
        self._query = urlencode(told)

    async def fetch(self, wanted: Wanted) -> Found:
        path = f"/v3/infogreffe/rcs/unites_legales/{wanted.siren}/extrait_kbis"
        reply = await self._caller.ask("GET", f"{self._base}{path}?{self._query}", self._headers)
        data = field_mapping.part(reply.body, "data")
        if not data or data.get("siren", wanted.siren) != wanted.siren:
            raise SourceFailure(NOT_FOUND, "the answer is of another company", reply.status)
        return Found(field_mapping.rcs_fields(reply.body), reply)


def configured(settings: CompanySettings, caller: SourceCaller, token: Token) -> dict[str, Source]:
    """The sources that can be asked, in their order: one without credentials is not."""
    found: dict[str, Source] = {RECHERCHE: Recherche(caller, settings.recherche_url, token)}
    if settings.inpi_username and settings.inpi_password:
        found[INPI] = Inpi(caller, settings.inpi_url, settings.inpi_username, settings.inpi_password)
    if settings.rcs_token:
        found[RCS] = Rcs(caller, settings)
    return found
