"""Commands for webhooks: subscriptions and deliveries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cograil.cli.backends.target import Target
from cograil.cli.command_decorators import instance_command
from cograil.cli.display.formatting import ago
from cograil.cli.display.output import out, plain, render, say, table
from cograil.cli.input_parsing import split_pairs
from cograil.cli.options import Amount, instance_options, tenant_option
from cograil.errors import UsageError
from cograil.store.outbox_queries import View
from cograil.verbs import outbox as verbs
from cograil.verbs.callback_targets import CLOUDEVENTS, STYLES, Receiver


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
@instance_command
async def add(target: Target, url: str, as_json: bool, **options: Any) -> None:
    """Subscribe a URL to job events from now on, and print its signing secret once.

    \b
    Examples:
      cograil subscriptions add https://example.org/hook
      cograil subscriptions add https://example.org/hook --workflow import --type job.failed
    """
    headers = split_pairs(options["headers"], "--header")
    receiver = Receiver(url, _read_secret(options["secret_file"]), options["style"], headers)
    async with target.open() as backend:
        subscription = await backend.subscribe(receiver, options["types"], options["workflow"])
    subscription_id = subscription["subscription_id"]
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
@instance_command
async def list_subscriptions(target: Target, as_json: bool) -> None:
    """List subscriptions, without their secrets.

    \b
    Examples:
      cograil subscriptions list
      cograil subscriptions list --json
    """
    async with target.open_to_read() as backend:
        listed = await backend.list_subscriptions()
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
@instance_command
async def remove(target: Target, subscription_id: str, as_json: bool) -> None:
    """Remove a subscription and its pending deliveries.

    \b
    Examples:
      cograil subscriptions remove 019a8f2e-77aa-7000-8000-000000000000
    """
    async with target.open() as backend:
        await backend.unsubscribe(subscription_id)
    value = {"subscription_id": subscription_id, "state": "removed"}
    render(value, f"subscription {subscription_id} is removed", as_json)


@subscriptions.command("enable")
@click.argument("subscription_id")
@tenant_option
@instance_options
@instance_command
async def enable(target: Target, subscription_id: str, as_json: bool) -> None:
    """Enable a disabled subscription again, from now on.

    \b
    Examples:
      cograil subscriptions enable 019a8f2e-77aa-7000-8000-000000000000
    """
    async with target.open() as backend:
        enabled = await backend.enable_subscription(subscription_id)
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
@instance_command
async def rotate(
    target: Target,
    subscription_id: str,
    secret_file: Path | None,
    overlap_hours: float,
    as_json: bool,
) -> None:
    """Replace the signing secret of a subscription, and print the new one once.

    \b
    Examples:
      cograil subscriptions rotate 019a8f2e-77aa-7000-8000-000000000000
      cograil subscriptions rotate 019a8f2e-77aa-7000-8000-000000000000 --overlap-hours 0
    """
    secret = _read_secret(secret_file)
    async with target.open() as backend:
        rotated = await backend.rotate_subscription(subscription_id, secret, overlap_hours)
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
@instance_command
async def list_deliveries(
    target: Target, state: str | None, job: str | None, limit: int, as_json: bool
) -> None:
    """List deliveries, newest first.

    \b
    Examples:
      cograil deliveries list
      cograil deliveries list --state dead --json
    """
    async with target.open_to_read() as backend:
        listed = await backend.list_deliveries(state, job, limit)
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
@instance_command
async def resend(target: Target, delivery_ids: tuple[str, ...], as_json: bool) -> None:
    """Send ended deliveries or dead letters again, with the same id and body.

    \b
    Examples:
      cograil deliveries resend 019a8f2e-77aa-7000-8000-000000000000
    """
    async with target.open() as backend:
        queued = await backend.resend(delivery_ids)
    messages = [f"delivery {entry['delivery_id']} is queued again" for entry in queued]
    render({"deliveries": queued}, "\n".join(messages), as_json)
