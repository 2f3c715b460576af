"""cograil under measurement: one orchestrator process, one worker process, started as users start them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from bench.figures import percentiles
from cograil.definitions import read_workflow
from cograil.settings import DatabaseSettings
from cograil.store.database import Database, Transaction
from cograil.store.listener import Listener
from cograil.store.statements import Statement
from cograil.store.write_batch import DONE_CHANNEL
from cograil.verbs.advance import EngineContext
from cograil.verbs.publish import publish
from cograil.verbs.submit import Submission, submit

BULK = 1000
SINGLE = """
workflow_id: single
nodes:
  greet: {handler: hello_world, params: {name: "{{ inputs.name }}"}}
"""
CHAIN = "workflow_id: chain\nnodes:\n" + "\n".join(
    f"  n{i}: {{handler: hello_world, params: {{name: "
    + ('"{{ inputs.name }}"' if i == 0 else f'"{{{{ nodes.n{i - 1}.output.message }}}}"')
    + "}"
    + (f", next: n{i + 1}" if i < 9 else "")
    + "}"
    for i in range(10)
)
FAN = """
workflow_id: fan
nodes:
  split:
    type: fan_out
    source: "{{ inputs.numbers }}"
    task: {handler: hello_world, params: {name: "{{ item }}"}}
    next: gather
  gather: {type: fan_in}
