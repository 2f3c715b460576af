"""The contract of the SQL: its moves are those of states.py, its plans hold though made on nothing."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
import pytest_asyncio
from tests.support.harness import Harness

import cograil
from cograil.model.states import (
    EVENT_TYPES,
    JOB_MOVES,
    JOB_STATES,
    NODE_MOVES,
    NODE_STATES,
    TASK_MOVES,
    TASK_STATES,
)
from cograil.store.statements import Statement, all_statements, statement

STATEMENTS = sorted(all_statements(), key=lambda entry: entry.name)
MOVES = {"job": JOB_MOVES, "node": NODE_MOVES, "task": TASK_MOVES}
HEADER = re.compile(r"\b(job|node|task) ([a-z|]+) -> (\w+)")
PROCESS_STATES = {"alive", "draining", "dead", "stopped"}
DELIVERY_STATES = {"pending", "delivered", "dead"}

each_statement = pytest.mark.parametrize("sql_statement", STATEMENTS, ids=lambda entry: entry.name)


# -- words ------------------------------------------------------------------------------------------------


def moves_of(sql_statement: Statement) -> list[tuple[str, frozenset[str], str]]:
    """What the header says: (noun, from, to)."""
    header = re.search(r"^-- moves: (.*)$", sql_statement.source, re.MULTILINE)
    moves = HEADER.findall(header[1]) if header else []
    return [(noun, frozenset(sources.split("|")), target) for noun, sources, target in moves]


@each_statement
def test_each_statement_has_its_name_and_a_reason(sql_statement: Statement) -> None:
    assert sql_statement.source.startswith(f"-- name: {sql_statement.name}\n")
    assert "--" not in sql_statement.text
    assert all(len(part.splitlines()) <= 76 for part in sql_statement.source.split("-- part: "))


@each_statement
def test_each_statement_is_used(sql_statement: Statement) -> None:
    package = Path(cograil.__file__).parent
    assert any(f'"{sql_statement.name}"' in file.read_text() for file in package.rglob("*.py"))


@each_statement
def test_the_moves_it_says_are_in_the_list(sql_statement: Statement) -> None:
    for noun, sources, target in moves_of(sql_statement):
        assert any(sources <= all_sources and target == to for all_sources, to in MOVES[noun].values())


@each_statement
def test_the_moves_it_makes_are_those_it_says(sql_statement: Statement) -> None:
    declared = {(noun, target) for noun, _, target in moves_of(sql_statement)}
    assert declared == set(made_by(sql_statement.text))


def made_by(text: str) -> Iterator[tuple[str, str]]:
    """The moves a text makes with literals: an update that sets a state, a task that is deleted."""
    for noun, column in (("task", "state"), ("node", "status"), ("job", "status")):
        update = rf"update cograil\.{noun}s\b[^;]*?\bset {column} = '(\w+)'"
        yield from ((noun, target) for target in re.findall(update, text))
    if "delete from cograil.tasks" in text:
        yield "task", "gone"


@each_statement
def test_the_guard_of_a_move_names_the_states_it_leaves(sql_statement: Statement) -> None:
    """Unless it leaves all there are."""
    for noun, sources, _ in moves_of(sql_statement):
        if noun == "task" and sources == set(TASK_STATES):
            continue
        assert sources <= set(literals(sql_statement.text))


def literals(text: str) -> Iterator[str]:
    """Every state that is compared with or set."""
    for _, word in re.findall(r"\b(state|status) (?:=|<>) '(\w+)'", text):
        yield word
    for _, words in re.findall(r"\b(state|status) (?:not )?in \(('\w+'(?:, '\w+')*)\)", text):
        yield from re.findall(r"\w+", words)


NO_EVENTS = {"job_id", "node_id", "task_id", "node_count"}


@each_statement
def test_a_statement_names_only_states_and_events_that_exist(sql_statement: Statement) -> None:
    known = {*JOB_STATES, *NODE_STATES, *TASK_STATES, *PROCESS_STATES, *DELIVERY_STATES}
    assert set(literals(sql_statement.text)) <= known
    events = set(re.findall(r"'((?:job|node|task)_[a-z]+)'", sql_statement.text)) - NO_EVENTS
    assert events <= set(EVENT_TYPES)


@each_statement
def test_rows_are_locked_where_no_plan_can_lock_them_again(sql_statement: Statement) -> None:
    """In a plain IN or a joined sub-select the limit holds per run, and a nested loop runs it per row."""
    assert not any("for update" in inner for inner in plain_sub_selects(sql_statement.text))


def plain_sub_selects(text: str) -> Iterator[str]:
    """What stands in `in (select ...)` and `from (select ...)`, up to the bracket that closes it."""
    for match in re.finditer(r"\b(?:in|from) \( ?(?=select\b)", text):
        depth, end = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield text[match.end() : end]


def test_a_claim_in_the_broken_form_would_be_seen() -> None:
    broken = (
        "update t where id in (select id from t where h = any(%(a)s::text[]) limit 3 for update skip locked)"
    )
    assert [inner for inner in plain_sub_selects(broken) if "for update" in inner]


@pytest.mark.parametrize(
    ("table", "column", "states"),
    [("jobs", "status", JOB_STATES), ("nodes", "status", NODE_STATES), ("tasks", "state", TASK_STATES)],
)
async def test_the_checks_of_the_tables_are_the_list(
    harness: Harness, table: str, column: str, states: Any
) -> None:
    query = f"""
        select pg_get_constraintdef(oid) from pg_constraint
        where conrelid = 'cograil.{table}'::regclass and conname = '{table}_{column}_check'"""
    ((definition,),) = await harness.rows(query)
    assert sorted(re.findall(r"'(\w+)'::text", definition)) == sorted(states)


# -- plans ------------------------------------------------------------------------------------------------

ROWS = 2_000
WAITING = 500  # under a limit


def columns_of(name: str) -> dict[str, tuple[str, Any]]:
    """The parameters of a statement that takes rows as columns, with no rows."""
    arrays = re.findall(r"%\((\w+)\)s::([a-z ]+\[\])", statement(name).text)
    return {param: (kind, "{}") for param, kind in arrays}


def one_limit(name: str) -> dict[str, tuple[str, Any]]:
    """The parameters of a statement that lets go: under one limit, which allows fifty."""
    values = {"key": ["k"], "concurrency": [50], "rate": [None], "per_seconds": [1.0], "places": [1000]}
    return {
        param: (kind, values[param.removeprefix("asked_")]) for param, (kind, _) in columns_of(name).items()
    }


# The hot statements: the types of their parameters, and values that find work among ROWS rows.
HOT: dict[str, dict[str, tuple[str, Any]]] = {
    "claim_tasks": {
        "async_handlers": ("text[]", ["echo", "sleep"]),
        "async_max": ("int[]", [None, 250]),
        "queues": ("text[]", None),
        "async_slots": ("bigint", 300),
        "thread_handlers": ("text[]", []),
        "thread_slots": ("bigint", 5),
        "process_handlers": ("text[]", []),
        "process_slots": ("bigint", 2),
        **{f"{lane}_rank": ("smallint", -32767) for lane in ("async", "thread", "process")},
        **{f"{lane}_id": ("bigint", 0) for lane in ("async", "thread", "process")},
        "worker": ("bigint", 1),
    },
    "claim_alone": {
        "handlers": ("text[]", ["echo", "sleep"]),
        "queues": ("text[]", None),
        "worker": ("bigint", 1),
    },
    "report_tasks": {"worker": ("bigint", 1), "name": ("text", "w")} | columns_of("report_tasks"),
    "end_jobs": {"worker": ("bigint", 1), "name": ("text", "w")} | columns_of("end_jobs"),
    "save_steps": {"worker": ("bigint", 1), "name": ("text", "w")} | columns_of("save_steps"),
    "lock_jobs_with_news": {
        "limit": ("bigint", 200),
        "window": ("bigint", 800),
        "aside": ("uuid[]", []),
        "first": ("bigint", 0),
    },
    "take_inbox": {"ids": ("uuid[]", None), "limit": ("bigint", 2000)},
    "held_keys": {"after": ("text", ""), "most": ("bigint", 200)},
    "lock_waiting": {
        "what": ("text", "job"),
        "key": ("text", "k"),
        "concurrency": ("int", 50),
        "rate": ("float8", None),
        "per_seconds": ("float8", 1.0),
        "places": ("int", 1000),
    },
    "let_go_tasks": one_limit("let_go_tasks"),
    "admit_jobs": one_limit("admit_jobs"),
    "leave_lines": {"ids": ("uuid[]", None)},
    "load_nodes": {"ids": ("uuid[]", None)},
    "load_children_wake": {
        "ids": ("uuid[]", None),
        "loaded_jobs": ("uuid[]", []),
        "loaded": ("text[]", []),
    },
    "heartbeat_worker": {
        "lease": ("float8", 15.0),
        "info": ("jsonb", "{}"),
        "worker": ("bigint", 1),
        "name": ("text", "w"),
        "handlers": ("text[]", []),
    },
    "tick_orchestrator": {
        "lease": ("float8", 15.0),
        "process": ("bigint", 2),
        "grace": ("float8", 10.0),
        "excluded": ("uuid[]", []),
        "is_steady": ("bool", True),
        "offset": ("float8", 0.0),
    },
    "write_changes": {"owner": ("bigint", 2)} | columns_of("write_changes"),
}
LARGE = {"jobs", "nodes_default", "tasks", "inbox", "events_default", "checkpoints", "steps", "admissions"}

FILL = f"""
insert into cograil.processes (kind, name, lease_until)
  values ('worker', 'w', now() + interval '1 h'), ('orchestrator', 'o', now() + interval '1 h');
