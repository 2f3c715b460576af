"""The `cograil companies` commands: query the registers for companies, and show stored ones."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click

from cograil.apps.companies.company_search import find_companies
from cograil.apps.companies.constants import FAILED, REFRESH
from cograil.apps.companies.enrichment import EnrichmentContext, RunRequest, page_of, refresh
from cograil.apps.companies.enrichment_request import EnrichmentRequest, make_request
from cograil.apps.companies.identifiers import Identifiers, as_written, doubts, read_identifiers
from cograil.apps.companies.queries import CompanyKey
from cograil.apps.companies.register_codes import address_line, failure_in_words, field_in_words
from cograil.apps.companies.settings import CompanySettings
from cograil.apps.companies.workflow import APP, BEGIN, QUEUE
from cograil.cli.display.output import out, plain, say, table, warn, write_json
from cograil.cli.instance_client import (
    InstanceClient,
    audit,
    connected,
    connected_to_read,
    current_user,
    private_client,
)
from cograil.cli.job_wait import CliJobEndListener, listen_for_job_ends
from cograil.cli.options import Amount, instance_options, settings_for
from cograil.errors import NoInstance, NotFound, WaitTimeout
from cograil.model.ids import new_id
from cograil.processes import app_worker, private_instance, run_async
from cograil.settings import Settings
from cograil.store.job_queries import list_processes

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
      cograil companies list danone
    """


@companies.command()
@click.argument("numbers", nargs=-1, metavar="[SIREN]...")
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A list or CSV of numbers: one per line, in the first column.",
)
@click.option(
    "--refresh", "is_forced", is_flag=True, help="Query the registers even if the stored data is fresh."
)
@click.option(
    "--timeout",
    type=Amount(min=0),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait at most this long for each, then exit 5. The run continues.",
)
@instance_options
def enrich(
    numbers: tuple[str, ...],
    path: Path | None,
    is_forced: bool,
    timeout: float,
    data_dir: Path | None,
    as_json: bool,
) -> int:
    """Request companies by SIREN or SIRET, wait for the registers, and show the result.

    Fresh data is shown at once. Without a running instance, one is started for the time of the command.
    Exits 1 when a run failed, 4 when a refresh comes too soon.

    \b
    Examples:
      cograil companies enrich 552032534
      cograil companies enrich 55203253400646 --refresh --json
      cograil companies enrich --file customers.csv
    """
    identifiers = [_read(number) for number in (*numbers, *(_numbers_in(path) if path else ()))]
    if not identifiers:
        raise click.UsageError("name at least one SIREN or SIRET, or a --file of them")
    for company in identifiers:
        for doubt in doubts(company):
            warn(f"{company.siren}: {doubt['reason']}")
    is_list = len(numbers) != 1 or path is not None
    return run_async(_enrich(settings_for(data_dir), identifiers, is_forced, timeout, as_json, is_list))


def _numbers_in(path: Path) -> list[str]:
    """The first column of a list or CSV; a first line without digits is its heading."""
    text = path.read_text("utf-8-sig", errors="replace")
    cells = [re.split("[;,\t]", line)[0].strip().strip('"') for line in text.splitlines()]
    if cells and not any(letter.isdigit() for letter in cells[0]):
        cells = cells[1:]
    return [cell for cell in cells if cell and not cell.startswith("#")]


@companies.command()
@click.argument("number", metavar="SIREN")
@instance_options
def show(number: str, data_dir: Path | None, as_json: bool) -> int:
    """Show the stored data of a company, its registers and its age, without querying them.

    \b
    Examples:
      cograil companies show 552032534
    """
    return run_async(_show(settings_for(data_dir), _read(number), as_json))


def _read(number: str) -> Identifiers:
    fields = as_written(number)
    identifiers = read_identifiers(fields.get("siren"), fields.get("siret"))
    if isinstance(identifiers, list):
        raise click.BadParameter(identifiers[0].reason, param_hint="SIREN")
    return identifiers


async def _enrich(
    settings: Settings,
    identifiers: list[Identifiers],
    is_forced: bool,
    timeout: float,
    as_json: bool,
    is_list: bool,
) -> int:
    async with AsyncExitStack() as stack:
        client = await _client(stack, settings.with_app("companies"))
        listener = await stack.enter_async_context(listen_for_job_ends(client))
        context = EnrichmentContext(client.engine_context, settings.section(CompanySettings))
        for company in identifiers:
            await _ask(client, context, company, is_forced)
        pages = [
            await _ended(client, listener, CompanyKey(TENANT, company.siren), timeout)
            for company in identifiers
        ]
    return _print_all(pages, as_json) if is_list else _print(pages[0], as_json)


async def _client(stack: AsyncExitStack, settings: Settings) -> InstanceClient:
    """A client of the running instance, or of a temporary one that ends with this command."""
    try:
        client = await stack.enter_async_context(connected(settings))
    except NoInstance:
        say("no instance runs here, starting one for this command; `cograil up` keeps one running")
        return private_client(await stack.enter_async_context(private_instance(settings)), settings)
    from cograil.processes.app_plugins import prepare_app_schemas  # noqa: PLC0415  the other commands need none

    await prepare_app_schemas(client.db, settings)
    await _add_worker_if_missing(stack, client)
    return client


