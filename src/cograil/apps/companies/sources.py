"""The clients of the three registers: their requests, and the requested company in their responses."""

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

from cograil.apps.companies import field_map
from cograil.apps.companies.constants import AUTH_ERROR, INPI, NOT_FOUND, RCS, RECHERCHE
from cograil.apps.companies.field_map import Fields
from cograil.apps.companies.settings import CompanySettings
from cograil.apps.companies.source_http import Reply, SourceClient, SourceFailure
from cograil.model.workflow import Json

INCLUDED = "siege,complements,finances,score"
MAX_PER_PAGE, MAX_RESULTS, MIN_QUERY = 25, 10_000, 3
FOR_A_SIREN, FOR_A_SIRET = 1, 5  # results per request
RENEW_SECONDS = 60.0  # a token is not used in its last minute


@dataclass(frozen=True, slots=True)
class CompanyQuery:
    """The SIREN, and optionally the SIRET, to look up."""

    siren: str
    siret: str | None = None


@dataclass(frozen=True, slots=True)
class SourceAnswer:
    """The answer of a source: mapped fields, the raw response, and additional data for display."""

    fields: Fields
    reply: Reply
    extras: dict[str, Json] = field(default_factory=dict)


class CompanySource(Protocol):
    """A register that can be queried for a company."""

    async def fetch(self, query: CompanyQuery) -> SourceAnswer:
        """The data of this company. Raises SourceFailure."""


Token = Callable[[], Awaitable[None]]  # returns when a request may be sent


class Recherche:
    """API Recherche d'Entreprises: no key, but a limit of requests per second."""

    def __init__(self, client: SourceClient, base: str, token: Token) -> None:
        self._client = client
        self._base = base
        self._token = token

    async def fetch(self, query: CompanyQuery) -> SourceAnswer:
        await self._token()
        reply = await self._client.ask("GET", f"{self._base}/search?{search(query)}", {})
        results = reply.body.get("results") if isinstance(reply.body, dict) else None
        chosen = field_map.choose(results, query.siren, query.siret)
        if chosen is None:
            raise SourceFailure(NOT_FOUND, "the register does not know this company", reply.status)
        return SourceAnswer(field_map.recherche_fields(chosen), reply, field_map.extras_of(chosen))


def search(query: CompanyQuery, page: int = 1, per_page: int | None = None) -> str:
    """The parameters of a search. Raises ValueError for a page that the register does not give."""
    page_size = per_page or (FOR_A_SIREN if query.siret is None else FOR_A_SIRET)
    number = query.siret or query.siren
    if (
        not 1 <= page_size <= MAX_PER_PAGE
        or page < 1
        or page * page_size > MAX_RESULTS
        or len(number) < MIN_QUERY
    ):
        raise ValueError(f"page {page} of {page_size} results is not given by the register")
    params = {"q": number, "minimal": "true", "include": INCLUDED, "page": page, "per_page": page_size}
    return urlencode(params, safe=",")


class Inpi:
    """INPI RNE: a login gives a token, which is used until it ends or is refused."""

    def __init__(
        self,
        client: SourceClient,
        base: str,
        username: str,
        password: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._base = base
        self._login = orjson.dumps({"username": username, "password": password})
        self._clock = clock
        self._token: str | None = None
        self._logging_in = asyncio.Lock()

    async def fetch(self, query: CompanyQuery) -> SourceAnswer:
        token = await self._current(None)
        try:
            reply = await self._ask(query, token)
        except SourceFailure as failure:
            if failure.code != AUTH_ERROR:
                raise
            reply = await self._ask(query, await self._current(token))  # it may just have ended
        named = field_map.inpi_siren(reply.body) if isinstance(reply.body, dict) else ""
        if named not in (None, query.siren):  # a response without a SIREN is taken for the requested company
            raise SourceFailure(NOT_FOUND, "the answer is of another company", reply.status)
        return SourceAnswer(field_map.inpi_fields(reply.body), reply)

    async def _ask(self, query: CompanyQuery, token: str) -> Reply:
        headers = {"authorization": f"Bearer {token}"}
        return await self._client.ask("GET", f"{self._base}/api/companies/{query.siren}", headers)

    async def _current(self, refused: str | None) -> str:
        """A token other than the refused one; of concurrent callers one logs in."""
        async with self._logging_in:
            if self._token is None or self._token == refused or self._ends_soon(self._token):
                self._token = None
                self._token = await self._log_in()
            return self._token

    async def _log_in(self) -> str:
        headers = {"content-type": "application/json"}
        reply = await self._client.ask("POST", f"{self._base}/api/sso/login", headers, self._login)
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
    """API Entreprise: an extract of the register of commerce; requires a token."""

    def __init__(self, client: SourceClient, settings: CompanySettings) -> None:
        self._client = client
        self._base = settings.rcs_url
        self._headers = {"authorization": f"Bearer {settings.rcs_token}"}
        params = {"context": settings.rcs_context, "object": settings.rcs_object}
        if settings.rcs_recipient is not None:
            params["recipient"] = settings.rcs_recipient
        self._query = urlencode(params)

    async def fetch(self, query: CompanyQuery) -> SourceAnswer:
        path = f"/v3/infogreffe/rcs/unites_legales/{query.siren}/extrait_kbis"
        reply = await self._client.ask("GET", f"{self._base}{path}?{self._query}", self._headers)
        data = field_map.part(reply.body, "data")
        if not data or data.get("siren", query.siren) != query.siren:
            raise SourceFailure(NOT_FOUND, "the answer is of another company", reply.status)
        return SourceAnswer(field_map.rcs_fields(reply.body), reply)


def configured(settings: CompanySettings, client: SourceClient, token: Token) -> dict[str, CompanySource]:
    """The configured sources in their order; one without credentials is left out."""
    sources: dict[str, CompanySource] = {RECHERCHE: Recherche(client, settings.recherche_url, token)}
    if settings.inpi_username and settings.inpi_password:
        sources[INPI] = Inpi(client, settings.inpi_url, settings.inpi_username, settings.inpi_password)
    if settings.rcs_token:
        sources[RCS] = Rcs(client, settings)
    return sources
