"""A worker: claim what it has slots for, run it, report it; drain when asked to stop."""

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
from cograil.store.scan_cursors import ClaimPlaces
from cograil.store.write_batch import ALONE_CHANNEL, REVOKED_CHANNEL, TASKS_CHANNEL
from cograil.verbs import tasks
from cograil.verbs.tasks import Heartbeat, Report, Slots
from cograil.worker.context_channel import ChannelServices, WorkerChannel
from cograil.worker.heartbeat import HeartbeatThread, Identity
from cograil.worker.held_attempt import Executors, HeldAttempt, start, start_traced
from cograil.worker.loop_watchdog import LoopWatchdog, WatchedWorker
from cograil.worker.machine_paths import hide_paths
from cograil.worker.progress_writer import ProgressWriter
from cograil.worker.reporter import Reporter
from cograil.worker.step_writer import StepWriter
from cograil.worker.worker_slots import children_of, count_free_slots, limits_of, took_all_slots

log = structlog.get_logger("worker")
RETRY_SECONDS = 0.5
FALLBACK_POLL_SECONDS = 1.0
LOOK_AGAIN_SECONDS = 0.1
UNREPORTED = 6  # times as many as can run may wait for their report
SILENT_HEARTBEATS = 2  # a ping may overtake the answer of its heartbeat, or come after it