async def _add_worker_if_missing(stack: AsyncExitStack, client: InstanceClient) -> None:
    """Run a worker of this app until the stack is closed if no worker of the instance has its handlers."""
    async with client.db.transaction("show") as tx:
        processes = await list_processes(tx)
    if not any(BEGIN in (process["handlers"] or ()) for process in processes):
        say(
            "no worker of this instance has the app companies; this command adds one, and"
            " `cograil up --apps containers,companies` keeps one running"
        )
        await stack.enter_async_context(app_worker(client.db, client.settings, APP, QUEUE))


async def _ask(
    client: InstanceClient, context: EnrichmentContext, identifiers: Identifiers, is_forced: bool
) -> None:
    company_key = CompanyKey(TENANT, identifiers.siren)
    async with client.db.transaction("companies.submit") as tx:
        if is_forced:
            await refresh(
                tx,
                context,
                RunRequest(company_key, REFRESH, new_id(), identifiers.siret, None, current_user()),
            )
            await audit(tx, "refresh company", identifiers.siren)
        else:
            request = await make_request(
                tx, context, EnrichmentRequest(TENANT, identifiers, new_id(), current_user(), current_user())
            )
            await audit(tx, "request company", request.request_id, siren=identifiers.siren)


async def _ended(
    client: InstanceClient, listener: CliJobEndListener, company_key: CompanyKey, timeout: float
) -> dict[str, Any]:
    clock = asyncio.get_running_loop().time
    until = clock() + timeout
    while True:
        page = await _page(client, company_key)
        if not page["enrichment_running"]:
            return page
        if clock() >= until:
            raise WaitTimeout(f"it did not end within {timeout:g} s; {client.next_steps(page['job_id'])}")
        await listener.wait(min(1.0, until - clock()))


async def _show(settings: Settings, identifiers: Identifiers, as_json: bool) -> int:
    async with connected_to_read(settings) as client:
        return _print(await _page(client, CompanyKey(TENANT, identifiers.siren)), as_json)


async def _page(client: InstanceClient, company_key: CompanyKey) -> dict[str, Any]:
    async with client.db.transaction("companies.show") as tx:
        page = await page_of(
            tx,
            EnrichmentContext(client.engine_context, client.settings.section(CompanySettings)),
            company_key,
        )
    if page is None:
        raise NotFound(f"company {company_key.siren} was never requested")
    return page


def _print(page: dict[str, Any], as_json: bool) -> int:
    if as_json:
        write_json(page)
    else:
        for line in _lines(page):
            out().print(plain(line), soft_wrap=True)
    return 1 if page["enrichment_status"] == FAILED else 0


def _print_all(pages: list[dict[str, Any]], as_json: bool) -> int:
    """Print one line per company."""
    if as_json:
        write_json(pages)
    else:
        rows = table("SIREN", "STATUS", "NAME", "CITY", "WHY")
        for page in pages:
            company = page["company"] or {}
            city = (company.get("address") or {}).get("city")
            reasons = "; ".join(failure_in_words(failure) for failure in page["failures"])
            cells = (page["siren"], page["enrichment_status"], company.get("legal_name"), city, reasons)
            rows.add_row(*(plain(fact or "") for fact in cells))
        out().print(rows)
    return 1 if any(page["enrichment_status"] == FAILED for page in pages) else 0


def _lines(page: dict[str, Any]) -> list[str]:
    """The lines of a company's card."""
    lines = [f"{page['siren']}  {page['enrichment_status']}"]
    lines += [f"  {failure_in_words(item)}" for item in page["failures"]]
    if page["failures"]:
        lines.append(f"  job {page['failures'][0]['job_id']}: see `cograil show` and `cograil logs` of it")
    elif page["enrichment_error"]:
        lines.append(f"  {page['enrichment_error']}")
    company = page["company"] or {}
    known_fields = ((name, company[name]) for name in SHOWN if company.get(name))
    lines += [f"  {name.replace('_', ' ')}: {field_in_words(name, value)}" for name, value in known_fields]
    if line := address_line(company.get("address") or {}):
        lines.append(f"  address: {line}")
    for item in page["source_retrievals"]:
        result = item["last_error"] or "ok"
        lines.append(f"  {item['source_api']}: {result}, {item['last_retrieved_at']:%Y-%m-%d %H:%M}")
    return lines


@companies.command("list")
@click.argument("text", default="")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most this many."
)
@instance_options
def list_known(text: str, limit: int, data_dir: Path | None, as_json: bool) -> int:
    """List requested companies: the latest ones, or by part of a name or the start of a number.

    \b
    Examples:
      cograil companies list
      cograil companies list danone
    """
    return run_async(_list(settings_for(data_dir), text, limit, as_json))


async def _list(settings: Settings, text: str, limit: int, as_json: bool) -> int:
    async with connected_to_read(settings) as client, client.db.transaction("companies.show") as tx:
        companies = (await find_companies(tx, TENANT, text=text, limit=limit)).companies
    if as_json:
        write_json(companies)
        return 0
    rows = table("SIREN", "STATUS", "NAME", "CITY")
    for company in companies:
        cells = (company["siren"], company["enrichment_status"], company["legal_name"], company["city"])
        rows.add_row(*(plain(fact or "") for fact in cells))
    out().print(rows)
    if not companies:
        say("no requested company matches")
    return 0
