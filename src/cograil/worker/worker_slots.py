"""The capacity of a worker: its handlers by kind, its free slots, its limits and its child processes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict

from cograil.runners.context import Limits
from cograil.runners.handler_registry import HandlerSpec, Kind, Registry
from cograil.runners.ipc import ChildSetup
from cograil.runners.process_pool import MIB, ProcessPool, RecyclePolicy
from cograil.settings import Settings, WorkerSettings
from cograil.verbs.tasks import Slots


def count_free_slots(
    registry: Registry, held: Sequence[HandlerSpec], worker: WorkerSettings, queues: list[str] | None
) -> Slots:
    """Count the slots that these held attempts leave free, by kind of handler."""
    names: dict[Kind, list[str]] = {"async": [], "thread": [], "process": []}
    left: dict[str, int] = {}
    for name in registry.names():
        if (spec := registry.get(name)) is not None:
            names[spec.kind].append(name)
            if spec.most is not None:
                left[name] = max(0, spec.most - sum(running.name == name for running in held))
    kinds = [spec.kind for spec in held]
    capacity = {"async": worker.concurrency, "thread": worker.threads, "process": worker.processes}
    free = {kind: max(0, capacity[kind] - kinds.count(kind)) if names[kind] else 0 for kind in names}
    return Slots(
        async_handlers=names["async"],
        thread_handlers=names["thread"],
        async_slots=free["async"],
        thread_slots=free["thread"],
        queues=queues,
        process_handlers=names["process"],
        process_slots=free["process"],
        async_max=[left.get(name) for name in names["async"]] if left else [],
    )


def took_all_slots(slots: Slots, items: Sequence[HandlerSpec]) -> bool:
    """Whether a claim filled all slots of a kind or handler. More tasks may then be due."""
    taken, names = [spec.kind for spec in items], [spec.name for spec in items]
    bounded = zip(slots.async_handlers, slots.async_max, strict=False)
    return (
        any(limit is not None and names.count(name) >= limit for name, limit in bounded)
        or (bool(slots.async_handlers) and taken.count("async") >= slots.async_slots)
        or (bool(slots.thread_handlers) and taken.count("thread") >= slots.thread_slots)
        or (bool(slots.process_handlers) and taken.count("process") >= slots.process_slots)
    )


def read_limits(settings: Settings) -> Limits:
    """Return the limits of one attempt: sizes, and the grace period after a stop request."""
    limits = settings.limits
    return Limits(
        output_bytes=limits.output_bytes,
        checkpoint_bytes=limits.checkpoint_bytes,
        log_lines=limits.log_lines,
        log_line_bytes=limits.log_line_bytes,
        grace_seconds=min(5.0, max(0.4, 0.1 * settings.worker.grace_seconds)),
    )


def make_process_pool(registry: Registry, settings: Settings, limits: Limits) -> ProcessPool:
    """Return the pool of child processes for the process handlers of this registry."""
    memory = settings.worker.child_memory_mb * MIB

    def setup() -> ChildSetup:
        specs = [registry.get(name) for name in registry.names()]
        modules = dict.fromkeys(spec.module for spec in specs if spec is not None and spec.module)
        log = settings.log
        is_captured = settings.worker.capture_output
        return ChildSetup(
            tuple(modules), tuple(sys.path), asdict(limits), memory, log.level, log.format, is_captured
        )

    return ProcessPool(setup, RecyclePolicy(settings.worker.child_tasks, memory))
