"""Commands about what is told to the world: subscriptions and deliveries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cograil.cli.display.formatting import ago
from cograil.cli.display.output import out, plain, say, table, write_json
from cograil.cli.input_parsing import split_pairs
from cograil.cli.instance_client import audit, connected, connected_to_read, who
from cograil.cli.options import Amount, instance_options, settings_for
from cograil.errors import UsageError
from cograil.processes import run_async
from cograil.settings import Settings
from cograil.store.job_progress_queries import resolve_job
from cograil.store.outbox_queries import View
from cograil.verbs import outbox as verbs
from cograil.verbs.callback_targets import CLOUDEVENTS, STYLES, Receiver

tenant_option = click.option("--tenant", default="default", show_default=True, help="Whose.")


@click.group()
def subscriptions() -> None:
    """Who is told what happens to jobs.

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
    help="Sign with the secret in this file; `-` reads stdin. [a new one]",
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
    help="Which headers are sent, and what a refusal means.",
)
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="To be sent along; repeatable."
)
@tenant_option
@instance_options
def add(data_dir: Path | None, as_json: bool, **words: Any) -> None:
    """Tell this URL what happens from now on, and print the secret it is signed with, this once.

    \b
    Examples:
      cograil subscriptions add https://example.org/hook
      cograil subscriptions add https://example.org/hook --workflow import --type job.failed
    """
    made = run_async(_add(settings_for(data_dir), **words))
    if as_json:
        write_json(made)
        return
    say(f"subscription {made['subscription_id']} is there; keep its secret, it is not shown again")
    out().print(made["secret"], soft_wrap=True)


async def _add(settings: Settings, url: str, **words: Any) -> View:
    headers = split_pairs(words["headers"], "--header")
    receiver = Receiver(url, _secret(words["secret_file"]), words["style"], headers)
    async with connected(settings) as client, client.db.transaction("subscribe") as tx:
        made = await verbs.subscribe(
            tx,
            words["tenant"],
            receiver,
            settings.outbound,
            types=words["types"],
            workflow_id=words["workflow"],
            by=who(),
        )
        await audit(tx, "subscribe", made["subscription_id"], tenant=words["tenant"], url=url)
        return made


def _secret(file: Path | None) -> str | None:
    """From a file: what stands on a command line can be seen by everybody on the machine."""
    if file is None:
        return None
    with click.open_file(str(file), encoding="utf-8") as stream:
        text = str(stream.read()).strip()
    if not text:
        raise UsageError(f"{file} has no secret in it")
    return text


