"""What a process counts, for Prometheus. Counted where it happens, told by `/metrics`.

A leaf like `logs.py`: everybody may count, nobody reads the counts to decide something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

passes = Counter("cograil_passes", "Transactions that advanced jobs.", registry=REGISTRY)
jobs_advanced = Counter("cograil_jobs_advanced", "Jobs advanced, each time counted.", registry=REGISTRY)
tasks_rescued = Counter(
    "cograil_tasks_rescued", "Tasks taken from dead workers or over their time.", registry=REGISTRY
)
tasks_claimed = Counter("cograil_tasks_claimed", "Tasks this worker has claimed.", registry=REGISTRY)
tasks_reported = Counter(
    "cograil_tasks_reported", "Outcomes this worker has reported.", ["outcome"], registry=REGISTRY
)
tasks_held = Gauge("cograil_tasks_held", "Tasks this worker holds now.", registry=REGISTRY)

Sample = tuple[str, str, float]  # name, label, value
LABELS = {
    "cograil_tasks_ready": ("queue", "Tasks that wait for a worker."),
    "cograil_tasks_running": ("queue", "Tasks that workers run."),
    "cograil_tasks_oldest_seconds": ("queue", "How long the oldest ready task has waited."),
    "cograil_processes": ("kind", "Orchestrators and workers whose lease is valid."),
    "cograil_inbox_oldest_seconds": ("", "How long the oldest news has waited for an orchestrator."),
}


class _Found(Collector):
    """What the database said, as metrics."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = list(samples)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, (label, text) in LABELS.items():
            family = GaugeMetricFamily(name, text, labels=[label] if label else [])
            for found, value_of_label, value in self._samples:
                if found == name:
                    family.add_metric([value_of_label] if label else [], value)
            yield family


def exposition(samples: Iterable[Sample]) -> bytes:
    """All counts of this process, and these samples of the database, as Prometheus reads them."""
    of_database = CollectorRegistry()
    of_database.register(_Found(samples))
    return generate_latest(REGISTRY) + generate_latest(of_database)
