"""Settings of the app `companies`: where its sources are, and how long what they say counts."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import (
    Field,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from cograil.plugins import SettingsSection


class CompanySettings(SettingsSection):
    """Companies: their sources, and how long what these say counts."""

    recherche_url: str = "https://recherche-entreprises.api.gouv.fr"
    """The base of API Recherche d'Entreprises."""
    recherche_per_second: PositiveFloat = 7
    """How many requests all workers together send there in a second."""
    inpi_url: str = "https://registre-national-entreprises.inpi.fr"
    """The base of INPI RNE; it is asked when there are a user and a password."""
    inpi_username: str | None = None
    """The user name of the INPI account."""
    inpi_password: str | None = Field(None, repr=False)
    """The password of the INPI account."""
    rcs_url: str = "https://entreprise.api.gouv.fr"
    """The base of API Entreprise; it is asked when there is a token."""
    rcs_token: str | None = Field(None, repr=False)
    """The bearer token for it."""
    rcs_context: str = "Enrichissement"
    """What API Entreprise is told as the context of a request."""
    rcs_object: str = "Fiche entreprise"
    """What it is told as the object of a request."""
    rcs_recipient: str | None = None
    """The SIRET of the recipient of the data; API Entreprise requires one."""
    timeout_seconds: PositiveFloat = 5
    """How long one request to a source may take."""
    sync_seconds: Annotated[float, Field(ge=0, le=30)] = 1.2
    """How long POST /v1/requests waits for the end of a run."""
    fresh_days: PositiveFloat = 30
    """How long what is known of a company is fresh."""
    cooldown_seconds: Annotated[float, Field(ge=0)] = 60
    """How long after a refresh the next one is refused, and a look begins no run after one that failed."""
    lock_seconds: PositiveFloat = 120
    """How long the lock of a run lasts without a heartbeat; there are four in that time."""
    payload_bytes: PositiveInt = 1_000_000
    """An answer that is larger is read, but not kept."""
    documents_kept: PositiveInt = 10
    """How many answers of each source are kept for a company."""
    sweep_seconds: PositiveFloat = 30
    """How often a worker looks for runs that ended without a verdict; when a lock ends it looks at once.
    Every tenth time it looks for what is no longer fresh."""

    @field_validator("recherche_url", "inpi_url", "rcs_url")
    @classmethod
    def a_base_is_a_url_without_a_user(cls, value: str) -> str:
        if not re.fullmatch(r"https?://[^/?#@\s]+(?:/[^?#\s]*)?", value):
            raise ValueError("must be a URL such as https://host, without a user")
        return value.rstrip("/")

    @field_validator("rcs_token")
    @classmethod
    def a_token_can_be_sent(cls, value: str | None) -> str | None:
        token = None if value is None else value.strip()  # the end of a line, if it is of a file
        if token and not re.fullmatch(r"[\x21-\x7e]+", token):
            raise ValueError("must be a token: printable ASCII without spaces")
        return token

    @model_validator(mode="after")
    def a_lock_outlives_the_calls_of_a_source(self) -> Self:
        if self.lock_seconds < 4 * self.timeout_seconds:
            raise ValueError(
                "COGRAIL_COMPANIES__LOCK_SECONDS must be at least 4 times COGRAIL_COMPANIES__TIMEOUT_SECONDS"
            )
        return self
