"""Commands about who may come in: keys create, list, revoke, delete."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from cograil import clock
from cograil.cli.display.formatting import ago
from cograil.cli.display.output import out, plain, say, table, write_json
from cograil.cli.instance_client import audit, connected, connected_to_read
from cograil.cli.options import Amount, instance_options, settings_for
from cograil.errors import NotFound
from cograil.model.roles import NOBODY, ROLES, Caller
from cograil.processes import run_async
from cograil.processes.database_host import open_prepared
from cograil.settings import Settings
from cograil.store.api_keys import find_key, list_keys
from cograil.store.database import Transaction
from cograil.verbs.callback_secrets import MAY_REQUEST, secret_of_key
from cograil.verbs.key_management import NewKey, create_key, delete_key, revoke_key

MAX_DAYS = 36_500  # a calendar ends somewhere; without --days a key does not
KEY_FILE = "file"  # what a server calls the key of API_KEY_FILE


@click.group()
def keys() -> None:
    """Keys of those who call the API. The first one that is made closes the door for all others.

    \b
    Examples:
      cograil keys create --role admin
      cograil keys create --tenant acme --role submitter --name "web shop" --days 90
      cograil keys list
      cograil keys revoke 4kq2v7cn3xz6bdpa
      cograil keys delete 4kq2v7cn3xz6bdpa
    """


@keys.command()
@click.option("--tenant", default="default", show_default=True, help="Whose jobs it opens.")
@click.option("--role", required=True, type=click.Choice(ROLES), help="What it allows.")
@click.option("--user", "user_id", default=NOBODY, metavar="UUID", help="Whose key it is, for apps that ask.")
@click.option("--name", default="", help="What people call it; shown where it did something.")
@click.option("--days", type=Amount(0, MAX_DAYS, min_open=True), help="It ends after so many days.")
@instance_options
def create(data_dir: Path | None, as_json: bool, days: float | None, **facts: Any) -> None:
    """Make a key. It is shown once and kept nowhere: only what recognises it is stored.

    Nothing has to run: an embedded database is started for a moment, and made if it is not there yet.
    With a key that may make requests comes the secret by which their callbacks are signed.

    \b
    Examples:
      cograil keys create --role operator
      export COGRAIL_KEY=$(cograil keys create --role submitter --json | jq -r .key)
    """
    made, secret = run_async(_create(settings_for(data_dir), facts, days))
    if as_json:
        told = {} if secret is None else {"callback_secret": secret}
        write_json({"key": made.key, "key_id": made.key_id} | told)
        return
    out().print(plain(made.key), soft_wrap=True)
    say(f"key {made.key_id}; keep it safe, it is not shown again")
    if secret is not None:
        say(f"callbacks of requests that are made with it are signed with {secret}")


async def _create(settings: Settings, facts: dict[str, Any], days: float | None) -> tuple[NewKey, str | None]:
    async with open_prepared(settings, application="cograil cli") as db, db.transaction("keys") as tx:
        expires_at = None if days is None else tx.now + timedelta(days=days)
        made = await create_key(tx, **facts, expires_at=expires_at)
        said = {name: facts[name] for name in ("role", "name")}
        await audit(tx, "create key", made.key_id, tenant=facts["tenant"], **said)
        may = Caller(facts["tenant"], facts["role"]).may(*MAY_REQUEST)
        return made, await secret_of_key(tx, made.key_id) if may else None


@keys.command("callback-secret")
@click.argument("key_id")
@instance_options
def callback_secret(key_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Show the secret by which callbacks of requests are signed that were made with a key.

    The key in API_KEY_FILE is called "file". Exits 3 when there is no such key.

    \b
    Examples:
      cograil keys callback-secret 4kq2v7cn3xz6bdpa
    """
    secret = run_async(_secret_of(settings_for(data_dir), key_id))
    if as_json:
        write_json({"key_id": key_id, "callback_secret": secret})
    else:
        out().print(plain(secret), soft_wrap=True)


async def _secret_of(settings: Settings, key_id: str) -> str:
    async with connected(settings) as client, client.db.transaction("keys") as tx:
        is_known = key_id == KEY_FILE or await find_key(tx, key_id) is not None
        secret = await secret_of_key(tx, key_id) if is_known else None
    if secret is None:
        raise NotFound(f"there is no key {key_id}")
    return secret


@keys.command("list")
@click.option("--tenant", help="Only those of this tenant.")
@instance_options
def list_(tenant: str | None, data_dir: Path | None, as_json: bool) -> None:
    """List keys: whose they are and when they were used last, never the keys themselves.

    \b
    Examples:
      cograil keys list
      cograil keys list --tenant acme --json
    """
    found = run_async(_list(settings_for(data_dir), tenant))
    if as_json:
        write_json({"keys": found})
        return
    rows = table("key", "tenant", "role", "name", "made", "last used", "state")
    for key in found:
        used = ago(key["last_used_at"]) if key["last_used_at"] else "never"
        rows.add_row(
            plain(key["key_id"]),
            plain(key["tenant"]),
            plain(key["role"]),
            plain(key["name"]),
            ago(key["created_at"]),
            used,
            _state(key),
        )
    out().print(rows)


async def _list(settings: Settings, tenant: str | None) -> list[dict[str, Any]]:
    async with connected_to_read(settings) as client, client.db.transaction("keys") as tx:
        return await list_keys(tx, tenant)


def _state(key: dict[str, Any]) -> str:
    if key["revoked_at"] is not None:
        return "revoked"
    is_over = key["expires_at"] is not None and key["expires_at"] <= clock.now()
    return "expired" if is_over else "valid"


@keys.command()
@click.argument("key_id")
@instance_options
def revoke(key_id: str, data_dir: Path | None, as_json: bool) -> None:
    """End a key; servers refuse it within five seconds. Exits 3 when there is none, or it had ended.

    \b
    Examples:
      cograil keys revoke 4kq2v7cn3xz6bdpa
    """
    run_async(_revoke(settings_for(data_dir), key_id))
    if as_json:
        write_json({"key_id": key_id, "is_revoked": True})
    else:
        say(f"key {key_id} is revoked")


async def _revoke(settings: Settings, key_id: str) -> None:
    async with connected(settings) as client, client.db.transaction("keys") as tx:
        await _audit(tx, "revoke key", key_id)
        await revoke_key(tx, key_id)


@keys.command()
@click.argument("key_id")
@instance_options
def delete(key_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Forget a key that has ended. Exits 3 when there is none, or it still opens the door.

    Only when all keys are forgotten does a server on loopback let everybody in again who is on its machine.

    \b
    Examples:
      cograil keys delete 4kq2v7cn3xz6bdpa
    """
    run_async(_delete(settings_for(data_dir), key_id))
    if as_json:
        write_json({"key_id": key_id, "is_deleted": True})
    else:
        say(f"key {key_id} is forgotten")


async def _delete(settings: Settings, key_id: str) -> None:
    async with connected(settings) as client, client.db.transaction("keys") as tx:
        await _audit(tx, "delete key", key_id)
        await delete_key(tx, key_id)


async def _audit(tx: Transaction, action: str, key_id: str) -> None:
    """In the log of the tenant whose key it is."""
    found = await find_key(tx, key_id)
    if found is not None:
        await audit(tx, action, key_id, tenant=found.tenant, role=found.role, name=found.name)