insert into cograil.jobs (id, definition_id, workflow_id, workflow_version, status, seq, input, started_at)
  select gen_random_uuid(), 1, 'w', 1, 'running', 1, '{{}}', now() from generate_series(1, {ROWS});
insert into cograil.nodes (job_id, node_id, status, attempt, input)
  select id, 'a', 'dispatched', 1, '{{}}' from cograil.jobs;
insert into cograil.tasks (job_id, node_id, attempt, queue, handler, params, timeout_seconds, last_at)
  select id, 'a', 1, 'default', 'echo', '{{}}', 60, 1 from cograil.jobs;
insert into cograil.tasks (job_id, node_id, attempt, queue, handler, params, timeout_seconds, state,
    limit_key, limit_concurrency, limit_per_seconds)
  select id, 'b', 1, 'default', 'echo', '{{}}', 60, 'held', 'k', 50, 1 from cograil.jobs limit {WAITING};
insert into cograil.admissions (job_id, limit_key, concurrency, per_seconds)
  select id, 'k', 50, 1 from cograil.jobs limit {WAITING};
insert into cograil.inbox (job_id, kind, node_id) select id, 'more', 'a' from cograil.jobs;
insert into cograil.events (job_id, seq, type, node_id) select id, 1, 'node_ready', 'a' from cograil.jobs;
"""


@pytest_asyncio.fixture
async def planned(harness: Harness) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A session of the engine that planned every hot statement on empty tables, which are full now."""
    async with await psycopg.AsyncConnection.connect(
        harness.db.conninfo, autocommit=True, cursor_factory=psycopg.AsyncClientCursor
    ) as conn:
        for name, params in HOT.items():
            await conn.execute(_prepare(name, params).encode())
            await conn.execute(*_execute(name))
        await conn.execute(FILL.encode())
        yield conn
        await conn.execute(
            b"truncate cograil.jobs, cograil.nodes, cograil.tasks, cograil.inbox, cograil.events,"
            b" cograil.admissions"
        )


