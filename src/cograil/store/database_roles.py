"""The roles of cograil on a PostgreSQL server, and what they may do in a database.

    cograil_engine     owns the schemas and everything in them; the login of cograil is a member
    cograil_server     what the API acts as: sees one tenant at a time
    cograil_gateway    what the gateway acts as: reads only

Roles belong to the whole server and creating them takes CREATEROLE or a superuser. Where the login of
cograil has neither, an administrator runs what `admin_sql` returns, once per server. The rights inside a
database are granted by the login itself, as the owner of the objects: `grant_rights` runs the statements
that `sql/missing_policies.sql`, `missing_owners.sql` and `missing_grants.sql` list. It may be repeated at
any time and grants what is missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import (
    InsufficientPrivilege,
    InvalidGrantOperation,
    InvalidParameterValue,
    LockNotAvailable,
)
from psycopg.rows import tuple_row

from cograil.errors import DatabaseUnavailable, RolesMissing
from cograil.settings import Settings
from cograil.store.statements import statement

ENGINE_ROLE = "cograil_engine"
SERVER_ROLE = "cograil_server"
GATEWAY_ROLE = "cograil_gateway"
ROLES = (ENGINE_ROLE, SERVER_ROLE, GATEWAY_ROLE)

IN_DATABASE = (statement("missing_policies"), statement("missing_owners"), statement("missing_grants"))
MISSING_ROLES = statement("missing_roles")
# A role is missing, may not be used, or lacks a grant; the last one when a pooler sets the role.
ROLE_ERRORS = (InsufficientPrivilege, InvalidParameterValue)
MAX_NAMED = 3  # statements that a message quotes

Connection = AsyncConnection[Any]


@dataclass(frozen=True, slots=True)
class RoleState:
    """The missing roles and memberships on the server, and the missing grants in this database."""

    user: str
    database: str
    roles: tuple[str, ...]
    memberships: tuple[str, ...]
    grants: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not (self.roles or self.memberships or self.grants)

    def __str__(self) -> str:
        parts = []
        if self.roles:
            parts.append(f"the server has no role {', '.join(self.roles)}")
        if self.memberships:
            parts.append(f'the role "{self.user}" is not a member of {", ".join(self.memberships)}')
        if self.grants:
            more = f" and {len(self.grants) - MAX_NAMED} more" if len(self.grants) > MAX_NAMED else ""
            named = "; ".join(self.grants[:MAX_NAMED])
            parts.append(
                f'{len(self.grants)} grants are missing in the database "{self.database}": {named}{more}'
            )
        return "; ".join(parts)


async def read_roles(conn: Connection) -> RoleState:
    """Compare the server and this database with the requirements of cograil. Changes nothing."""
    grants = [text for query in IN_DATABASE for (text,) in await _rows(conn, query.text)]
    return replace(await _read_server(conn), grants=tuple(grants))


async def _read_server(conn: Connection) -> RoleState:
    """Return what is missing on the server; does not read this database."""
    privilege = "set" if conn.info.server_version >= 160_000 else "member"
    missing = await _rows(conn, MISSING_ROLES.text, {"privilege": privilege})
    ((user, database),) = await _rows(
        conn, "select current_user, current_database()"
    )  # a pooler's may differ
    return RoleState(
        user=user,
        database=database,
        roles=tuple(name for name, exists in missing if not exists),
        memberships=tuple(name for name, exists in missing if exists),
    )


async def create_roles(conn: Connection) -> list[str]:
    """Create the roles and make this login a member of them; return the statements that were run.

    Raises RolesMissing, with the SQL for an administrator, when this login may not.
    """
    state = await _read_server(conn)
    statements = [_create_role(name) for name in state.roles]
    statements += [f"grant {name} to {quote(state.user)}" for name in (*state.roles, *state.memberships)]
    try:
        await _run_all(conn, statements)
    except (InsufficientPrivilege, InvalidGrantOperation) as error:
        raise RolesMissing(_explain_admin(state)) from error
    return statements


async def grant_rights(conn: Connection) -> list[str]:
    """Grant what is missing in this database; return the statements that were run.

    Raises RolesMissing when this login does not own the objects.
    """
    state = await read_roles(conn)
    try:
        await _run_all(conn, state.grants)
    except InsufficientPrivilege as error:
        raise RolesMissing(
            f'{state}. The role "{state.user}" may not grant them: {str(error).strip()}. '
            "Run `cograil db roles` as the owner of the schema, or let an administrator run "
            f"`cograil db roles --sql | psql -d {state.database}`"
        ) from error
    return list(state.grants)


async def check_roles(conn: Connection) -> None:
    """Raise RolesMissing, with the command to run, unless all roles and rights are set up."""
    state = await read_roles(conn)
    if not state.is_complete:
        raise RolesMissing(f"{state}: run `cograil db roles`, then start this again")


def refused_role(conninfo: str, message: str) -> str | None:
    """Return the role of this connection if the server refused it because of the role; otherwise None."""
    acting = re.search(r"-c role=(\w+)", str(conninfo_to_dict(conninfo).get("options") or ""))
    is_meant = acting is not None and f'"{acting[1]}"' in message and "authentication" not in message
    return acting[1] if acting and is_meant else None


def explain_roles(role: str, reason: str) -> str:
    """Return what to do when a process cannot act in its role."""
    lines = [line for line in reason.splitlines() if role in line] or reason.strip().splitlines()[:1]
    return (
        f"cograil cannot act as {role}: {lines[0].strip()}. "
        "Run `cograil db roles`, which creates the roles and grants their rights, or says what an "
        "administrator must run"
    )


def find_encoding_problem(conn: Connection) -> str | None:
    """Return why this database cannot be used when it does not store text as UTF-8; needs no query."""
    encoding = conn.info.parameter_status("server_encoding")
    if encoding in (None, "UTF8"):
        return None
    return (
        f'the database "{conn.info.dbname}" has the encoding {encoding} and cograil needs UTF8: '
        "create another one with `createdb -E UTF8 -T template0 NAME` and name it in COGRAIL_DATABASE_URL"
    )


def admin_sql(settings: Settings, user: str) -> str:
    """Return the SQL with which an administrator creates the roles; it may be run again.

    `user` is the login of cograil; the server and the gateway may have logins of their own.
    """
    lines = ["-- The roles of cograil. For an administrator of the PostgreSQL server; may be run again."]
    lines += [f"{_create_role(name)};" for name in ROLES]
    lines.append(f"grant {', '.join(ROLES)} to {quote(user)};")
    own = ((SERVER_ROLE, settings.server.database_url), (GATEWAY_ROLE, settings.gateway.database_url))
    for role, url in own:
        login = conninfo_to_dict(url).get("user") if url else None
        if login and login != user:
            lines.append(f"grant {role} to {quote(str(login))};")
    return "\n".join(lines) + "\n"


def _explain_admin(state: RoleState) -> str:
    sql = "\n".join(
        [
            *(f"    create role {name} nologin;" for name in state.roles),
            *(f"    grant {name} to {quote(state.user)};" for name in (*state.roles, *state.memberships)),
        ]
    )
    return (
        f'{state}, and "{state.user}" may not change that. Nothing was changed.\n\n'
        f"An administrator of the PostgreSQL server must run this once:\n\n{sql}\n\n"
        f"for example with `cograil db roles --sql | psql -d {state.database} -U postgres`. "
        "Then run the same command again."
    )


def _create_role(name: str) -> str:
    """Return SQL that creates this role unless the server has it."""
    return (
        f"do $$ begin create role {name} nologin; "
        "exception when duplicate_object or unique_violation then null; end $$"
    )


def quote(name: str) -> str:
    """Return an identifier quoted for SQL text."""
    return '"' + name.replace('"', '""') + '"'


async def _run_all(conn: Connection, statements: list[str] | tuple[str, ...]) -> None:
    """Run all of these statements or none. Raises DatabaseUnavailable when another session keeps a lock
    that one needs.
    """
    if not statements:
        return
    try:
        async with conn.transaction():
            await conn.execute("set local lock_timeout = '10s'")
            for text in statements:
                await conn.execute(text.encode(), prepare=False)
    except LockNotAvailable as error:
        raise DatabaseUnavailable(
            "the rights of cograil's roles cannot be set: a long transaction holds a lock on its tables; "
            "see pg_stat_activity, then run `cograil db roles`"
        ) from error


async def _rows(conn: Connection, query: str, params: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(query.encode(), params, prepare=False)
        return await cursor.fetchall()
