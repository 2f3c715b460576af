"""The worker loop: claim tasks for free slots, run them, report them, and drain on shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import structlog

from cograil import logs, metrics, tracing
from cograil.errors import DatabaseUnavailable
from cograil.model.outcome import Completed, Failed, Recorded, Released, WorkItem
from cograil.model.process_facts import process_facts
from cograil.runners import handler_output
from cograil.runners import python_runner as runner
from cograil.runners.handler_registry import Registry
from cograil.settings import LeaseSettings, Settings
from cograil.store.database import Database
from cograil.store.handler_transactions import HandlerConnections
from cograil.store.listener import PING, RECONNECTED, Listener
from cograil.store.write_batch import ALONE_CHANNEL, REVOKED_CHANNEL, TASKS_CHANNEL
from cograil.verbs import tasks
from cograil.verbs.tasks import Report, Slots, WorkerHeartbeat
from cograil.worker.context_channel import ChannelServices, WorkerChannel
from cograil.worker.heartbeat import HeartbeatThread, Identity
from cograil.worker.held_attempt import Executors, HeldAttempt, start, start_traced
from cograil.worker.loop_watchdog import LoopWatchdog, WatchedWorker
from cograil.worker.machine_paths import hide_paths
from cograil.worker.progress_writer import ProgressWriter
from cograil.worker.reporter import Reporter
from cograil.worker.step_writer import StepWriter
from cograil.worker.task_claimer import TaskClaimer
from cograil.worker.worker_slots import count_free_slots, make_process_pool, read_limits, took_all_slots

log = structlog.get_logger("worker")
RETRY_SECONDS = 0.5
FALLBACK_POLL_SECONDS = 1.0
LOOK_AGAIN_SECONDS = 0.1
UNREPORTED = 6  # ended attempts that may wait for their report, as a multiple of the concurrency
SILENT_HEARTBEATS = 2  # a ping may arrive before or after the answer to its heartbeat


class Worker:
    """One worker: holds a lease, runs attempts in its slots, and reports them."""

    def __init__(
        self,
        db: Database,
        settings: Settings,
        registry: Registry,
        name: str,
        queues: Sequence[str] | None = None,
    ) -> None:
        self.db = db
        self.settings = settings
        self.registry = registry
        self.name = name
        self.queues = list(queues) if queues else None
        self.identity: Identity | None = None
        self.is_ready = False
        self._held: dict[int, HeldAttempt] = {}
        self._wake, self._stop = asyncio.Event(), asyncio.Event()
        self._claimer = TaskClaimer(db)
        self._silent_heartbeats = 0
        self._unknown_tasks: set[int] = set()  # named by the last heartbeat, but not held here
        self._may_have_more = True  # the last claim may have left due tasks
        self._loop = asyncio.get_running_loop()
        self._limits = read_limits(settings)
        self._executor = ThreadPoolExecutor(settings.worker.threads, thread_name_prefix="handler")
        self._processes = make_process_pool(registry, settings, self._limits)
        self._progress = ProgressWriter(db)
        connections = HandlerConnections(db, settings.database.pool_size, settings.database.handler_url)
        self._services = ChannelServices(db, self._progress, StepWriter(db), connections)
        self._reporter = Reporter(db, self._progress, self._forget)
        channels = [TASKS_CHANNEL, ALONE_CHANNEL, REVOKED_CHANNEL, PING]
        self._listener = Listener(db.direct, channels, self._on_notify)
        self._heartbeat = HeartbeatThread(
            db.direct or db.conninfo,
            settings.lease if self._listener.can_hear else _with_fast_heartbeat(settings.lease),
            lambda: self._claimer.answered,
            self._info,
            self.registry.names,
            self._on_heartbeat_in_thread,
        )
        self._watchdog = LoopWatchdog(
            WatchedWorker(lambda: self.identity, lambda: list(self._held.values()), self._open_database),
            settings.worker.blocked_seconds,
        )

    # -- lifecycle -----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop claiming. `run` returns after all attempts have ended or were released."""
        self._stop.set()
        self._wake.set()

    async def run(self) -> None:
        """Claim and run tasks until `stop` is called, then drain."""
        await self._listener.start()
        await self._register()
        self._heartbeat.start()
        self._watchdog.start()
        if self._free_slots().process_handlers:
            self._processes.warm_up()
        self.is_ready = True
        try:
            while not self._stop.is_set():
                await self._once()
        finally:
            self.is_ready = False
            await self._drain()

    async def _register(self) -> None:
        """Register a new worker identity with its own lease. Retry until that succeeds or the worker stops."""
        while not self._stop.is_set():
            try:
                async with self.db.single("register") as tx:
                    worker_id = await tasks.register_process(
                        tx,
                        "worker",
                        self.name,
                        self.settings.lease.seconds,
                        queues=self.queues,
                        handlers=sorted(self.registry.names()),
                        info=self._info(),
                    )
                self.identity = self._heartbeat.identity = Identity(worker_id, self.name)
                self._wake.set()
                return
            except (DatabaseUnavailable, psycopg.Error) as error:
                log.warning("cannot register", error=str(error).strip(), worker=self.name)
                await asyncio.sleep(RETRY_SECONDS)

    async def _drain(self) -> None:
        """Wait for running attempts for most of the grace period, then release the rest uncounted."""
        with contextlib.suppress(Exception):
            await self._leave("draining")
        await asyncio.sleep(0)  # attempts that just started get a task that follows them
        grace = self.settings.worker.grace_seconds
        tasks = [attempt.task for attempt in self._held.values() if attempt.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=0.75 * grace)
        rest = [attempt for attempt in self._held.values() if not attempt.is_ended]
        for attempt in rest:
            attempt.ctx.cancel("shutdown")
        if rest:
            await asyncio.wait([a.task for a in rest if a.task is not None], timeout=max(0.5, 0.15 * grace))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reporter.drain(), max(0.5, 0.1 * grace))
        self._progress.stop()
        self._watchdog.stop()
        self._heartbeat.stop()
        await self._listener.stop()
        await self._processes.close()
        await self._services.connections.close()
        with contextlib.suppress(Exception):
            await self._leave("stopped")
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _leave(self, state: str) -> None:
        if self.identity is not None:
            async with self.db.single("leave") as tx:
                await tasks.leave_process(tx, self.identity.worker_id, state)

    def _open_database(self) -> Database:
        """Return a database for another event loop."""
        return Database(self.db.direct or self.db.conninfo, self.settings.database)

    # -- claiming ------------------------------------------------------------------------------------

    async def _once(self) -> None:
        """Claim tasks if slots are free; wait when there is nothing to do."""
        self._wake.clear()
        slots = self._free_slots()
        may_claim = self.identity is not None and not self._waits_until_idle and slots.total > 0
        try:
            items = await self._claim(slots) if may_claim else []
        except (psycopg.Error, DatabaseUnavailable) as error:
            log.warning("claim failed", error=str(error).strip(), worker=self.name)
            await asyncio.sleep(RETRY_SECONDS)
            return
        if items:
            metrics.tasks_claimed.inc(len(items))
            self._start(items)
        taken = [self._held[item.task_id].spec for item in items]
        is_exclusive = self._claimer.runs_exclusively
        self._may_have_more = not may_claim or is_exclusive or took_all_slots(slots, taken)
        if not (items and self._may_have_more):
            await self._wait(is_short=bool(items))

    async def _claim(self, slots: Slots) -> list[WorkItem]:
        assert self.identity is not None
        return await self._claimer.claim(self.identity.worker_id, slots, is_idle=not self._held)

    @property
    def _waits_until_idle(self) -> bool:
        """Whether the worker runs an exclusive task, or finishes its attempts to make room for one."""
        return bool(self._held) and (self._claimer.runs_exclusively or self._claimer.makes_room)

    def _free_slots(self) -> Slots:
        """Count the free slots. An attempt that has ended frees its slot before its report is recorded.

        When too many reports are pending, the database is slow: ended attempts then keep their slots.
        """
        running = [attempt.spec for attempt in self._held.values() if not attempt.is_ended]
        if len(self._held) - len(running) > UNREPORTED * self.settings.worker.concurrency:
            running = [attempt.spec for attempt in self._held.values()]
        return count_free_slots(self.registry, running, self.settings.worker, self.queues)

    async def _wait(self, *, is_short: bool) -> None:
        """Wait for a notification, a free slot, or a heartbeat that reports due tasks.

        After a successful claim the wait is short: another worker may have locked due tasks without claiming
        them.
        """
        timeout = LOOK_AGAIN_SECONDS if is_short else FALLBACK_POLL_SECONDS if self._notify_broken else None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), timeout)

    @property
    def _notify_broken(self) -> bool:
        """Whether several heartbeats passed without the ping that each of them sends."""
        return self._silent_heartbeats > SILENT_HEARTBEATS

    def _on_notify(self, channel: str, payload: str) -> None:
        if channel == PING:
            if self.identity is not None and payload == str(self.identity.worker_id):
                self._silent_heartbeats = 0
        elif channel == ALONE_CHANNEL:
            self._heartbeat.beat_now()  # the answer names the worker that makes room
        elif channel == REVOKED_CHANNEL:
            if self.identity is not None and payload == str(self.identity.worker_id):
                self._heartbeat.beat_now()
        elif channel == RECONNECTED or self.queues is None or set(payload.split(",")) & {"", *self.queues}:
            self._wake.set()

    # -- running -------------------------------------------------------------------------------------

    def _start(self, items: Sequence[WorkItem]) -> None:
        """Start these tasks. Attempts that have not ended after one step of the loop are followed.

        Log lines and output inside a handler belong to its attempt.
        """
        assert self.identity is not None
        channel = WorkerChannel(self._services, self.identity)
        started, now = [], time.monotonic()
        executors = Executors(self._executor, self._limits, self._processes)
        for item in items:
            spec = self.registry.get(item.handler)
            assert spec is not None
            if tracing.is_on():
                workflow = self._claimer.workflows.get(item.job_id)
                attempt = start_traced(item, spec, channel, executors, self._claimer.answered, now, workflow)
            else:
                attempt = start(item, spec, channel, executors, self._claimer.answered, now)
            self._held[item.task_id] = attempt
            started.append(attempt)
        logs.current_attempt.set(None)
        handler_output.attempt.set(None)
        metrics.tasks_held.set(len(self._held))
        self._loop.call_soon(self._end_or_follow, self.identity, started)

    def _end_or_follow(self, identity: Identity, started: Sequence[HeldAttempt]) -> None:
        for attempt in started:
            running = attempt.running
            outcome = running.outcome_if_done() if isinstance(running, runner.Running) else running
            if outcome is None or isinstance(outcome, Released):
                attempt.task = asyncio.create_task(self._follow(identity, attempt))
            else:
                self._end(identity, attempt, outcome)

    async def _follow(self, identity: Identity, attempt: HeldAttempt) -> None:
        """Wait until the attempt ends, then report it. A released or lost attempt is not reported."""
        running = attempt.running
        outcome = await runner.follow(running) if isinstance(running, runner.Running) else running
        if attempt.ctx.abandoned and attempt.spec.kind == "thread":
            self._replace_executor()
        if isinstance(outcome, Released):
            attempt.end(outcome)
            await self._release_attempt(identity, attempt)
        else:
            self._end(identity, attempt, outcome)

    def _end(self, identity: Identity, attempt: HeldAttempt, outcome: Completed | Failed | Recorded) -> None:
        if attempt.spec.app is not None and isinstance(outcome, Failed):
            outcome = hide_paths(outcome, self.settings)
        attempt.end(outcome)
        if isinstance(outcome, Recorded):
            metrics.tasks_reported.labels("completed").inc()
            self._forget([attempt.item.task_id])
        else:
            self._reporter.add(identity, Report(attempt.item, outcome))
            if self._may_have_more:
                self._wake.set()

    def _replace_executor(self) -> None:
        """Use a new thread pool: an abandoned thread must not occupy one of its threads."""
        self._executor.shutdown(wait=False)
        self._executor = ThreadPoolExecutor(self.settings.worker.threads, thread_name_prefix="handler")

    async def _release_attempt(self, identity: Identity, attempt: HeldAttempt) -> None:
        item = attempt.item
        if attempt.ctx.reason == "shutdown":
            with contextlib.suppress(psycopg.Error, DatabaseUnavailable):
                await self._progress.flush(identity, {item.task_id})
            await self._release(identity, {item.task_id: item.fence})
        else:
            log.info("attempt lost", **logs.attempt_fields(item))
        self._forget([item.task_id])

    def _forget(self, ids: Sequence[int]) -> None:
        for task_id in ids:
            self._held.pop(task_id, None)
        metrics.tasks_held.set(len(self._held))
        if self._may_have_more:
            self._wake.set()

    # -- heartbeat -----------------------------------------------------------------------------------

    def _info(self) -> dict[str, Any]:
        load = {"running": len(self._held), "concurrency": self.settings.worker.concurrency}
        return process_facts() | load

    def _on_heartbeat_in_thread(self, identity: Identity, heartbeat: WorkerHeartbeat, epoch: int) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_heartbeat, identity, heartbeat, epoch)

    def _on_heartbeat(self, identity: Identity, heartbeat: WorkerHeartbeat, epoch: int) -> None:
        """Compare the held attempts with the tasks that the database assigns to this worker."""
        if identity is not self.identity:
            return
        self._silent_heartbeats += 1
        if self._notify_broken and self._listener.can_hear:
            log.warning("notifications do not arrive, polling instead", worker=self.name)
        if not heartbeat.is_alive:
            self._lose_lease()
            return
        self._claimer.note_heartbeat(heartbeat)
        if heartbeat.has_ready_tasks or heartbeat.has_alone_tasks or self._notify_broken:
            self._wake.set()
        for task_id, attempt in self._held.items():
            if attempt.claim <= epoch and task_id not in heartbeat.task_ids and not attempt.is_ended:
                attempt.ctx.cancel("lost")
        if epoch == self._claimer.answered and not self._claimer.is_claiming:
            self._release_unknown(identity, heartbeat.fences)

    def _release_unknown(self, identity: Identity, fences: Mapping[int, int]) -> None:
        """Release tasks that the database assigns to this worker but that it does not hold.

        The answer of their claim was lost. A task that was reported while the heartbeat was under way looks
        the same, so a task is released only after two heartbeats have named it.
        """
        unknown = {task_id: fence for task_id, fence in fences.items() if task_id not in self._held}
        lost = {task_id: fence for task_id, fence in unknown.items() if task_id in self._unknown_tasks}
        self._unknown_tasks = unknown.keys() - lost.keys()
        if lost:
            log.warning("releasing tasks of a claim whose answer was lost", tasks=len(lost))
            self._releasing = asyncio.create_task(self._release(identity, lost))

    async def _release(self, identity: Identity, fences: Mapping[int, int]) -> None:
        """Release these tasks. If that fails, the next heartbeat finds them again."""
        with contextlib.suppress(psycopg.Error, DatabaseUnavailable):
            async with self.db.single("release") as tx:
                await tasks.release(tx, identity.worker_id, fences)

    def _lose_lease(self) -> None:
        """Stop all attempts, which other workers may hold by now, and register as a new worker."""
        log.warning("lease lost, registering anew", worker=self.name, tasks=len(self._held))
        self.identity = self._heartbeat.identity = None
        for attempt in self._held.values():
            attempt.ctx.cancel("lost")
        self._registering = asyncio.create_task(self._register())


def _with_fast_heartbeat(lease: LeaseSettings) -> LeaseSettings:
    """Shorten the heartbeat interval of a worker that gets no notifications of revoked tasks."""
    return lease.model_copy(update={"heartbeat_seconds": min(lease.heartbeat_seconds, FALLBACK_POLL_SECONDS)})
