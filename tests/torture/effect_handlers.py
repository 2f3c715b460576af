"""Handlers that leave a trace outside the engine: a row for each execution, on a connection of their own.

The connection and the settings of a process are set by `victims.py` before anything runs.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg

from cograil.runners.context import Context, Fail, Retry
from cograil.runners.handler_registry import handler

SCHEMA = """
create schema torture;
create table torture.effects (id bigserial primary key, job uuid, node text, attempt int, pid int, seen int,
                              at timestamptz not null default clock_timestamp());
create index on torture.effects (job);
create table torture.acks (id bigserial primary key, job uuid, node text, attempt int, number int,
                           effects int not null);
create index on torture.acks (job);
create table torture.gates (job uuid primary key);
create table torture.mended (correlation_id text primary key);
create table torture.shut (mark text primary key);
create table torture.pauses (job uuid, before int, after int);
create table torture.spans (id bigserial primary key, job uuid, node text, attempt int, pid int,
                            began timestamptz not null default clock_timestamp(), ended timestamptz);
create table torture.runs (id bigserial primary key, job uuid, node text, attempt int, step text);
create table torture.bookings (job uuid, node text, attempt int);
create table torture.old (job uuid, old uuid, is_kept boolean);
create table torture.ledger (mark text, holder text, fence bigint);

-- A holder that releases too much is seen when it commits, however soon the others have gone then.
create table torture.too_many (limit_key text, job uuid);
create function torture.count_tasks() returns trigger language plpgsql as $$ begin
  insert into torture.too_many select new.limit_key, new.job_id where new.limit_concurrency < (
    select count(*) from cograil.tasks where limit_key = new.limit_key and state <> 'held');
  return null;
end $$;
create constraint trigger count_tasks after update on cograil.tasks deferrable initially deferred
  for each row when (old.state = 'held') execute function torture.count_tasks();
create function torture.count_jobs() returns trigger language plpgsql as $$ begin
  insert into torture.too_many select new.limit_key, new.job_id where new.concurrency < (
    select count(*) from cograil.admissions a join cograil.jobs j on j.id = a.job_id
    where a.limit_key = new.limit_key and a.admitted_at is not null and j.finished_at is null);
  return null;
end $$;
create constraint trigger count_jobs after update on cograil.admissions deferrable initially deferred
  for each row execute function torture.count_jobs()
