"""Commands for API keys: keys create, list, callback-secret, revoke, delete."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from cograil import clock
from cograil.cli.backends.target import Target
from cograil.cli.command_decorators import instance_command
from cograil.cli.display.formatting import ago
from cograil.cli.display.output import out, plain, render, say, table
from cograil.cli.instance_client import audit, connected
from cograil.cli.options import Amount, instance_options
from cograil.errors import NotFound
from cograil.model.roles import NOBODY, ROLES, Caller
from cograil.processes.database_host import open_prepared
from cograil.store.api_keys import find_key
from cograil.store.database import Transaction
from cograil.verbs.callback_secrets import MAY_REQUEST, secret_of_key
from cograil.verbs.key_management import NewKey, create_key, delete_key, revoke_key

MAX_DAYS = 36_500  # keeps the date within PostgreSQL's range; without --days a key does not expire
SERVER_READS_KEYS = "a server can list API keys, but neither create, change nor delete them"
KEY_FILE = "file"  # the id of the key in API_KEY_FILE


@click.group()
def keys() -> None:
    """Manage API keys. Once the first key exists, every request needs a key.

    \b
    Examples:
      cograil keys create --role admin
      cograil keys create --tenant acme --role submitter --name "web shop" --days 90
      cograil keys list
      cograil keys revoke 4kq2v7cn3xz6bdpa
      cograil keys delete 4kq2v7cn3xz6bdpa
    """


@keys.command()
@click.option("--tenant", default="default", show_default=True, help="Tenant that the key gives access to.")
@click.option("--role", required=True, type=click.Choice(ROLES), help="Role of the key.")
@click.option("--user", "user_id", default=NOBODY, metavar="UUID", help="User id of the key, for apps.")
@click.option("--name", default="", help="Name of the key; shown in lists and audit entries.")
@click.option("--days", type=Amount(0, MAX_DAYS, min_open=True), help="Days until the key expires.")
@instance_options
@instance_command
async def create(target: Target, as_json: bool, days: float | None, **attributes: Any) -> None:
    """Create a key. It is shown only once: the database stores a hash.

    No instance has to run: the embedded database is started for this command, and created if necessary.
    For a key that may make requests, the secret that signs their callbacks is shown too.

    \b
    Examples:
      cograil keys create --role operator
      export COGRAIL_KEY=$(cograil keys create --role submitter --json | jq -r .key)
    """
    tenant, role = attributes["tenant"], attributes["role"]
    async with (
        open_prepared(target.require_database(SERVER_READS_KEYS), application="cograil cli") as db,
        db.transaction("keys") as tx,
    ):
        expires_at = None if days is None else tx.now + timedelta(days=days)
        key = await create_key(tx, **attributes, expires_at=expires_at)
        await audit(tx, "create key", key.key_id, tenant=tenant, role=role, name=attributes["name"])
        may_request = Caller(tenant, role).may(*MAY_REQUEST)
        secret = await secret_of_key(tx, key.key_id) if may_request else None
    optional = {} if secret is None else {"callback_secret": secret}
    render({"key": key.key, "key_id": key.key_id} | optional, lambda: _show_key(key, secret), as_json)


def _show_key(key: NewKey, secret: str | None) -> None:
    out().print(plain(key.key), soft_wrap=True)
    say(f"key {key.key_id}; store it safely, it is not shown again")
    if secret is not None:
        say(f"callbacks of requests made with this key are signed with {secret}")


@keys.command("callback-secret")
@click.argument("key_id")
@instance_options
@instance_command
async def callback_secret(target: Target, key_id: str, as_json: bool) -> None:
    """Show the secret that signs the callbacks of requests made with a key.

    The id of the key in API_KEY_FILE is "file". Exits 3 when the key does not exist.

    \b
    Examples:
      cograil keys callback-secret 4kq2v7cn3xz6bdpa
    """
    async with (
        connected(target.require_database(SERVER_READS_KEYS)) as client,
        client.db.transaction("keys") as tx,
    ):
        is_known = key_id == KEY_FILE or await find_key(tx, key_id) is not None
        secret = await secret_of_key(tx, key_id) if is_known else None
    if secret is None:
        raise NotFound(f"key {key_id} does not exist")
    value = {"key_id": key_id, "callback_secret": secret}
    render(value, lambda: out().print(plain(secret), soft_wrap=True), as_json)


@keys.command("list")
@click.option("--tenant", help="Only keys of this tenant.")
@instance_options
@instance_command
async def list_(target: Target, tenant: str | None, as_json: bool) -> None:
    """List keys with their roles and last use. The keys themselves are never shown.

    \b
    Examples:
      cograil keys list
      cograil keys list --tenant acme --json
    """
    async with target.open_to_read() as backend:
        listed = await backend.list_keys(tenant)
    render({"keys": listed}, lambda: _show_keys(listed), as_json)


def _show_keys(listed: list[dict[str, Any]]) -> None:
    rows = table("key", "tenant", "role", "name", "created", "last used", "state")
    for key in listed:
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


def _state(key: dict[str, Any]) -> str:
    if key["revoked_at"] is not None:
        return "revoked"
    is_expired = key["expires_at"] is not None and key["expires_at"] <= clock.now()
    return "expired" if is_expired else "valid"


@keys.command()
@click.argument("key_id")
@instance_options
@instance_command
async def revoke(target: Target, key_id: str, as_json: bool) -> None:
    """Revoke a key; servers reject it within five seconds. Exits 3 when no such key is valid.

    \b
    Examples:
      cograil keys revoke 4kq2v7cn3xz6bdpa
    """
    async with (
        connected(target.require_database(SERVER_READS_KEYS)) as client,
        client.db.transaction("keys") as tx,
    ):
        await _audit(tx, "revoke key", key_id)
        await revoke_key(tx, key_id)
    render({"key_id": key_id, "is_revoked": True}, f"key {key_id} is revoked", as_json)


@keys.command()
@click.argument("key_id")
@instance_options
@instance_command
async def delete(target: Target, key_id: str, as_json: bool) -> None:
    """Delete a revoked or expired key. Exits 3 when the key does not exist or is still valid.

    When the last key is deleted, a server on loopback accepts requests without a key again.

    \b
    Examples:
      cograil keys delete 4kq2v7cn3xz6bdpa
    """
    async with (
        connected(target.require_database(SERVER_READS_KEYS)) as client,
        client.db.transaction("keys") as tx,
    ):
        await _audit(tx, "delete key", key_id)
        await delete_key(tx, key_id)
    render({"key_id": key_id, "is_deleted": True}, f"key {key_id} is deleted", as_json)


async def _audit(tx: Transaction, action: str, key_id: str) -> None:
    """Add the entry to the audit log of the key's tenant."""
    key = await find_key(tx, key_id)
    if key is not None:
        await audit(tx, action, key_id, tenant=key.tenant, role=key.role, name=key.name)
