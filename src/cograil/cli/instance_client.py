"""Connection of a command to the instance: database client, audit entries, job lookup."""

from __future__ import annotations

import getpass
import logging
import os
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from cograil import tracing
from cograil.cli.options import chosen_tenant
from cograil.errors import JobNotFound
from cograil.model.roles import NOBODY
from cograil.model.workflow import Workflow
from cograil.processes import make_engine_context, open_client, open_reader
from cograil.processes.invocation import program
from cograil.settings import Settings
from cograil.store import job_queries
from cograil.store.api_keys import AuditRecord, add_audits
from cograil.store.database import Database, Transaction
from cograil.store.job_progress_queries import resolve_job
from cograil.verbs.advance import EngineContext


@dataclass(frozen=True, slots=True)
class InstanceClient:
    """An open database and the engine context. A private instance ends with the command."""

    db: Database
    settings: Settings
    engine_context: EngineContext
    is_private: bool = False
    tenant: str = field(default_factory=chosen_tenant)

    def command(self, arguments: str) -> str:
        """Return a command that addresses this instance when pasted: `cograil show ... --data-dir DIR`."""
        is_named = self.settings.origin_of("data_dir") == "flag"
        option = f" --data-dir {shlex.quote(str(self.settings.data_dir))}" if is_named else ""
        if self.tenant != "default":
            option += f" --tenant {shlex.quote(self.tenant)}"
        return f"`{program()} {arguments}{option}`"

    def next_steps(self, job_id: str) -> str:
        """Describe how a job continues that this command no longer waits for."""
        if self.is_private:
            return f"job {job_id} is stored; {self.command('up')} continues it"
        show, explain = self.command(f"show {job_id}"), self.command(f"explain {job_id}")
        return f"job {job_id} continues; see {show} and {explain}"


def current_user() -> str:
    """Return the name of the user who runs this command; empty when the system has none."""
    try:
        return getpass.getuser()[:64]
    except (OSError, KeyError, ImportError):
        return ""


def caller_traceparent() -> str | None:
    """Return the traceparent from the environment, which is set in containers that cograil runs."""
    return tracing.parse_traceparent(os.environ.get("TRACEPARENT"))


async def audit(tx: Transaction, action: str, target: str, *, tenant: str | None = None, **data: Any) -> None:
    """Add an entry to the audit log; it commits with the transaction."""
    by = {"session_user": tx.connection.info.user, "by": current_user()}
    await add_audits(
        tx, [AuditRecord(tenant or chosen_tenant(), "", NOBODY, "cli", action, target, data=by | data)]
    )


def private_client(db: Database, settings: Settings) -> InstanceClient:
    """Return a client of an instance that this command runs itself."""
    return InstanceClient(db, settings, make_engine_context(settings), is_private=True)


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[InstanceClient]:
    """Connect to the running instance. Raises NoInstance, SchemaMismatch or DatabaseUnavailable."""
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # the command reports these problems itself
    async with open_client(settings, application="cograil cli") as db:
        yield InstanceClient(db, settings, make_engine_context(settings))


@asynccontextmanager
async def connected_to_read(settings: Settings) -> AsyncIterator[InstanceClient]:
    """Connect to read only; when nothing runs, the embedded database is started for this command."""
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    async with open_reader(settings, application="cograil cli") as db:
        yield InstanceClient(db, settings, make_engine_context(settings), is_private=True)


async def find_job(tx: Transaction, text: str, tenant: str) -> tuple[dict[str, Any], int]:
    """Return the job with this id or id prefix, and its definition id. Raises JobNotFound or Conflict."""
    job_and_definition = await job_queries.find_job(tx, await resolve_job(tx, text, tenant), tenant)
    if job_and_definition is None:
        raise JobNotFound(text)
    return job_and_definition


async def find_job_and_workflow(client: InstanceClient, text: str) -> tuple[dict[str, Any], Workflow]:
    """Return the job with this id or id prefix, and its workflow. Raises JobNotFound or Conflict."""
    async with client.db.transaction("show") as tx:
        job, definition_id = await find_job(tx, text, client.tenant)
        return job, await client.engine_context.definitions.get(tx, definition_id)