"""
STEPS = ("one", "two", "three")
SPAN_SECONDS = 0.1


@dataclass
class Outside:
    """Where this process leaves its traces, and whether its handlers wait at closed gates."""

    dsn: str = ""
    waits_at_gates: bool = False


outside = Outside()


@cache
def _connection() -> psycopg.Connection[Any]:
    return psycopg.connect(outside.dsn, autocommit=True, application_name="torture effects")


def _ask(query: str, *params: Any) -> Any:
    cursor = _connection().execute(query.encode(), params)
    first = cursor.fetchone() if cursor.description else None
    return first[0] if first else None


def _note(ctx: Context, seen: int | None = None) -> dict[str, int]:
    """Write down that this execution happens; what every handler returns."""
    query = (
        "insert into torture.effects (job, node, attempt, pid, seen) values (%s, %s, %s, %s, %s) returning id"
    )
    values = (ctx.job_id, ctx.node_id, ctx.attempt, os.getpid(), seen)
    return {"execution": _ask(query, *values), "attempt": ctx.attempt}


async def _gate(ctx: Context) -> None:
    """Wait while the gate of this job is closed, if this process heeds gates."""
    query = "select 1 from torture.gates where job = %s"
    while outside.waits_at_gates and _ask(query, ctx.job_id):  # noqa: ASYNC110  the gate is a row
        await asyncio.sleep(0.01)


@handler("step")
async def step(ctx: Context, seconds: float = 0.0, after: Any = None) -> dict[str, int]:
    """Happen once; `after` is read and forgotten."""
    done = _note(ctx)
    await _gate(ctx)
    if seconds:
        await asyncio.sleep(seconds)
    return done


@handler("thread_step")
def thread_step(ctx: Context) -> dict[str, int]:
    """The same in a thread, with progress and a line in the log."""
    done = _note(ctx)
    ctx.progress(1, 1, "done")
    ctx.log.info("done")
    return done


@handler("flaky_step")
async def flaky_step(ctx: Context, fails: bool = True) -> dict[str, int]:
    """Fail the first time, if it `fails` at all."""
    done = _note(ctx)
    await _gate(ctx)
    if fails and ctx.attempt == 1:
        raise Retry("the first attempt fails")
    return done


@handler("counting")
async def counting(ctx: Context) -> dict[str, int]:
    """Count to three with a checkpoint after each number; the first attempt fails on the way."""
    seen: int = ctx.checkpoint_data or 0
    done = _note(ctx, seen)
    for number in range(seen + 1, 4):
        await ctx.checkpoint(number)
        _ask(
            "insert into torture.acks (job, node, attempt, number, effects)"
            " select %s, %s, %s, %s, max(attempt) from torture.effects where job = %s and node = %s",
            *(ctx.job_id, ctx.node_id, ctx.attempt, number, ctx.job_id, ctx.node_id),
        )
        ctx.progress(number, 3)
        await _gate(ctx)
        if ctx.attempt == 1 and number == 2:
            raise Retry("the first attempt fails after two")
    return done | {"counted": 3}


@handler("telling")
async def telling(ctx: Context) -> dict[str, int]:
    """Tell each number up to three, each with a checkpoint; the first attempt fails on the way."""
    seen: int = ctx.checkpoint_data or 0
    done = _note(ctx)
    for number in range(seen + 1, 4):
        await _gate(ctx)
        await ctx.tell("torture.number", {"number": number}, checkpoint=number)
        if ctx.attempt == 1 and number == 2:
            raise Retry("the first attempt fails after two")
    return done


@handler("late_once")
async def late_once(ctx: Context) -> dict[str, int]:
    """The first attempt goes on until its time is over."""
    done = _note(ctx)
    if ctx.attempt == 1:
        await asyncio.Event().wait()
    return done


@handler("until_told")
async def until_told(ctx: Context, only_first: bool = False) -> dict[str, int]:
    """Go on until the gate of this job opens or it is cancelled; with `only_first`, only the first time."""
    done = _note(ctx)
    times = _ask("select count(*) from torture.effects where job = %s and node = %s", ctx.job_id, ctx.node_id)
    while not (only_first and times > 1) and _ask("select 1 from torture.gates where job = %s", ctx.job_id):
        ctx.raise_if_cancelled()
        await asyncio.sleep(0.01)
    return done


@handler("fragile")
async def fragile(ctx: Context, item: int) -> dict[str, int]:
    """Item 1 fails for good until somebody mended it."""
    done = _note(ctx)
    await _gate(ctx)
    mended = _ask("select 1 from torture.mended where correlation_id = %s", ctx.correlation_id)
    if item == 1 and not mended:
        raise Fail("broken")
    return done


@handler("until_let")
async def until_let(ctx: Context) -> dict[str, int]:
    """Go on until the gate of this job's family opens or it is cancelled."""
    done = _note(ctx)
    while _ask("select 1 from torture.shut where mark = %s", ctx.correlation_id):
        ctx.raise_if_cancelled()
        await asyncio.sleep(0.01)
    return done


@handler("within")
async def within(ctx: Context) -> dict[str, int]:
    """Take a while, and say from when to when."""
    done = _note(ctx)
    query = "insert into torture.spans (job, node, attempt, pid) values (%s, %s, %s, %s) returning id"
    span = _ask(query, ctx.job_id, ctx.node_id, ctx.attempt, os.getpid())
    await asyncio.sleep(SPAN_SECONDS)
    _ask("update torture.spans set ended = clock_timestamp() where id = %s", span)
    return done


@handler("lonely")
async def lonely(ctx: Context) -> dict[str, int]:
    """The same under a name of its own."""
    return await within(ctx)


@handler("stepping")
async def stepping(ctx: Context) -> dict[str, int]:
    """Three steps, each of which leaves a row whenever it is done; the first attempt fails after two."""
    done = _note(ctx)
    query = "insert into torture.runs (job, node, attempt, step) values (%s, %s, %s, %s) returning id"
    kept = {}
    for name in STEPS:
        await _gate(ctx)
        kept[name] = await ctx.step(name, _ask, query, ctx.job_id, ctx.node_id, ctx.attempt, name)
        if ctx.attempt == 1 and name == STEPS[1]:
            raise Retry("the first attempt fails after two")
    return done | kept


BOOK = b"insert into torture.bookings values (%s, %s, %s)"


@handler("booking")
async def booking(ctx: Context) -> dict[str, int]:
    """Leave a row that is there if and only if the result of this attempt is."""
    done = _note(ctx)
    await _gate(ctx)
    async with ctx.transaction() as tx:
        await tx.execute(BOOK, (ctx.job_id, ctx.node_id, ctx.attempt))
        return done


@handler("booking_elsewhere")
async def booking_elsewhere(ctx: Context) -> dict[str, int]:
    """The same on a connection that the handler brings; who loses all its connections loses this as well."""
    done = _note(ctx)
    await _gate(ctx)
    name = f"victim {os.getpid()}"
    connect = psycopg.AsyncConnection.connect
    async with (
        await connect(outside.dsn, autocommit=True, application_name=name) as connection,
        ctx.transaction(connection) as tx,
    ):
        await tx.execute(BOOK, (ctx.job_id, ctx.node_id, ctx.attempt))
        await tx.complete(done)
    return done
