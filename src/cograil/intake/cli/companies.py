"""Commands about companies: ask the registers for one, and see what is known."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from cograil.apps.companies.enriching import Asking, House, page_of, refresh
from cograil.apps.companies.identifiers import Identifiers, as_written, doubts, read_identifiers
from cograil.apps.companies.requesting import Request, make_request
from cograil.apps.companies.rows import Of
from cograil.apps.companies.words import FAILED, REFRESH
from cograil.errors import NotFound, WaitTimeout
from cograil.intake.cli.client import Client, audit, connected, who
from cograil.intake.cli.options import Amount, instance_options, settings_for
from cograil.intake.cli.output import out, plain, warn, write_json
from cograil.intake.cli.waiting import Bell, listening
from cograil.model.ids import new_id
from cograil.processes import run_async
from cograil.settings import Settings

TENANT = "default"
SHOWN = (
    "legal_name",
    "trade_name",
    "legal_form",
    "creation_date",
    "active_status",
    "naf_code",
    "headcount_range",
)


@click.group()
def companies() -> None:
    """Ask public registers for French companies.

    \b
    Examples:
      cograil companies enrich 552032534
      cograil companies show 552032534 --json
    """


@companies.command()
@click.argument("number", metavar="SIREN")
@click.option("--refresh", "is_forced", is_flag=True, help="Ask the registers though what is known is fresh.")
@click.option(
    "--timeout",
    type=Amount(min=0),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait at most this long, then exit 5. The run goes on.",
)
@instance_options
def enrich(number: str, is_forced: bool, timeout: float, data_dir: Path | None, as_json: bool) -> int:
    """Ask for a company by its SIREN or SIRET, wait for what the registers say, and show it.

    What is fresh is shown at once. Exits 1 when the run failed, 4 when a refresh comes too soon.

    \b
    Examples:
      cograil companies enrich 552032534
      cograil companies enrich 55203253400646 --refresh --json
    """
    given = _read(number)
    for doubt in doubts(given):
        warn(doubt["reason"])
    return run_async(_enrich(settings_for(data_dir), given, is_forced, timeout, as_json))


@companies.command()
@click.argument("number", metavar="SIREN")
@instance_options
def show(number: str, data_dir: Path | None, as_json: bool) -> int:
    """Show what is known of a company, from which register, and how old it is. Asks nobody.

    \b
    Examples:
      cograil companies show 552032534
    """
    return run_async(_show(settings_for(data_dir), _read(number), as_json))


def _read(number: str) -> Identifiers:
    given = as_written(number)
    found = read_identifiers(given.get("siren"), given.get("siret"))
    if isinstance(found, list):
        raise click.BadParameter(found[0].reason, param_hint="SIREN")
    return found


async def _enrich(
    settings: Settings, given: Identifiers, is_forced: bool, timeout: float, as_json: bool
) -> int:
    of, house_settings = Of(TENANT, given.siren), settings.companies
    async with connected(settings) as client, listening(client) as bell:
        house = House(client.decider, house_settings)
        async with client.db.transaction("companies.submit") as tx:
            if is_forced:
                await refresh(tx, house, Asking(of, REFRESH, new_id(), given.siret, None, who()))
                await audit(tx, "refresh company", given.siren)
            else:
                made = await make_request(tx, house, Request(TENANT, given, new_id(), who(), who()))
                await audit(tx, "request company", made.request_id, siren=given.siren)
        page = await _ended(client, bell, of, timeout)
    return _print(page, as_json)


async def _ended(client: Client, bell: Bell, of: Of, timeout: float) -> dict[str, Any]:
    clock = asyncio.get_running_loop().time
    until = clock() + timeout
    while True:
        page = await _page(client, of)
        if not page["enrichment_running"]:
            return page
        if clock() >= until:
            raise WaitTimeout(f"it did not end within {timeout:g} s; {client.future_of(page['job_id'])}")
        await bell.wait(min(1.0, until - clock()))


async def _show(settings: Settings, given: Identifiers, as_json: bool) -> int:
    async with connected(settings) as client:
        return _print(await _page(client, Of(TENANT, given.siren)), as_json)


async def _page(client: Client, of: Of) -> dict[str, Any]:
    async with client.db.transaction("companies.show") as tx:
        page = await page_of(tx, House(client.decider, client.settings.companies), of)
    if page is None:
        raise NotFound(f"nobody has asked for company {of.siren}")
    return page


def _print(page: dict[str, Any], as_json: bool) -> int:
    if as_json:
        write_json(page)
    else:
        for line in _lines(page):
            out().print(plain(line), soft_wrap=True)
    return 1 if page["enrichment_status"] == FAILED else 0


def _lines(page: dict[str, Any]) -> list[str]:
    """The card, as a person reads it."""
    lines = [f"{page['siren']}  {page['enrichment_status']}"]
    if page["enrichment_error"]:
        lines.append(f"  {page['enrichment_error']}")
    company = page["company"] or {}
    lines += [f"  {name.replace('_', ' ')}: {company[name]}" for name in SHOWN if company.get(name)]
    if address := company.get("address"):
        words = (address[name] for name in ("line1", "line2", "postal_code", "city", "country_code"))
        lines.append(f"  address: {', '.join(word for word in words if word)}")
    for one in page["source_retrievals"]:
        said = one["last_error"] or "ok"
        lines.append(f"  {one['source_api']}: {said}, {one['last_retrieved_at']:%Y-%m-%d %H:%M}")
    return lines
