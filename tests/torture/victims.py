"""What a forked process becomes: an orchestrator, worker, server or relay, or a client with one thing to do.

All but the last run the very functions behind `cograil orchestrator` and its like.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import uvloop  # noqa: F401  imported before the fork, for all
from tests.torture import effect_handlers, mutants
from tests.torture.app import App

from cograil import fault_injection
from cograil.apps.containers.runtime.container_handler import make_container_tools
from cograil.apps.containers.runtime.sandbox import Sandbox
from cograil.apps.containers.settings import ContainerSettings
from cograil.apps.containers.sweeper import Sweeper
from cograil.cli.instance_client import audit
from cograil.definitions import read_workflow
from cograil.delivery import relay
from cograil.egress import PublicOnly
from cograil.errors import VersionTaken
from cograil.http.server.port import bind
from cograil.model.job import Signalled
from cograil.model.workflow import Workflow
from cograil.orchestrator import orchestrator_loop, retention_sweep  # noqa: F401  imported before the fork
from cograil.processes import api_server, standalone
from cograil.processes.instance_discovery import make_engine_context
from cograil.processes.lifecycle import run_async
from cograil.settings import Settings
from cograil.store.api_keys import list_keys
from cograil.store.database import Database, Transaction
from cograil.store.job_progress_queries import resolve_job
from cograil.verbs import bulk, key_management, pause
from cograil.verbs.advance import EngineContext
from cograil.verbs.cancel import cancel
from cograil.verbs.publish import keep_draft, publish
from cograil.verbs.retry import retry
from cograil.verbs.schedules import fire_due
from cograil.verbs.signal import signal as signal_verb
from cograil.verbs.submit import Submission, submit

Order = dict[str, Any]
PR_SET_PDEATHSIG = 1
CHUNK = 2  # children made in one pass, and jobs taken in one step, so that it takes more than one of them
SWEEP_SECONDS = 0.05
PRUNE_SECONDS = 0.1
HERE = {"allow_networks": ("127.0.0.0/8",)}  # what is told, is told to this machine


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
    effect_handlers.outside.dsn = order["dsn"]
    effect_handlers.outside.waits_at_gates = order.get("waits_at_gates", False)
    standalone.make_engine_context = decider_with_small_chunks  # type: ignore[attr-defined]
    bulk.step_bulk.__kwdefaults__ = {"limit": CHUNK}
    if order.get("sweeps"):
        retention_sweep.FIRST_SECONDS = retention_sweep.AGAIN_SECONDS = retention_sweep.EVERY_SECONDS = (
            SWEEP_SECONDS
        )
    if order.get("mutant"):
        mutants.MUTANTS[order["mutant"]].switch_on()
    fault_injection.modes["pgkill"] = lambda _: _kill_own_backends(order)
    fault_injection.record(order.get("log"))
    fault_injection.arm(order.get("fault"))
    _stumble_at(Counter(dict(_counted(point) for point in order.get("stumbles", ()))))


def _counted(point: str) -> tuple[str, int]:
    name, count = point.rsplit(":", 1)
    return name, int(count)


def _stumble_at(left: Counter[str]) -> None:
    """At these visits of these points the connection seems to break, beside the fault that is armed."""
    pass_point = fault_injection.point

    def stumble(name: str) -> None:
        pass_point(name)
        left[name] -= 1
        if left[name] == 0:
            raise fault_injection.FaultRaised(f"stumbled at {name}")

    fault_injection.point = stumble


def decider_with_small_chunks(settings: Settings) -> EngineContext:
    """As in production, but fan-outs of a few children take several passes."""
    engine_context = make_engine_context(settings)
    return replace(engine_context, bounds=replace(engine_context.bounds, chunk=CHUNK))


# What runs beside a worker now and then has tests of its own. Jobs of containers wait: no engine is struck here.
NO_APPS: dict[str, Any] = {"apps": ("containers",), "containers": {"runtime": "none"}}


def settings_of(order: Order) -> Settings:
    """Leases that nobody loses by a slow machine; heartbeats and scans several times a job."""
    idle = order.get("idle_seconds", 3.0)
    dsn = psycopg.conninfo.make_conninfo(order["dsn"], application_name=_session_name(os.getpid()))
    return Settings(
        database={"url": dsn, "allow_unsafe": True, "idle_in_transaction_seconds": idle, "pool_size": 3},
        lease={"seconds": 20.0, "heartbeat_seconds": 0.1, "scan_seconds": 0.1},
        worker={"grace_seconds": 0.05, "concurrency": 10, "threads": 2},
        log={"level": "info", "format": "json"},
        outbound=HERE,
        relay={"pace": 0.01, "timeout_seconds": 10.0},  # a receiver on a slow machine has not failed
        **NO_APPS | order.get("settings", {}),
    )


def _session_name(pid: int) -> str:
    return f"victim {pid}"


def _kill_own_backends(order: Order) -> None:
    with psycopg.connect(order["dsn"], autocommit=True, application_name="torture pgkill") as admin:
        query = "select pg_terminate_backend(pid, 1000) from pg_stat_activity where application_name = %s"
        admin.execute(query, [_session_name(os.getpid())])


def _orchestrate(order: Order) -> None:
    standalone.orchestrator(settings_of(order))


def _work(order: Order) -> None:
    standalone.worker(settings_of(order))


def _serve(order: Order) -> None:
    """`cograil server` on any port, which is written down."""

    def bind_anywhere(host: str, port: int) -> socket.socket:
        listener = bind(host, 0)
        path = Path(order["answer"])
        path.with_suffix(".new").write_text(str(listener.getsockname()[1]))
        path.with_suffix(".new").rename(path)
        return listener

    api_server.bind = bind_anywhere  # type: ignore[attr-defined]
    api_server.make_engine_context = decider_with_small_chunks  # type: ignore[attr-defined]
    api_server.server(settings_of(order))


def _relay(order: Order) -> None:
    relay.PRUNE_SECONDS = PRUNE_SECONDS
    standalone.relay(settings_of(order))


def _act(order: Order) -> None:
    """A client: do one thing in one transaction, and write the answer down once it is committed."""
    answer = run_async(_ask(order))
    Path(order["answer"]).write_text(json.dumps(answer))


async def _ask(order: Order) -> str | list[str]:
    settings = settings_of(order)
    act: str = order["act"]
    if act in READERS:  # before the transaction begins, as everybody does
        order["workflow"] = read_workflow(order["subject"])
    name, engine_context = TRANSACTIONS.get(act, act), decider_with_small_chunks(settings)
    try:
        async with Database(str(settings.database.url), settings.database) as db:
            if act == "app":  # which has transactions of its own
                return await App(db, engine_context, order["subject"], "victim").run()
            if act == "sweep":  # the same
                return await sweep(db, settings, Path(order["subject"]))
            async with db.transaction(name) as tx:
                return await ASKS[act](tx, engine_context, order)
    except VersionTaken:
        return "version taken"


async def sweep(db: Database, settings: Settings, data_dir: Path) -> str:
    """As beside a worker that runs sandboxes, of which there are none yet."""
    guard = PublicOnly(settings.outbound)
    tools = make_container_tools(Sandbox(data_dir), settings.section(ContainerSettings), data_dir, guard)
    await Sweeper(db, tools, settings.section(ContainerSettings)).sweep()
    return "swept"


async def _submit(tx: Transaction, engine_context: EngineContext, order: Order) -> str:
    return (await submit(tx, engine_context, [Submission(order["subject"], correlation_id=order["mark"])]))[0]


async def _submit_draft(tx: Transaction, engine_context: EngineContext, order: Order) -> str:
    """As `cograil run FILE` does."""
    workflow: Workflow = order["workflow"]
    draft = await keep_draft(tx, workflow, order["subject"])
    words = {"definition_id": draft.definition_id, "correlation_id": order["mark"]}
    return (await submit(tx, engine_context, [Submission(workflow.workflow_id, **words)]))[0]


async def _publish(tx: Transaction, engine_context: EngineContext, order: Order) -> str:
    return (await publish(tx, order["workflow"], order["subject"])).digest


async def _cancel(tx: Transaction, engine_context: EngineContext, order: Order) -> str:
    return await cancel(tx, engine_context, await resolve_job(tx, order["subject"]))


async def _retry(tx: Transaction, engine_context: EngineContext, order: Order) -> str:
    return await retry(
        tx, engine_context, await resolve_job(tx, order["subject"]), order.get("node"), by="client"
    )


async def _pause(tx: Transaction, engine_context: EngineContext, order: Order) -> str:
    name: str = order["subject"]
    if order["kind"] == "job":
        await pause.pause_job(tx, await resolve_job(tx, name), by="client")
    elif order["kind"] == "queue":
        await pause.pause_queue(tx, name, by="client")
    else:
        await pause.pause_workflow(tx, name, by="client")
    return "paused"


async def _resume(tx: Transaction, engine_context: EngineContext, order: Order) -> str:
    name: str = order["subject"]
    if order["kind"] == "job":
        await pause.resume_job(tx, await resolve_job(tx, name))
    elif order["kind"] == "queue":
        await pause.resume_queue(tx, name)
    else:
        await pause.resume_workflow(tx, name)
    return "resumed"


async def _signal(tx: Transaction, engine_context: EngineContext, order: Order) -> str:
    answer = Signalled(order["decision"], "ask", by="client")
    return (await signal_verb(tx, engine_context, await resolve_job(tx, order["subject"]), answer)).decision


async def _make_key(tx: Transaction, engine_context: EngineContext, order: Order) -> str:
    return (await key_management.create_key(tx, role="viewer", name=order["subject"])).key


async def _revoke_key(tx: Transaction, engine_context: EngineContext, order: Order) -> str:
    """As one does who looks for its id by its name."""
    (key_id,) = [key["key_id"] for key in await list_keys(tx, None) if key["name"] == order["subject"]]
    await key_management.revoke_key(tx, key_id)
    return "revoked"


async def _fire(tx: Transaction, engine_context: EngineContext, order: Order) -> str:
    """As the clock does."""
    return str((await fire_due(tx, engine_context)).submitted)


async def _begin_bulk(tx: Transaction, engine_context: EngineContext, order: Order) -> str:
    """As `cograil bulk` does."""
    wanted = bulk.JobFilter(correlation_id=order["subject"])
    job = await bulk.begin_bulk(tx, engine_context, order["verb"], wanted, by="client")
    await audit(tx, f"bulk {order['verb']}", job)
    return job


TRANSACTIONS = {"draft": "submit", "make_key": "keys", "revoke_key": "keys"}
READERS = ("draft", "publish")
ASKS = {
    "submit": _submit,
    "draft": _submit_draft,
    "publish": _publish,
    "cancel": _cancel,
    "retry": _retry,
    "pause": _pause,
    "resume": _resume,
    "signal": _signal,
    "bulk": _begin_bulk,
    "fire": _fire,
    "make_key": _make_key,
    "revoke_key": _revoke_key,
}
ROLES = {
    "orchestrator": _orchestrate,
    "worker": _work,
    "server": _serve,
    "relay": _relay,
    "client": _act,
}
