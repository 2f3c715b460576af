"""What a forked process becomes: an orchestrator, a worker, or a client with one thing to do.

The first two run the very functions behind `cograil orchestrator` and `cograil worker`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import uvloop  # noqa: F401  imported before the fork, for all
from tests.torture import deeds, mutants

from cograil import faults
from cograil.definitions import read_workflow
from cograil.errors import VersionTaken
from cograil.model.workflow import Workflow
from cograil.orchestrator import loop as orchestrator_loop  # noqa: F401
from cograil.processes import parts
from cograil.processes.connecting import decider_of
from cograil.processes.running import run_async
from cograil.settings import Settings
from cograil.store.database import Database, Transaction
from cograil.store.watching import resolve_job
from cograil.verbs.advance import Decider
from cograil.verbs.cancel import cancel
from cograil.verbs.publish import keep_draft, publish
from cograil.verbs.retry import retry
from cograil.verbs.submit import Submission, submit

Order = dict[str, Any]
PR_SET_PDEATHSIG = 1
CHUNK = 2  # children made in one pass, so that a fan-out of five takes three


def become(order: Order) -> None:
    """Never returns: this process ends here, one way or the other."""
    code = 1
    try:
        _settle_in(order)
        ROLES[order["role"]](order)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _settle_in(order: Order) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    deeds.outside.dsn = order["dsn"]
    deeds.outside.waits_at_gates = order.get("waits_at_gates", False)
    parts.decider_of = decider_with_small_chunks  # type: ignore[attr-defined]
    if order.get("mutant"):
        mutants.MUTANTS[order["mutant"]].switch_on()
    faults.modes["pgkill"] = lambda _: _kill_own_backends(order)
    faults.record(order.get("log"))
    faults.arm(order.get("fault"))
    _stumble_at(Counter(dict(_counted(point) for point in order.get("stumbles", ()))))


def _counted(point: str) -> tuple[str, int]:
    name, count = point.rsplit(":", 1)
    return name, int(count)


def _stumble_at(left: Counter[str]) -> None:
    """At these visits of these points the connection seems to break, beside the fault that is armed."""
    pass_point = faults.point

    def stumble(name: str) -> None:
        pass_point(name)
        left[name] -= 1
        if left[name] == 0:
            raise faults.FaultRaised(f"stumbled at {name}")

    faults.point = stumble


def decider_with_small_chunks(settings: Settings) -> Decider:
    """As in production, but fan-outs of a few children take several passes."""
    decider = decider_of(settings)
    return Decider(bounds=replace(decider.bounds, chunk=CHUNK))


def settings_of(order: Order) -> Settings:
    """Leases that nobody loses by a slow machine; pulses and scans several times a job."""
    idle = order.get("idle_seconds", 3.0)
    dsn = psycopg.conninfo.make_conninfo(order["dsn"], application_name=_session_name(os.getpid()))
    return Settings(
        database={"url": dsn, "allow_unsafe": True, "idle_in_transaction_seconds": idle, "pool_size": 3},
        lease={"seconds": 20.0, "pulse_seconds": 0.1, "scan_seconds": 0.1},
        worker={"grace_seconds": 0.05, "concurrency": 10, "threads": 2},
        log={"level": "info", "format": "json"},
    )


def _session_name(pid: int) -> str:
    return f"victim {pid}"


def _kill_own_backends(order: Order) -> None:
    with psycopg.connect(order["dsn"], autocommit=True, application_name="torture pgkill") as admin:
        query = "select pg_terminate_backend(pid, 1000) from pg_stat_activity where application_name = %s"
        admin.execute(query, [_session_name(os.getpid())])


def _orchestrate(order: Order) -> None:
    parts.orchestrator(settings_of(order))


def _work(order: Order) -> None:
    parts.worker(settings_of(order))


def _act(order: Order) -> None:
    """A client: do one thing in one transaction, and write the answer down once it is committed."""
    answer = run_async(_ask(order))
    Path(order["answer"]).write_text(json.dumps(answer))


async def _ask(order: Order) -> str:
    settings = settings_of(order)
    act: str = order["act"]
    if act in READERS:  # before the transaction begins, as everybody does
        order["workflow"] = read_workflow(order["subject"])
    name = TRANSACTIONS.get(act, act)
    try:
        async with Database(order["dsn"], settings.database) as db, db.transaction(name) as tx:
            return await ASKS[act](tx, decider_with_small_chunks(settings), order)
    except VersionTaken:
        return "version taken"


async def _submit(tx: Transaction, decider: Decider, order: Order) -> str:
    return (await submit(tx, decider, [Submission(order["subject"], correlation_id=order["mark"])]))[0]


async def _submit_draft(tx: Transaction, decider: Decider, order: Order) -> str:
    """As `cograil run FILE` does."""
    workflow: Workflow = order["workflow"]
    draft = await keep_draft(tx, workflow, order["subject"])
    words = {"definition_id": draft.definition_id, "correlation_id": order["mark"]}
    return (await submit(tx, decider, [Submission(workflow.workflow_id, **words)]))[0]


async def _publish(tx: Transaction, decider: Decider, order: Order) -> str:
    return (await publish(tx, order["workflow"], order["subject"])).digest


async def _cancel(tx: Transaction, decider: Decider, order: Order) -> str:
    return await cancel(tx, decider, await resolve_job(tx, order["subject"]))


async def _retry(tx: Transaction, decider: Decider, order: Order) -> str:
    return await retry(tx, decider, await resolve_job(tx, order["subject"]), order.get("node"), by="client")


TRANSACTIONS = {"draft": "submit"}
READERS = ("draft", "publish")
ASKS = {"submit": _submit, "draft": _submit_draft, "publish": _publish, "cancel": _cancel, "retry": _retry}
ROLES = {"orchestrator": _orchestrate, "worker": _work, "client": _act}
