"""The app `companies`: what public registers say of French companies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cograil.apps.companies.settings import CompanySettings
from cograil.plugins import App, Command, lazy

if TYPE_CHECKING:
    from cograil.plugins import Settings


async def _start_message(settings: Settings) -> str:
    """Sources that are only half configured; usually nothing."""
    own, lines = settings.section(CompanySettings), []
    if bool(own.inpi_username) != bool(own.inpi_password):
        lines.append(
            "INPI_RNE is not asked: it needs both COGRAIL_COMPANIES__INPI_USERNAME and __INPI_PASSWORD"
        )
    if own.rcs_token and not own.rcs_recipient:
        lines.append(
            "API_ENTREPRISE_RCS wants to know for whom: set COGRAIL_COMPANIES__RCS_RECIPIENT to a SIRET"
        )
    return "; ".join(lines)


app = App(
    name="companies",
    summary="Ask public registers for French companies: /v1/requests.",
    settings=CompanySettings,
    migrations="cograil.apps.companies",
    commands={
        "companies": Command(
            "cograil.apps.companies.cli:companies", "Ask public registers for French companies."
        )
    },
    routes=lazy("cograil.apps.companies.routes:app_routes"),
    api=lazy("cograil.apps.companies.routes:described"),
    pages=lazy("cograil.apps.companies.pages:app_pages"),
    templates="cograil.apps.companies",
    on_worker=lazy("cograil.apps.companies.worker_lifespan:companies_on_worker"),
    start_message=_start_message,
)
