"""What a command needs of the instance it talks to."""

from __future__ import annotations

import getpass
import logging
import os
import shlex
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from cograil import logs, tracing
from cograil.cli.options import chosen_tenant
from cograil.errors import JobNotFound
from cograil.model.roles import NOBODY
from cograil.model.workflow import Workflow
from cograil.processes import make_engine_context, open_client, open_reader, run_async
from cograil.processes.invocation import program
from cograil.settings import Settings
from cograil.store import job_queries
from cograil.store.api_keys import AuditEntry, add_audits
from cograil.store.database import Database, Transaction
from cograil.store.job_progress_queries import resolve_job
from cograil.verbs.advance import EngineContext


@dataclass(frozen=True, slots=True)
class Client:
    """An open database and what decisions need. A private instance ends with the command."""

    db: Database
    settings: Settings
    engine_context: EngineContext
    is_private: bool = False
    tenant: str = field(default_factory=chosen_tenant)

    def command(self, words: str) -> str:
        """A command that finds this instance again as it is printed: `cograil show ... --data-dir DIR`."""
        is_named = self.settings.origin_of("data_dir") == "flag"
        option = f" --data-dir {shlex.quote(str(self.settings.data_dir))}" if is_named else ""
        if self.tenant != "default":
            option += f" --tenant {shlex.quote(self.tenant)}"
        return f"`{program()} {words}{option}`"

    def future_of(self, job_id: str) -> str:
        """What becomes of a job that this command no longer waits for."""
        if self.is_private:
            return f"job {job_id} is kept; {self.command('up')} goes on with it"
        show, explain = self.command(f"show {job_id}"), self.command(f"explain {job_id}")
        return f"job {job_id} goes on; see {show} and {explain}"


def who() -> str:
    """Whoever runs this command; nameless where the system does not know."""
    try:
        return getpass.getuser()[:64]
    except (OSError, KeyError, ImportError):
        return ""


def callers_trace() -> str | None:
    """The span in which this command runs, as the environment tells it: in a container of ours, say."""
    return tracing.parse_traceparent(os.environ.get("TRACEPARENT"))


def run_traced(command: Coroutine[Any, Any, int]) -> int:
    """Run a command that makes jobs; if the environment wants traces it tells of what it made."""
    if tracing.is_wanted(os.environ):
        logs.configure("warning")
    return run_async(command, "cli")


async def audit(tx: Transaction, action: str, target: str, *, tenant: str | None = None, **data: Any) -> None:
    """Note in the audit log what a command does; it commits with it."""
    by = {"session_user": tx.connection.info.user, "by": who()}
    await add_audits(
        tx, [AuditEntry(tenant or chosen_tenant(), "", NOBODY, "cli", action, target, data=by | data)]
    )


def private_client(db: Database, settings: Settings) -> Client:
    """A client of an instance that is this command's own."""
    return Client(db, settings, make_engine_context(settings), is_private=True)


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[Client]:
    """A client of the running instance. Raises NoInstance, SchemaMismatch or DatabaseUnavailable."""
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # what it warns of a command says in a sentence
    async with open_client(settings, application="cograil cli") as db:
        yield Client(db, settings, make_engine_context(settings))


@asynccontextmanager
async def connected_to_read(settings: Settings) -> AsyncIterator[Client]:
    """A client for looking only; where nothing runs, the database is started for the time of the command."""
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    async with open_reader(settings, application="cograil cli") as db:
        yield Client(db, settings, make_engine_context(settings), is_private=True)


async def find_job(tx: Transaction, text: str, tenant: str) -> tuple[dict[str, Any], int]:
    """The job a person means, and the id of its definition. Raises JobNotFound or Conflict."""
    found = await job_queries.find_job(tx, await resolve_job(tx, text, tenant), tenant)
    if found is None:
        raise JobNotFound(text)
    return found


async def find_job_and_workflow(client: Client, text: str) -> tuple[dict[str, Any], Workflow]:
    """The job a person means, and its workflow."""
    async with client.db.transaction("show") as tx:
        job, definition_id = await find_job(tx, text, client.tenant)
        return job, await client.engine_context.definitions.get(tx, definition_id)