class Worker:
    """One worker process."""

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
        self._claims, self._places = 0, ClaimPlaces()  # how many claims have been answered, how far they got
        self._is_claiming = False
        self._workflows: dict[str, tuple[str, int]] = {}  # of what was claimed last, where traces are made
        self._silent_heartbeats = 0
        self._suspects: set[int] = set()  # tasks the last heartbeat named though we do not hold them
        self._may_have_more = True  # whether the last claim left something, as far as we know
        self._sees_alone = True  # whether tasks may wait that must run alone
        self._makes_room = False  # for one of them
        self._runs_alone = False  # whether the last claim brought one of them
        self._loop = asyncio.get_running_loop()
        self._limits = limits_of(settings)
        self._executor = ThreadPoolExecutor(settings.worker.threads, thread_name_prefix="handler")
        self._children = children_of(registry, settings, self._limits)
        self._progress = ProgressWriter(db)
        connections = HandlerConnections(db, settings.database.pool_size, settings.database.handler_url)
        self._services = ChannelServices(db, self._progress, StepWriter(db), connections)
        self._reporter = Reporter(db, self._progress, self._forget)
        channels = [TASKS_CHANNEL, ALONE_CHANNEL, REVOKED_CHANNEL, PING]
        self._listener = Listener(db.direct, channels, self._on_notify)
        self._heartbeat = HeartbeatThread(
            db.direct or db.conninfo,
            settings.lease if self._listener.can_hear else _with_fast_heartbeat(settings.lease),
            lambda: self._claims,
            self._info,
            self.registry.names,
            self._on_heartbeat_in_thread,
        )
        self._watch = LoopWatchdog(
            WatchedWorker(lambda: self.identity, lambda: list(self._held.values()), self._another_database),
            settings.worker.blocked_seconds,
        )

    # -- life ----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Claim nothing more, finish or hand back what is running, return from `run`."""
        self._stop.set()
        self._wake.set()

    async def run(self) -> None:
        """Work until stopped, then drain."""
        await self._listener.start()
        await self._register()
        self._heartbeat.start()
        self._watch.start()
        if self._free_slots().process_handlers:
            self._children.warm_up()
        self.is_ready = True
        try:
            while not self._stop.is_set():
                await self._once()
        finally:
            self.is_ready = False
            await self._drain()

    async def _register(self) -> None:
        """Become a new worker, with a lease of its own."""
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
        """Wait for what runs for most of the grace; in the rest of it give back what is left, uncounted."""
        with contextlib.suppress(Exception):
            await self._leave("draining")
        await asyncio.sleep(0)  # what was just begun is looked after
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
        self._watch.stop()
        self._heartbeat.stop()
        await self._listener.stop()
        await self._children.close()
        await self._services.connections.close()
        with contextlib.suppress(Exception):
            await self._leave("stopped")
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _leave(self, state: str) -> None:
        if self.identity is not None:
            async with self.db.single("leave") as tx:
                await tasks.leave(tx, self.identity.worker_id, state)

    def _another_database(self) -> Database:
        return Database(self.db.direct or self.db.conninfo, self.settings.database)

    # -- claiming ------------------------------------------------------------------------------------

    async def _once(self) -> None:
        """Claim if there are slots; wait when there is nothing to do."""
        self._wake.clear()
        slots = self._free_slots()
        may_claim = self.identity is not None and not self._stands_aside and slots.total > 0
        try:
            items = await self._claim(slots) if may_claim else []
        except (psycopg.Error, DatabaseUnavailable) as error:
            log.warning("claim failed", error=str(error).strip(), worker=self.name)
            await asyncio.sleep(RETRY_SECONDS)
            return
        if items:
            metrics.tasks_claimed.inc(len(items))
            self._begin(items)
        taken = [self._held[item.task_id].spec for item in items]
        self._may_have_more = not may_claim or self._runs_alone or took_all_slots(slots, taken)
        if not (items and self._may_have_more):
            await self._wait(is_short=bool(items))

    async def _workflows_of(self, items: Sequence[WorkItem]) -> dict[str, tuple[str, int]]:
        """The workflows of these jobs, for the names of spans; without them they have others."""
        with contextlib.suppress(psycopg.Error, DatabaseUnavailable):
            async with self.db.single("show") as tx:
                return await tasks.workflows_of(tx, {item.job_id for item in items})
        return {}

    async def _claim(self, slots: Slots) -> list[WorkItem]:
        assert self.identity is not None
        worker_id = self.identity.worker_id  # it may be lost between the two
        self._is_claiming = True
        try:
            if self._sees_alone and not self._held:
                items = await tasks.claim_alone(self.db, worker_id, slots)
                self._sees_alone = self._makes_room = self._runs_alone = bool(items)
                if items:
                    self._workflows = await self._workflows_of(items) if tracing.is_on() else {}
                    return items
            self._runs_alone = False
            items = await tasks.claim(self.db, worker_id, slots, self._places)
            if items and tracing.is_on():
                self._workflows = await self._workflows_of(items)
            return items
        finally:
            self._is_claiming = False
            self._claims += 1

    @property
    def _stands_aside(self) -> bool:
        """Whether nothing is claimed before it is empty: it runs a task alone, or makes room for one."""
        return bool(self._held) and (self._runs_alone or self._makes_room)

    def _free_slots(self) -> Slots:
        """What has come to its end leaves its slot to others, though its report is still under way.

        Of these there are not many more than can run: a database that is slow to record gets no more to do.
        """
        running = [attempt.spec for attempt in self._held.values() if not attempt.is_ended]
        if len(self._held) - len(running) > UNREPORTED * self.settings.worker.concurrency:
            running = [attempt.spec for attempt in self._held.values()]
        return count_free_slots(self.registry, running, self.settings.worker, self.queues)

    async def _wait(self, *, is_short: bool) -> None:
        """Until somebody calls: a notice, a slot that is free again, a heartbeat that saw work.

        After a claim that took something look again soon: another worker's claim may have had its hand
        on tasks that it did not take in the end.
        """
        timeout = LOOK_AGAIN_SECONDS if is_short else FALLBACK_POLL_SECONDS if self._notify_broken else None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), timeout)

    @property
    def _notify_broken(self) -> bool:
        return self._silent_heartbeats > SILENT_HEARTBEATS

    def _on_notify(self, channel: str, payload: str) -> None:
        if channel == PING:
            if self.identity is not None and payload == str(self.identity.worker_id):
                self._silent_heartbeats = 0
        elif channel == ALONE_CHANNEL:
            self._heartbeat.beat_now()  # its answer says who makes room
        elif channel == REVOKED_CHANNEL:
            if self.identity is not None and payload == str(self.identity.worker_id):
                self._heartbeat.beat_now()
        elif channel == RECONNECTED or self.queues is None or set(payload.split(",")) & {"", *self.queues}:
            self._wake.set()

    # -- running -------------------------------------------------------------------------------------

    def _begin(self, items: Sequence[WorkItem]) -> None:
        """Start these; those that are not through after one step of the loop are followed.

        Whatever is said inside them is said about them.
        """
        assert self.identity is not None
        channel = WorkerChannel(self._services, self.identity)
        begun, now = [], time.monotonic()
        executors = Executors(self._executor, self._limits, self._children)
        for item in items:
            spec = self.registry.get(item.handler)
            assert spec is not None
            if tracing.is_on():
                workflow = self._workflows.get(item.job_id)
                attempt = start_traced(item, spec, channel, executors, self._claims, now, workflow)
            else:
                attempt = start(item, spec, channel, executors, self._claims, now)
            self._held[item.task_id] = attempt
            begun.append(attempt)
        logs.current_attempt.set(None)
        handler_output.attempt.set(None)
        metrics.tasks_held.set(len(self._held))
        self._loop.call_soon(self._look_after, self.identity, begun)

    def _look_after(self, identity: Identity, begun: Sequence[HeldAttempt]) -> None:
        for attempt in begun:
            running = attempt.running
            outcome = running.outcome_if_done() if isinstance(running, runner.Running) else running
            if outcome is None or isinstance(outcome, Released):
                attempt.task = asyncio.create_task(self._follow(identity, attempt))
            else:
                self._end(identity, attempt, outcome)

    async def _follow(self, identity: Identity, attempt: HeldAttempt) -> None:
        """Wait for its end, then report; what was given back or lost is not reported."""
        running = attempt.running
        outcome = await runner.follow(running) if isinstance(running, runner.Running) else running
        if attempt.ctx.abandoned and attempt.spec.kind == "thread":
            self._replace_executor()
        if isinstance(outcome, Released):
            attempt.end(outcome)
            await self._give_back(identity, attempt)
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
        """A thread that does not end must not take the place of one that would."""
        self._executor.shutdown(wait=False)
        self._executor = ThreadPoolExecutor(self.settings.worker.threads, thread_name_prefix="handler")

    async def _give_back(self, identity: Identity, attempt: HeldAttempt) -> None:
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

    # -- the heartbeat -----------------------------------------------------------------------------------

    def _info(self) -> dict[str, Any]:
        load = {"running": len(self._held), "concurrency": self.settings.worker.concurrency}
        return process_facts() | load

    def _on_heartbeat_in_thread(self, identity: Identity, heartbeat: Heartbeat, epoch: int) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing left to tell
            self._loop.call_soon_threadsafe(self._on_heartbeat, identity, heartbeat, epoch)

    def _on_heartbeat(self, identity: Identity, heartbeat: Heartbeat, epoch: int) -> None:
        """Compare what we hold with what the database says we hold."""
        if identity is not self.identity:
            return
        self._silent_heartbeats += 1
        if self._notify_broken and self._listener.can_hear:
            log.warning("notifications do not arrive, polling instead", worker=self.name)
        if not heartbeat.is_alive:
            self._lose_everything()
            return
        self._sees_alone, self._makes_room = heartbeat.has_alone_tasks, heartbeat.makes_room
        if heartbeat.has_ready_tasks or heartbeat.has_alone_tasks or self._notify_broken:
            self._wake.set()
        for task_id, attempt in self._held.items():
            if attempt.claim <= epoch and task_id not in heartbeat.task_ids and not attempt.is_ended:
                attempt.ctx.cancel("lost")
        if epoch == self._claims and not self._is_claiming:
            self._give_back_unknown(identity, heartbeat.fences)

    def _give_back_unknown(self, identity: Identity, fences: Mapping[int, int]) -> None:
        """No claim came in between: what we do not hold was claimed without our knowing.

        Or it was reported while the heartbeat was on its way: so only what two heartbeats name is given back.
        """
        unknown = {task_id: fence for task_id, fence in fences.items() if task_id not in self._held}
        lost = {task_id: fence for task_id, fence in unknown.items() if task_id in self._suspects}
        self._suspects = unknown.keys() - lost.keys()
        if lost:
            log.warning("giving back tasks of a claim whose answer was lost", tasks=len(lost))
            self._giving_back = asyncio.create_task(self._release(identity, lost))

    async def _release(self, identity: Identity, fences: Mapping[int, int]) -> None:
        """If it fails, the next heartbeat finds them again."""
        with contextlib.suppress(psycopg.Error, DatabaseUnavailable):
            await tasks.release(self.db, identity.worker_id, fences)

    def _lose_everything(self) -> None:
        """The lease is gone, and with it all tasks: stop them, and come back as a new worker."""
        log.warning("lease lost, registering anew", worker=self.name, tasks=len(self._held))
        self.identity = self._heartbeat.identity = None
        for attempt in self._held.values():
            attempt.ctx.cancel("lost")
        self._rejoining = asyncio.create_task(self._register())


def _with_fast_heartbeat(lease: LeaseSettings) -> LeaseSettings:
    """Who cannot hear that something was revoked asks more often."""
    return lease.model_copy(update={"heartbeat_seconds": min(lease.heartbeat_seconds, FALLBACK_POLL_SECONDS)})