def _prepare(name: str, params: dict[str, tuple[str, Any]]) -> str:
    text = statement(name).text
    for number, param in enumerate(params, start=1):
        text = text.replace(f"%({param})s", f"${number}")
    assert "%(" not in text, text
    return f"prepare {name} ({', '.join(kind for kind, _ in params.values())}) as {text}".replace("%%", "%")


def _execute(name: str, explain: str = "", **arguments: Any) -> tuple[bytes, list[Any]]:
    values = [arguments.get(param, value) for param, (_, value) in HOT[name].items()]
    casts = ", ".join(f"%s::{kind}" for kind, _ in HOT[name].values())
    return f"{explain} execute {name} ({casts})".encode(), values


async def plan_of(conn: psycopg.AsyncConnection[Any], name: str, **arguments: Any) -> list[dict[str, Any]]:
    """The parts of the plan with which the statement ran."""
    query, values = _execute(name, "explain (analyze, format json, timing off)", **arguments)
    ((plan,),) = await (await conn.execute(query, values)).fetchall()
    document = plan if isinstance(plan, list) else orjson.loads(plan)
    return list(_parts(document[0]["Plan"]))


def _parts(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _parts(part)


async def some_jobs(conn: psycopg.AsyncConnection[Any], count: int = 200) -> list[Any]:
    rows = await conn.execute(f"select id from cograil.jobs limit {count}".encode())
    return [job_id for (job_id,) in await rows.fetchall()]


def task_ids(rows: list[tuple[Any, ...]]) -> list[int]:
    """The first column of these rows."""
    return [task_id for task_id, *_ in rows]


def outcomes_of(tasks: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Rows that begin with id, fence, job, node and attempt, reported as completed."""
    columns = zip(("id", "fence", "job_id", "node_id", "attempt"), zip(*tasks, strict=True), strict=False)
    arguments: dict[str, Any] = {f"report_{name}": list(values) for name, values in columns}
    return arguments | {"report_output": ["{}"] * len(tasks), "report_error": [None] * len(tasks)}


def ends_of(tasks: list[tuple[Any, ...]]) -> dict[str, Any]:
    """The same rows, each the success of a last task."""
    ids, fences = zip(*[task[:2] for task in tasks], strict=True)
    return {"last_id": list(ids), "last_fence": list(fences), "last_output": ["{}"] * len(tasks)}


REPORTED = {"report_tasks": outcomes_of, "end_jobs": ends_of}


async def running(conn: psycopg.AsyncConnection[Any]) -> list[tuple[Any, ...]]:
    """What can be reported."""
    rows = await conn.execute(
        b"select id, fence, job_id, node_id, attempt from cograil.tasks where state = 'running'"
    )
    return await rows.fetchall()


@pytest.mark.parametrize("name", HOT)
async def test_a_plan_made_on_empty_tables_reads_by_index_and_locks_once(
    planned: psycopg.AsyncConnection[Any], name: str
) -> None:
    jobs = await some_jobs(planned)
    arguments: dict[str, Any] = {"ids": jobs} if "ids" in HOT[name] else {}
    if name in ("report_tasks", "end_jobs"):
        await planned.execute(*_execute("claim_tasks"))
        arguments = REPORTED[name](await running(planned))
    parts = await plan_of(planned, name, **arguments)
    scanned = {part["Relation Name"] for part in parts if part["Node Type"] == "Seq Scan"}
    assert scanned & LARGE == set()
    locks = [part["Actual Loops"] for part in parts if part["Node Type"] == "LockRows"]
    most = len(HOT["claim_tasks"]["async_handlers"][1]) if name == "claim_tasks" else 1
    assert all(loops <= most for loops in locks)


async def test_a_claim_takes_exactly_what_was_asked_for(planned: psycopg.AsyncConnection[Any]) -> None:
    """Measured: a locking sub-select in a plain IN claimed all rows instead of the limit."""
    claimed = await (await planned.execute(*_execute("claim_tasks"))).fetchall()
    assert len(claimed) == 300
    assert task_ids(claimed) == sorted(task_ids(claimed))
    rows = await planned.execute(b"select count(*) from cograil.tasks where state = 'running'")
    assert await rows.fetchone() == (300,)


async def test_a_report_takes_away_exactly_its_tasks(planned: psycopg.AsyncConnection[Any]) -> None:
    claimed = await (await planned.execute(*_execute("claim_tasks"))).fetchall()
    counted = await (
        await planned.execute(*_execute("report_tasks", **outcomes_of(claimed[:100])))
    ).fetchall()
    assert set(task_ids(counted)) == set(task_ids(claimed[:100]))
    rows = await planned.execute(b"select count(*) from cograil.tasks")
    assert await rows.fetchone() == (ROWS + WAITING - 100,)


async def test_a_taken_inbox_is_that_of_the_jobs_asked_for(planned: psycopg.AsyncConnection[Any]) -> None:
    jobs = await some_jobs(planned, 50)
    taken = await (await planned.execute(*_execute("take_inbox", ids=jobs))).fetchall()
    assert {job_id for _, job_id, *_ in taken} == {str(job) for job in jobs}
    rows = await planned.execute(b"select count(*) from cograil.inbox")
    assert await rows.fetchone() == (ROWS - 50,)


async def test_the_advance_query_locks_as_many_jobs_as_requested(
    planned: psycopg.AsyncConnection[Any],
) -> None:
    async with planned.transaction():
        assert len(await (await planned.execute(*_execute("lock_jobs_with_news"))).fetchall()) == 200


@pytest.mark.parametrize("name", REPORTED)
async def test_a_report_finds_its_tasks_by_their_ids(
    planned: psycopg.AsyncConnection[Any], name: str
) -> None:
    """By worker or state all that was ever running would be walked over while a snapshot is held."""
    await planned.execute(*_execute("claim_tasks"))
    parts = await plan_of(planned, name, **REPORTED[name](await running(planned)))
    assert indexes_of("tasks", parts) == {"tasks_pkey"}


def indexes_of(table: str, parts: list[dict[str, Any]]) -> set[str]:
    return {part["Index Name"] for part in parts if part.get("Index Name", "").startswith(table)}


async def test_exactly_the_jobs_of_these_tasks_end(planned: psycopg.AsyncConnection[Any]) -> None:
    """And no list is gone through once for each of another: planned on empty tables, that would be cheap."""
    await planned.execute(*_execute("claim_tasks"))
    tasks = (await running(planned))[:100]
    parts = await plan_of(planned, "end_jobs", **ends_of(tasks))
    assert indexes_of("jobs", parts) == {"jobs_pkey"}
    assert max(part["Actual Rows"] * part["Actual Loops"] for part in parts) <= 3 * len(tasks)
    rows = await planned.execute(b"select id from cograil.jobs where status = 'completed' and seq = 4")
    assert {job_id for (job_id,) in await rows.fetchall()} == {task[2] for task in tasks}
    rows = await planned.execute(b"select count(*) from cograil.nodes where status = 'completed'")
    assert await rows.fetchone() == (100,)