"""


def query(text: str) -> Statement:
    return Statement("bench", text, text)


RESULT = query("select status, result from cograil.jobs where id = %(id)s")
UNFINISHED = query("select count(*) from cograil.jobs where finished_at is null")
VACUUM = query("vacuum (analyze) cograil.jobs, cograil.nodes, cograil.events, cograil.tasks, cograil.inbox")
ALIVE = query("select count(*) from cograil.processes where kind = %(kind)s and state = 'alive'")


@contextlib.contextmanager
def process(
    kind: str, conninfo: str, *arguments: str, module: str = "cograil"
) -> Iterator[subprocess.Popen[bytes]]:
    """An orchestrator or a worker, as `cograil orchestrator` starts it."""
    environment = os.environ | {"COGRAIL_DATABASE_URL": conninfo, "COGRAIL_LOG__LEVEL": "warning"}
    command = [sys.executable, "-m", module, kind, *arguments]
    child = subprocess.Popen(command, env=environment)
    try:
        yield child
    finally:
        child.terminate()
        child.wait()


class Bench:
    """A database with the workflows of the benchmark in it."""

    def __init__(self, db: Database, conninfo: str) -> None:
        self.db = db
        self.conninfo = conninfo
        self.engine_context = EngineContext()

    async def publish(self, *texts: str) -> None:
        async with self.db.transaction("publish") as tx:
            for text in texts:
                await publish(tx, read_workflow(text), text)

    async def submit(self, workflow: str, inputs: Sequence[dict[str, Any]]) -> list[str]:
        """Submit in bulk."""
        ids: list[str] = []
        for start in range(0, len(inputs), BULK):
            chunk = [Submission(workflow, job_input) for job_input in inputs[start : start + BULK]]
            async with self.db.transaction("submit") as tx:
                ids += await submit(tx, self.engine_context, chunk)
        return ids

    async def until(self, statement: Statement, wanted: Any, **params: Any) -> None:
        while True:
            async with self.db.single("bench") as tx:
                if (await tx.fetch(statement, **params))[0][0] == wanted:
                    return
            await asyncio.sleep(0.02)

    async def none(self, statement: Statement) -> None:
        """Figures of work that failed are no figures."""
        async with self.db.single("bench") as tx:
            count = (await tx.fetch(statement))[0][0]
        assert count == 0, f"{count} of them did not complete"

    async def drain(self, workflow: str, jobs: int, *arguments: str, beside: int = 0) -> tuple[float, float]:
        """(seconds to submit this many in bulk, seconds from the worker's start until all are done).

        The worker is started with these arguments. `beside` is the number of other jobs that are under way.
        """
        began = time.perf_counter()
        ids = await self.submit(workflow, [{"name": f"n{i}"} for i in range(jobs)])
        submitting = time.perf_counter() - began
        async with self.listening(ids):
            with process("worker", self.conninfo, *arguments):
                await self.until(ALIVE, 1, kind="worker")
                began = time.perf_counter()
                while len(self.ended) < jobs:
                    self.done.clear()
                    await self.done.wait()
                seconds = time.perf_counter() - began
        await self.until(UNFINISHED, beside)
        return submitting, seconds

    async def submit_singly(self, jobs: int) -> float:
        """Seconds for this many submits, one after another, each in its own transaction."""
        began = time.perf_counter()
        for number in range(jobs):
            async with self.db.transaction("submit") as tx:
                await submit(tx, self.engine_context, [Submission("single", {"name": f"s{number}"})])
        return time.perf_counter() - began

    async def latency(self, rounds: int) -> dict[str, float]:
        """From submit to having read the result, one job at a time on an idle system."""
        return percentiles([await self.time_job("single", {"name": "x"}) for _ in range(rounds)])

    async def time_job(self, workflow: str, job_input: dict[str, Any]) -> float:
        """Seconds from submit to the result of one job."""
        began = time.perf_counter()
        self.done.clear()
        async with self.db.transaction("submit") as tx:
            job_id = (await submit(tx, self.engine_context, [Submission(workflow, job_input)]))[0]
        while job_id not in self.ended:
            self.done.clear()
            if job_id not in self.ended:
                await self.done.wait()
        async with self.db.single("bench") as tx:
            select = query("select status, result from cograil.jobs where id = %(id)s")
            ((status, result),) = await tx.fetch(select, id=job_id)
        assert status == "completed", (status, result)
        return time.perf_counter() - began

    @contextlib.asynccontextmanager
    async def listening(self, ids: Sequence[str] = ()) -> AsyncIterator[None]:
        """Hear which jobs have ended, of these or of all."""
        self.done, self.ended = asyncio.Event(), set[str]()
        mine = frozenset(ids)

        def hear(_: str, payload: str) -> None:
            if payload:
                ended = payload.split(",")
                self.ended.update(mine.intersection(ended) if mine else ended)
                self.done.set()

        listener = Listener(self.db.direct, [DONE_CHANNEL], hear)
        await listener.start()
        try:
            yield
        finally:
            await listener.stop()


@contextlib.asynccontextmanager
async def open_bench(conninfo: str) -> AsyncIterator[Bench]:
    async with Database(conninfo, DatabaseSettings(), application="bench") as db:
        bench = Bench(db, conninfo)
        await bench.publish(SINGLE, CHAIN, FAN)
        yield bench


HISTORY = query("""
with one as (select * from cograil.jobs where workflow_id = 'single' and status = 'completed' limit 1),
ids as (
  select (lpad(to_hex((extract(epoch from now()) * 1000)::bigint - 86400000 + g), 12, '0')
          || '70008000' || lpad(to_hex(g), 12, '0'))::uuid as id
  from generate_series(%(first)s::bigint, %(last)s::bigint) g),
j as (
  insert into cograil.jobs (id, definition_id, workflow_id, workflow_version, status, seq, input, result,
    created_at, started_at, finished_at)
  select ids.id, definition_id, workflow_id, workflow_version, status, seq, input, result,
    created_at, started_at, finished_at
  from one, ids),
n as (
  insert into cograil.nodes (job_id, node_id, status, attempt, input, output, started_at, finished_at)
  select ids.id, n.node_id, n.status, n.attempt, n.input, n.output, n.started_at, n.finished_at
  from cograil.nodes n join one on one.id = n.job_id, ids)
insert into cograil.events (job_id, seq, type, node_id, task_id, data, at)
select ids.id, e.seq, e.type, e.node_id, e.task_id, e.data, e.at
from cograil.events e join one on one.id = e.job_id, ids""")


async def history(tx: Transaction, jobs: int, after: int = 0) -> None:
    """Finished jobs in the tables, made by multiplying one that really ran."""
    await tx.execute(HISTORY, first=after + 1, last=after + jobs)
