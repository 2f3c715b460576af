"""Commands for webhooks: subscriptions and deliveries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cograil.cli.display.formatting import ago
from cograil.cli.display.output import out, plain, render, say, table
from cograil.cli.input_parsing import split_pairs
from cograil.cli.instance_client import audit, connected, connected_to_read, current_user
from cograil.cli.options import Amount, async_command, instance_options
from cograil.errors import UsageError
from cograil.settings import Settings
from cograil.store.job_progress_queries import resolve_job
from cograil.store.outbox_queries import View
from cograil.verbs import outbox as verbs
from cograil.verbs.callback_targets import CLOUDEVENTS, STYLES, Receiver

tenant_option = click.option("--tenant", default="default", show_default=True, help="Tenant.")


@click.group()
def subscriptions() -> None:
    """Manage webhook subscriptions to job events.

    \b
    Examples:
      cograil subscriptions add https://example.org/hook --type job.completed --type job.failed
      cograil subscriptions list
      cograil subscriptions rotate 019a8f2e-77aa-7000-8000-000000000000
      cograil subscriptions remove 019a8f2e-77aa-7000-8000-000000000000
    """


secret_option = click.option(
    "--secret-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True),
    help="File with the signing secret; `-` reads stdin. [a new secret]",
)


@subscriptions.command("add")
@click.argument("url")
@click.option("--type", "types", multiple=True, help="Only events of this type; repeatable. [all]")
@click.option("--workflow", metavar="NAME", help="Only jobs of this workflow.")
@secret_option
@click.option(
    "--style",
    type=click.Choice(STYLES),
    default=CLOUDEVENTS,
    show_default=True,
    help="Format of the headers, and the meaning of error responses.",
)
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Additional header; repeatable."
)
@tenant_option
@instance_options
@async_command
async def add(settings: Settings, url: str, as_json: bool, **options: Any) -> None:
    """Subscribe a URL to job events from now on, and print its signing secret once.

    \b
    Examples:
      cograil subscriptions add https://example.org/hook
      cograil subscriptions add https://example.org/hook --workflow import --type job.failed
    """
    headers = split_pairs(options["headers"], "--header")
    receiver = Receiver(url, _read_secret(options["secret_file"]), options["style"], headers)
    async with connected(settings) as client, client.db.transaction("subscribe") as tx:
        subscription = await verbs.subscribe(
            tx,
            options["tenant"],
            receiver,
            settings.outbound,
            types=options["types"],
            workflow_id=options["workflow"],
            by=current_user(),
        )
        subscription_id = subscription["subscription_id"]
        await audit(tx, "subscribe", subscription_id, tenant=options["tenant"], url=url)
    message = f"subscription {subscription_id} is created; store its secret, it is not shown again"
    render(subscription, lambda: _show_secret(message, subscription), as_json)


def _show_secret(message: str, subscription: View) -> None:
    say(message)
    out().print(subscription["secret"], soft_wrap=True)


def _read_secret(file: Path | None) -> str | None:
    """Read a secret from a file: every user of the machine can see the arguments of a command."""
    if file is None:
        return None
    with click.open_file(str(file), encoding="utf-8") as stream:
        text = str(stream.read()).strip()
    if not text:
        raise UsageError(f"{file} does not contain a secret")
    return text


@subscriptions.command("list")
@tenant_option
@instance_options
@async_command
async def list_subscriptions(settings: Settings, tenant: str, as_json: bool) -> None:
    """List subscriptions, without their secrets.

    \b
    Examples:
      cograil subscriptions list
      cograil subscriptions list --json
    """
    async with connected_to_read(settings) as client, client.db.transaction("show") as tx:
        listed = await verbs.list_subscriptions(tx, tenant)
    render({"subscriptions": listed}, lambda: _show_subscriptions(listed), as_json)


def _show_subscriptions(listed: list[View]) -> None:
    rows = table("subscription", "url", "types", "workflow", "state")
    rows.columns[0].no_wrap = True  # to be copied
    for entry in listed:
        state = "active" if entry["disabled_at"] is None else f"disabled: {entry['disabled_reason']}"
        types = ", ".join(entry["types"]) or "all"
        cells = (entry["url"], types, entry["workflow_id"], state)
        rows.add_row(entry["subscription_id"], *map(plain, cells))
    out().print(rows if listed else "no subscriptions")


@subscriptions.command("remove")
@click.argument("subscription_id")
@tenant_option
@instance_options
@async_command
async def remove(settings: Settings, subscription_id: str, tenant: str, as_json: bool) -> None:
    """Remove a subscription and its pending deliveries.

    \b
    Examples:
      cograil subscriptions remove 019a8f2e-77aa-7000-8000-000000000000
    """
    async with connected(settings) as client, client.db.transaction("unsubscribe") as tx:
        await verbs.unsubscribe(tx, tenant, subscription_id)
        await audit(tx, "unsubscribe", subscription_id, tenant=tenant)
    value = {"subscription_id": subscription_id, "state": "removed"}
    render(value, f"subscription {subscription_id} is removed", as_json)


@subscriptions.command("enable")
@click.argument("subscription_id")
@tenant_option
@instance_options
@async_command
async def enable(settings: Settings, subscription_id: str, tenant: str, as_json: bool) -> None:
    """Enable a disabled subscription again, from now on.

    \b
    Examples:
      cograil subscriptions enable 019a8f2e-77aa-7000-8000-000000000000
    """
    async with connected(settings) as client, client.db.transaction("enable") as tx:
        await audit(tx, "enable subscription", subscription_id, tenant=tenant)
        enabled = await verbs.enable_subscription(tx, tenant, subscription_id)
    render(enabled, f"subscription {subscription_id} is active", as_json)


@subscriptions.command("rotate")
@click.argument("subscription_id")
@secret_option
@click.option(
    "--overlap-hours",
    type=Amount(0, verbs.MAX_OVERLAP_HOURS),
    default=verbs.OVERLAP_HOURS,
    show_default=True,
    help="Hours for which the old secret signs besides the new one; use 0 if it leaked.",
)
@tenant_option
@instance_options
@async_command
async def rotate(
    settings: Settings,
    subscription_id: str,
    secret_file: Path | None,
    overlap_hours: float,
    tenant: str,
    as_json: bool,
) -> None:
    """Replace the signing secret of a subscription, and print the new one once.

    \b
    Examples:
      cograil subscriptions rotate 019a8f2e-77aa-7000-8000-000000000000
      cograil subscriptions rotate 019a8f2e-77aa-7000-8000-000000000000 --overlap-hours 0
    """
    secret = _read_secret(secret_file)
    async with connected(settings) as client, client.db.transaction("subscribe") as tx:
        await audit(tx, "rotate subscription", subscription_id, tenant=tenant, overlap_hours=overlap_hours)
        rotated = await verbs.rotate_subscription(tx, tenant, subscription_id, secret, overlap_hours)
    message = f"subscription {subscription_id} has a new secret; store it, it is not shown again"
    render(rotated, lambda: _show_secret(message, rotated), as_json)


@click.group()
def deliveries() -> None:
    """List event deliveries and dead letters, and send them again.

    \b
    Examples:
      cograil deliveries list --state dead
      cograil deliveries resend 019a8f2e-77aa-7000-8000-000000000000
    """


@deliveries.command("list")
@click.option("--state", type=click.Choice(verbs.DELIVERY_STATES), help="Only deliveries in this state.")
@click.option("--job", metavar="JOB", help="Only deliveries of this job.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@tenant_option
@instance_options
@async_command
async def list_deliveries(
    settings: Settings, state: str | None, job: str | None, limit: int, tenant: str, as_json: bool
) -> None:
    """List deliveries, newest first.

    \b
    Examples:
      cograil deliveries list
      cograil deliveries list --state dead --json
    """
    async with connected_to_read(settings) as client, client.db.transaction("show") as tx:
        job_id = await resolve_job(tx, job, tenant) if job else None
        listed = await verbs.list_deliveries(tx, tenant, state=state, job_id=job_id, limit=limit)
    render({"deliveries": listed}, lambda: _show_deliveries(listed), as_json)


def _show_deliveries(listed: list[View]) -> None:
    rows = table("delivery", "type", "state", "tries", "created", "url", "last", right=("tries",))
    rows.columns[0].no_wrap = True
    for entry in listed:
        last = entry["last_error"] or entry["last_status"]
        created, tries = ago(entry["created_at"]), str(entry["tries"])
        cells = (entry["type"], entry["state"], tries, created, entry["url"], last)
        rows.add_row(entry["delivery_id"], *map(plain, cells))
    out().print(rows if listed else "no deliveries")


@deliveries.command("resend")
@click.argument("delivery_ids", nargs=-1, required=True, metavar="DELIVERY...")
@tenant_option
@instance_options
@async_command
async def resend(settings: Settings, delivery_ids: tuple[str, ...], tenant: str, as_json: bool) -> None:
    """Send ended deliveries or dead letters again, with the same id and body.

    \b
    Examples:
      cograil deliveries resend 019a8f2e-77aa-7000-8000-000000000000
    """
    async with connected(settings) as client, client.db.transaction("resend") as tx:
        for delivery_id in delivery_ids:
            await audit(tx, "resend", delivery_id, tenant=tenant)
        queued = [await verbs.resend(tx, tenant, delivery_id) for delivery_id in delivery_ids]
    messages = [f"delivery {entry['delivery_id']} is queued again" for entry in queued]
    render({"deliveries": queued}, "\n".join(messages), as_json)