@subscriptions.command("list")
@tenant_option
@instance_options
def list_subscriptions(tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """List subscriptions, without their secrets.

    \b
    Examples:
      cograil subscriptions list
      cograil subscriptions list --json
    """
    found = run_async(_subscriptions(settings_for(data_dir), tenant))
    if as_json:
        write_json({"subscriptions": found})
        return
    rows = table("subscription", "url", "types", "workflow", "state")
    rows.columns[0].no_wrap = True  # to be copied
    for one in found:
        state = "active" if one["disabled_at"] is None else f"disabled: {one['disabled_reason']}"
        types = ", ".join(one["types"]) or "all"
        rows.add_row(one["subscription_id"], *map(plain, (one["url"], types, one["workflow_id"], state)))
    out().print(rows if found else "nobody is told")


async def _subscriptions(settings: Settings, tenant: str) -> list[View]:
    async with connected_to_read(settings) as client, client.db.transaction("show") as tx:
        return await verbs.list_subscriptions(tx, tenant)


@subscriptions.command("remove")
@click.argument("subscription_id")
@tenant_option
@instance_options
def remove(subscription_id: str, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """Remove a subscription and what was on its way to it.

    \b
    Examples:
      cograil subscriptions remove 019a8f2e-77aa-7000-8000-000000000000
    """
    run_async(_remove(settings_for(data_dir), tenant, subscription_id))
    if as_json:
        write_json({"subscription_id": subscription_id, "state": "removed"})
    else:
        say(f"subscription {subscription_id} is removed")


async def _remove(settings: Settings, tenant: str, subscription_id: str) -> None:
    async with connected(settings) as client, client.db.transaction("unsubscribe") as tx:
        await verbs.unsubscribe(tx, tenant, subscription_id)
        await audit(tx, "unsubscribe", subscription_id, tenant=tenant)


@subscriptions.command("enable")
@click.argument("subscription_id")
@tenant_option
@instance_options
def enable(subscription_id: str, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """Use a disabled subscription again, from now on.

    \b
    Examples:
      cograil subscriptions enable 019a8f2e-77aa-7000-8000-000000000000
    """
    enabled = run_async(_enable(settings_for(data_dir), tenant, subscription_id))
    if as_json:
        write_json(enabled)
    else:
        say(f"subscription {subscription_id} is active")


async def _enable(settings: Settings, tenant: str, subscription_id: str) -> View:
    async with connected(settings) as client, client.db.transaction("enable") as tx:
        await audit(tx, "enable subscription", subscription_id, tenant=tenant)
        return await verbs.enable_subscription(tx, tenant, subscription_id)


@subscriptions.command("rotate")
@click.argument("subscription_id")
@secret_option
@click.option(
    "--overlap-hours",
    type=Amount(0, verbs.MAX_OVERLAP_HOURS),
    default=verbs.OVERLAP_HOURS,
    show_default=True,
    help="For so long the old secret signs beside the new one; 0 when it got into wrong hands.",
)
@tenant_option
@instance_options
def rotate(subscription_id: str, data_dir: Path | None, as_json: bool, **words: Any) -> None:
    """Replace the secret of a subscription, and print the new one, this once.

    \b
    Examples:
      cograil subscriptions rotate 019a8f2e-77aa-7000-8000-000000000000
      cograil subscriptions rotate 019a8f2e-77aa-7000-8000-000000000000 --overlap-hours 0
    """
    rotated = run_async(_rotate(settings_for(data_dir), subscription_id, **words))
    if as_json:
        write_json(rotated)
        return
    say(f"subscription {subscription_id} has a new secret; keep it, it is not shown again")
    out().print(rotated["secret"], soft_wrap=True)


async def _rotate(
    settings: Settings, subscription_id: str, secret_file: Path | None, overlap_hours: float, tenant: str
) -> View:
    secret = _secret(secret_file)
    async with connected(settings) as client, client.db.transaction("subscribe") as tx:
        given = overlap_hours
        await audit(tx, "rotate subscription", subscription_id, tenant=tenant, overlap_hours=given)
        return await verbs.rotate_subscription(tx, tenant, subscription_id, secret, overlap_hours)


@click.group()
def deliveries() -> None:
    """What was told, what is on its way, and dead letters.

    \b
    Examples:
      cograil deliveries list --state dead
      cograil deliveries resend 019a8f2e-77aa-7000-8000-000000000000
    """


@deliveries.command("list")
@click.option("--state", type=click.Choice(verbs.DELIVERY_STATES), help="Only those.")
@click.option("--job", metavar="JOB", help="Only those of this job.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@tenant_option
@instance_options
def list_deliveries(data_dir: Path | None, as_json: bool, **words: Any) -> None:
    """List deliveries, newest first.

    \b
    Examples:
      cograil deliveries list
      cograil deliveries list --state dead --json
    """
    found = run_async(_deliveries(settings_for(data_dir), **words))
    if as_json:
        write_json({"deliveries": found})
        return
    rows = table("delivery", "type", "state", "tries", "made", "url", "last", right=("tries",))
    rows.columns[0].no_wrap = True
    for one in found:
        last = one["last_error"] or one["last_status"]
        made, tries = ago(one["created_at"]), str(one["tries"])
        facts = (one["type"], one["state"], tries, made, one["url"], last)
        rows.add_row(one["delivery_id"], *map(plain, facts))
    out().print(rows if found else "no deliveries")


async def _deliveries(
    settings: Settings, state: str | None, job: str | None, limit: int, tenant: str
) -> list[View]:
    async with connected_to_read(settings) as client, client.db.transaction("show") as tx:
        job_id = await resolve_job(tx, job, tenant) if job else None
        return await verbs.list_deliveries(tx, tenant, state=state, job_id=job_id, limit=limit)


@deliveries.command("resend")
@click.argument("delivery_ids", nargs=-1, required=True, metavar="DELIVERY...")
@tenant_option
@instance_options
def resend(delivery_ids: tuple[str, ...], tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """Send deliveries once more, with the same id and the same bytes: dead letters, or any that ended.

    \b
    Examples:
      cograil deliveries resend 019a8f2e-77aa-7000-8000-000000000000
    """
    sent = run_async(_resend(settings_for(data_dir), tenant, delivery_ids))
    if as_json:
        write_json({"deliveries": sent})
    for one in [] if as_json else sent:
        say(f"delivery {one['delivery_id']} is on its way again")


async def _resend(settings: Settings, tenant: str, delivery_ids: tuple[str, ...]) -> list[View]:
    async with connected(settings) as client, client.db.transaction("resend") as tx:
        for delivery_id in delivery_ids:
            await audit(tx, "resend", delivery_id, tenant=tenant)
        return [await verbs.resend(tx, tenant, delivery_id) for delivery_id in delivery_ids]
