"""The doctor: checks that the data in the database is consistent and that work progresses.

Thirteen invariants (I01 to I13) hold at every moment, also right after a crash; each is a statement
`sql/doctor_*.sql` that returns the violating rows. All of them read one snapshot, in one read-only
transaction. The liveness checks (L1 to L9) depend on time and only warn. The doctor repairs nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from cograil import clock
from cograil.store import migrate
from cograil.store.database import Transaction
from cograil.store.database_roles import read_roles
from cograil.store.statements import statement

Level = Literal["green", "yellow", "red"]
Connection = AsyncConnection[Any]

SHOWN_IDS = 20
ENCODING_CODE = "S5"
NEWS_CODE = "L2"
ORCHESTRATORS = statement("doctor_orchestrators")
SAFE_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One check; `statement` returns the ids of the violating rows."""

    code: str
    statement: str
    promise: str
    grace_seconds: float | None = None

    @property
    def name(self) -> str:
        return self.statement.removeprefix("doctor_")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. `ids` has the first few of `count` violations."""

    level: Level
    code: str
    name: str
    message: str
    ids: tuple[str, ...] = ()
    count: int = 0

    def __str__(self) -> str:
        offenders = f": {', '.join(self.ids)}" if self.ids else ""
        more = f" and {self.count - len(self.ids)} more" if self.count > len(self.ids) else ""
        return f"{self.code} {self.name} ({self.message}){offenders}{more}"


INVARIANTS = (
    DoctorCheck("I01", "doctor_terminal_shape", "the columns of a job agree with its status"),
    DoctorCheck(
        "I02",
        "doctor_nothing_outlives_its_job",
        "no node, task or child job is open under a job that has ended",
    ),
    DoctorCheck("I03", "doctor_one_live_attempt", "a dispatched node has exactly one live attempt"),
    DoctorCheck("I04", "doctor_attempts_dense", "attempts are numbered without gaps and within their limit"),
    DoctorCheck("I05", "doctor_one_winner", "a node completes once and does not run again after that"),
    DoctorCheck("I06", "doctor_dependencies_first", "no node starts before what it depends on has ended"),
    DoctorCheck("I07", "doctor_fan_out_counts", "fan-outs count their children correctly"),
    DoctorCheck("I08", "doctor_events_gapless", "events are numbered without gaps"),
    DoctorCheck("I09", "doctor_history_legal", "histories are legal and agree with the state"),
    DoctorCheck("I10", "doctor_outbox_complete", "the end of a job is sent once to its callback"),
    DoctorCheck("I11", "doctor_keys_unique", "idempotency keys and published versions are unique"),
    DoctorCheck("I12", "doctor_tenant_closure", "references lead to rows of the same tenant"),
    DoctorCheck("I13", "doctor_definition_exists", "every job has the definition it is pinned to"),
)

LIVENESS = (
    DoctorCheck("L1", "doctor_leases_over", "attempts of lost workers are rescued", 30.0),
    DoctorCheck(
        NEWS_CODE,
        "doctor_news_waiting",
        "jobs with inbox rows are advanced: check that an orchestrator runs",
        30.0,
    ),
    DoctorCheck("L3", "doctor_jobs_stuck", "every open job has something to wait for"),
    DoctorCheck("L4", "doctor_idle_transactions", "no session is idle in a transaction", 30.0),
    DoctorCheck(
        "L5",
        "doctor_deliveries_waiting",
        "due deliveries are tried: check that a relay runs",
        60.0,
    ),
    DoctorCheck("L6", "doctor_receivers_failing", "receivers accept their deliveries"),
    DoctorCheck(
        "L7",
        "doctor_dead_letters",
        "no delivery was given up this week: see `cograil deliveries list --state dead`",
    ),
    DoctorCheck(
        "L8",
        "doctor_subscriptions_disabled",
        "every subscription is enabled: see `cograil subscriptions enable`",
    ),
    DoctorCheck(
        "L9",
        "doctor_clocks",
        "the clocks of workers and orchestrators are correct: synchronize them with NTP",
        clock.MAX_OFFSET_SECONDS,
    ),
)


async def check_invariants(source: Transaction | Connection) -> list[Finding]:
    """Return the violated invariants; an empty list when all hold.

    Takes a connection, or a transaction whose snapshot is used. While other sessions write, pass a
    connection, because each statement of the usual transaction reads a new snapshot. Changes nothing.
    """
    findings = await _ask_all(source, INVARIANTS, "red")
    return [finding for finding in findings if finding.level != "green"]


async def check_liveness(source: Transaction | Connection) -> list[Finding]:
    """Return the liveness checks that fail; an empty list when none does."""
    findings = await _ask_all(source, LIVENESS, "yellow")
    return [finding for finding in findings if finding.level != "green"]


async def examine(conn: Connection) -> list[Finding]:
    """Run every check in order, and return the results of those that pass too."""
    findings = [_server(conn), _encoding(conn), await _durability(conn), await _schema(conn)]
    if findings[-1].level == "red":
        return findings
    findings.append(await _roles(conn))
    findings += await _ask_all(conn, INVARIANTS, "red")
    findings += await _ask_all(conn, LIVENESS, "yellow")
    return [
        await _without_orchestrator(conn, finding) if finding.code == NEWS_CODE else finding
        for finding in findings
    ]


async def _without_orchestrator(conn: Connection, finding: Finding) -> Finding:
    """Return L2 as a warning when no orchestrator runs, even while no job waits for one."""
    if finding.level != "green" or await _rows_of(conn, ORCHESTRATORS.text):
        return finding
    message = "no orchestrator runs: jobs would wait; start one with `cograil orchestrator` or `cograil up`"
    return Finding("yellow", finding.code, finding.name, message)


def _server(conn: Connection) -> Finding:
    version = conn.info.server_version
    text = f"PostgreSQL {version // 10_000}.{version % 10_000}"
    if version < migrate.OLDEST_SERVER * 10_000:
        return Finding(
            "red", "S1", "server", f"{text} is too old; cograil needs {migrate.OLDEST_SERVER} or newer"
        )
    return Finding("green", "S1", "server", text)


def _encoding(conn: Connection) -> Finding:
    """Check the encoding. Connections to a database of another encoding are refused (database.py)."""
    return Finding("green", ENCODING_CODE, "encoding", str(conn.info.parameter_status("server_encoding")))


async def _roles(conn: Connection) -> Finding:
    state = await read_roles(conn)
    if state.is_complete:
        return Finding("green", "S4", "roles", "the roles of the server and the gateway have their rights")
    wanted = (*state.roles, *state.memberships, *state.grants)
    message = "the API and the gateway cannot start: run `cograil db roles`. Missing"
    return Finding("red", "S4", "roles", message, wanted[:SHOWN_IDS], len(wanted))


async def _durability(conn: Connection) -> Finding:
    rows = await _rows(conn, "select name from pg_settings where setting = 'off' and name = any(%s)")
    off = tuple(sorted(name for (name,) in rows))
    if off:
        message = "switched off, so committed work may be lost in a crash; switch it on"
        return Finding("red", "S2", "durability", message, off, len(off))
    return Finding("green", "S2", "durability", f"{', '.join(SAFE_SETTINGS)} are on")


async def _schema(conn: Connection) -> Finding:
    status = await migrate.status(conn)
    if status.problems:
        return Finding("red", "S3", "schema", "; ".join(status.problems))
    if status.pending:
        message = f"version {status.current} of {status.known}; run `cograil db migrate`"
        return Finding("red", "S3", "schema", message)
    newer = f"; newer than this program, which knows {status.known} and can work with it"
    message = f"version {status.current}{newer if status.current > status.known else ''}"
    return Finding("green", "S3", "schema", message)


async def _ask_all(
    source: Transaction | Connection, checks: Iterable[DoctorCheck], level: Level
) -> list[Finding]:
    conn = source.connection if isinstance(source, Transaction) else source
    async with _open_snapshot(conn):
        return [await _run_check(conn, check, level) for check in checks]


async def _run_check(conn: Connection, check: DoctorCheck, level: Level) -> Finding:
    """Run one check; count all violations and name the first few."""
    query = (
        f"select id, count(*) over () from ({statement(check.statement).text}) as offending(id)"
        f" order by id limit {SHOWN_IDS}"
    )
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(query.encode(), _params(check), prepare=False)
        rows = await cursor.fetchall()
    if not rows:
        return Finding("green", check.code, check.name, check.promise)
    shown_ids = tuple(str(offender) for offender, _ in rows)
    _, total = rows[0]
    return Finding(level, check.code, check.name, check.promise, shown_ids, total)


def _params(check: DoctorCheck) -> dict[str, float] | None:
    return None if check.grace_seconds is None else {"grace": check.grace_seconds}


@contextlib.asynccontextmanager
async def _open_snapshot(conn: Connection) -> AsyncIterator[None]:
    """Yield a read-only snapshot; inside a transaction, its own.

    Sessions of the engine disable sequential scans, because its statements read few rows. The checks read
    all rows. A dropped partition disappears from every snapshot, also from one that still has its jobs, so
    a lock prevents drops. The lock precedes the first query, which takes the snapshot.
    """
    if conn.info.transaction_status is not TransactionStatus.IDLE:
        yield
        return
    async with conn.transaction(force_rollback=True):
        await conn.execute("set transaction isolation level repeatable read read only")
        await conn.execute("set local enable_seqscan = on")
        await conn.execute("lock table cograil.nodes, cograil.events in access share mode")
        yield


async def _rows(conn: Connection, query: str) -> list[tuple[Any, ...]]:
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(query.encode(), [list(SAFE_SETTINGS)])
        return await cursor.fetchall()


async def _rows_of(conn: Connection, query: str) -> list[tuple[Any, ...]]:
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(query.encode(), prepare=False)
        return await cursor.fetchall()
