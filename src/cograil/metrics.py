"""Prometheus metrics of a process, served by `/metrics`.

Every package may count here; no code reads a count to decide something. Label values are constants of this
program and queue names, never ids, keys or tenants, so the number of series is bounded.
docs/reference/metrics.md lists all metrics.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_open
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
MAX_QUEUES = 100  # queues with a series of their own; the rest is summed up as `others`
OTHER_QUEUES = "others"
JOB_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86400)
REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
REQUEST_LABELS = ("method", "path", "status")
LOCAL_PREFIXES = (
    "process_",
    "cograil_build",
)  # not passed on to a process that serves the metrics of this one
PUBLIC_PREFIXES = ("cograil_http_", "cograil_build", "process_")
STATUS_CLASSES = ("", "1xx", "2xx", "3xx", "4xx", "5xx")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)


class MetricFamily(NamedTuple):
    """A metric: its kind, its labels and its help text."""

    kind: str
    labels: tuple[str, ...]
    text: str


PROCESS_METRICS: dict[str, MetricFamily] = {}


def counter(name: str, text: str, *labels: str) -> Counter:
    """Make a counter, shown by /metrics as `<name>_total`."""
    PROCESS_METRICS[f"{name}_total"] = MetricFamily("counter", labels, text)
    return Counter(name, text, labels, registry=REGISTRY)


def gauge(name: str, text: str, *labels: str) -> Gauge:
    """Make a gauge: a value that goes up and down."""
    PROCESS_METRICS[name] = MetricFamily("gauge", labels, text)
    return Gauge(name, text, labels, registry=REGISTRY)


class HistogramSeries:
    """Counts of durations by bucket, with a trace id as the exemplar of each bucket."""

    __slots__ = ("bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.exemplars: list[Exemplar | None] = [None] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float, trace_id: str | None = None) -> None:
        """Count a duration. Runs for every job and request, in one thread, so it takes no lock."""
        bucket = bisect_left(self.bounds, seconds)
        self.counts[bucket] += 1
        self.total += seconds
        if trace_id is not None:
            self.exemplars[bucket] = Exemplar({"trace_id": trace_id}, seconds, time.time())


class DurationHistogram(Collector):
    """A histogram for frequent observations: five times as fast as the library's own, measured with labels."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...], labels: tuple[str, ...]) -> None:
        self._name, self._text, self._bounds, self._labels = name, text, bounds, labels
        self._series: dict[tuple[str, ...], HistogramSeries] = {} if labels else {(): HistogramSeries(bounds)}

    def labels(self, *labels: str) -> HistogramSeries:
        """Return the series with these label values; it is created when missing."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = HistogramSeries(self._bounds)
        return series

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        bounds = [*(repr(float(bound)) for bound in self._bounds), "+Inf"]
        for labels, series in list(self._series.items()):
            cumulative = accumulate(series.counts)
            buckets = [
                (bound, count) if exemplar is None else (bound, count, exemplar)
                for bound, count, exemplar in zip(bounds, cumulative, series.exemplars, strict=True)
            ]
            family.add_metric(labels, buckets, series.total)
        yield family


def histogram(name: str, text: str, bounds: tuple[float, ...], *labels: str) -> DurationHistogram:
    """Make a histogram of durations in seconds with these upper bounds."""
    PROCESS_METRICS[name] = MetricFamily("histogram", labels, text)
    durations = DurationHistogram(name, text, bounds, labels)
    REGISTRY.register(durations)
    return durations


build = gauge("cograil_build_info", "Always 1; the label is the version of this process.", "version")
build.labels(version("cograil")).set(1)
jobs_submitted = counter("cograil_jobs_submitted", "Jobs created by this process.")
jobs_ended = counter("cograil_jobs_ended", "Jobs ended by this process, by final status.", "status")
job_wait_seconds = histogram(
    "cograil_job_wait_seconds",
    "Seconds from when a job became runnable to its first task start; observed when the job ends.",
    JOB_BUCKETS,
)
job_run_seconds = histogram(
    "cograil_job_run_seconds",
    "Seconds from the start of a job to its end, by final status.",
    JOB_BUCKETS,
    "status",
)
passes = counter("cograil_passes", "Transactions in which this orchestrator advanced jobs.")
jobs_advanced = counter(
    "cograil_jobs_advanced", "Jobs advanced by this orchestrator; a job counts each time it is advanced."
)
leases_expired = counter(
    "cograil_leases_expired",
    "Leases of workers and orchestrators that this orchestrator found expired.",
)
tasks_rescued = counter(
    "cograil_tasks_rescued", "Tasks that this orchestrator took back from dead workers or after a timeout."
)
tasks_claimed = counter("cograil_tasks_claimed", "Tasks claimed by this worker.")
tasks_reported = counter("cograil_tasks_reported", "Task outcomes reported by this worker.", "outcome")
tasks_held = gauge("cograil_tasks_held", "Tasks held by this worker now.")
deliveries = counter("cograil_deliveries", "Delivery attempts of this relay, by outcome.", "outcome")
http_request_seconds = histogram(
    "cograil_http_request_seconds",
    "Seconds from a request to the start of its response, by method and status class.",
    REQUEST_BUCKETS,
    "method",
    "status",
)
# Metrics of the app `containers`. The names have no prefix because existing dashboards use them.
http_request_duration = histogram(
    "http_request_duration_seconds",
    "Duration of requests to /v1/jobs, in seconds.",
    (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    *REQUEST_LABELS,
)
company_sources = counter(
    "cograil_company_sources",
    "Requests of this worker to company registers, by source and outcome.",
    "source",
    "outcome",
)
http_requests = counter("http_requests", "Requests to /v1/jobs.", *REQUEST_LABELS)
http_errors = counter("http_errors", "Requests to /v1/jobs that were rejected.", *REQUEST_LABELS)
container_jobs = counter("jobs", "Container jobs accepted by this process.")
container_job_errors = counter(
    "job_errors", "Container jobs that failed and were settled by this process, by error code.", "code"
)
container_job_duration = histogram(
    "job_duration_seconds",
    "Seconds from the acceptance of a container job to its end, for jobs settled by this process.",
    (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 14400),
    "status",
)
callback_duration = histogram(
    "dispatcher_duration_seconds",
    "Duration of the requests that deliver events of container jobs, in seconds.",
    (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
callbacks_delivered = counter("dispatcher_delivered", "Events of container jobs delivered by this relay.")
callbacks_failed = counter(
    "dispatcher_failed", "Events of container jobs that were rejected permanently or given up."
)
callbacks_dropped = counter("dispatcher_dropped", "Always 0: events of container jobs are never dropped.")
callbacks_requeued = counter("dispatcher_requeued", "Events of container jobs put back for a later retry.")
for _status in ("completed", "failed", "cancelled"):  # a rate needs a series from the start
    jobs_ended.labels(_status)
    job_run_seconds.labels(_status)
for _outcome in ("completed", "failed"):
    tasks_reported.labels(_outcome)
for _outcome in ("delivered", "failed", "dead"):
    deliveries.labels(_outcome)

Sample = tuple[str, str, str, float]  # name, labels, value
Counted = tuple[str, Mapping[str, str], float]  # name, labels, value
Counts = Mapping[str, Sequence[Counted]]  # by metric family
NO_COUNTS: Counts = {}

DATABASE_METRICS = {
    "cograil_queue_depth": MetricFamily(
        "gauge", ("queue", "state"), "Tasks that are ready, held back by a limit, or running, by queue."
    ),
    "cograil_oldest_ready_seconds": MetricFamily(
        "gauge", ("queue",), "Age of the oldest ready task, in seconds."
    ),
    "cograil_jobs": MetricFamily(
        "gauge", ("status",), "Jobs that have not ended; counted up to 10,000 per tenant."
    ),
    "cograil_processes": MetricFamily("gauge", ("kind",), "Orchestrators and workers with a valid lease."),
    "cograil_inbox_oldest_seconds": MetricFamily(
        "gauge", (), "Age of the oldest inbox entry that waits for an orchestrator, in seconds."
    ),
    "cograil_outbox_lag_seconds": MetricFamily(
        "gauge", (), "Age of the oldest event that is due and not yet delivered, in seconds."
    ),
    "cograil_db_oldest_xmin_seconds": MetricFamily(
        "gauge", (), "Age of the oldest snapshot that keeps dead rows from being vacuumed, in seconds."
    ),
    "jobs_active": MetricFamily("gauge", (), "Container jobs of all processes that have not ended."),
    "dispatcher_queue_size": MetricFamily(
        "gauge", (), "Events of container jobs that wait for delivery, in all relays; at most 100000."
    ),
}


class _DatabaseCollector(Collector):
    """Metrics from samples of the database."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = _limit_queues(list(samples))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, (_, labels, text) in DATABASE_METRICS.items():
            family = GaugeMetricFamily(name, text, labels=labels)
            for sample_name, first, second, value in self._samples:
                if sample_name == name:
                    family.add_metric((first, second)[: len(labels)], value)
            yield family


class _CombinedCollector(Collector):
    """Metrics of this process and its children, then those of the database if there are samples."""

    def __init__(self, samples: Iterable[Sample] | None, others: Counts) -> None:
        self._database = None if samples is None else _DatabaseCollector(samples)
        self._others = others

    def collect(self) -> Iterator[Metric]:
        for own in REGISTRY.collect():
            if self._database is not None or own.name.startswith(PUBLIC_PREFIXES):
                yield _merge_family(own, self._others.get(own.name, ()))
        if self._database is not None:
            yield from self._database.collect()


def _merge_family(own: Metric, others: Sequence[Counted]) -> Metric:
    """Return one family with the counts of other processes added.

    Creation timestamps are left out: `jobs_created` would read as a count of jobs.
    """
    merged = Metric(own.name, own.documentation, own.type)
    other_values = {(name, tuple(sorted(labels.items()))): value for name, labels, value in others}
    for sample in own.samples:
        if not sample.name.endswith("_created"):
            added = other_values.pop((sample.name, tuple(sorted(sample.labels.items()))), 0.0)
            merged.add_sample(sample.name, sample.labels, sample.value + added, exemplar=sample.exemplar)
    for (name, items), value in other_values.items():
        merged.add_sample(name, dict(items), value)
    return merged


def collect_counts() -> Counts:
    """Return the counts of this process, for the parent process that serves them.

    Resource usage and build information stay with each process.
    """
    families = [family for family in REGISTRY.collect() if not family.name.startswith(LOCAL_PREFIXES)]
    return {family.name: [sample[:3] for sample in _merge_family(family, ()).samples] for family in families}


def _limit_queues(samples: list[Sample]) -> list[Sample]:
    """Keep the samples of the deepest queues and merge the rest into one series."""
    queue_metrics = [name for name, family in DATABASE_METRICS.items() if family.labels[:1] == ("queue",)]
    depths: dict[str, float] = {}
    for name, queue, _, value in samples:
        if name == "cograil_queue_depth":
            depths[queue] = depths.get(queue, 0) + value
    if len(depths) <= MAX_QUEUES:
        return samples
    named = set(sorted(depths, key=lambda queue: (-depths[queue], queue))[:MAX_QUEUES])
    kept = [sample for sample in samples if sample[0] not in queue_metrics or sample[1] in named]
    rest: dict[tuple[str, str], float] = {}
    for name, queue, state, value in samples:
        if name in queue_metrics and queue not in named:
            merged = rest.get((name, state), 0.0)
            rest[name, state] = merged + value if name == "cograil_queue_depth" else max(merged, value)
    return kept + [(name, OTHER_QUEUES, state, value) for (name, state), value in rest.items()]


def exposition(
    samples: Iterable[Sample] | None, accept: str = "", others: Counts = NO_COUNTS
) -> tuple[bytes, str]:
    """Return the metrics text and its content type: this process, `others`, and samples of the database.

    Without samples (None) the text is for a public port: it has metrics of requests and of the process, but
    not of jobs. A client that accepts OpenMetrics gets exemplars with trace ids.
    """
    registry = CollectorRegistry()
    registry.register(_CombinedCollector(samples, others))
    if "application/openmetrics-text" in accept:
        return generate_open(registry), OPEN_CONTENT_TYPE  # type: ignore[no-untyped-call]
    return generate_latest(registry), CONTENT_TYPE


def observe_request(method: str, status: int, seconds: float) -> None:
    """Record the duration of one HTTP request."""
    known = method if method in METHODS else "other"
    http_request_seconds.labels(known, STATUS_CLASSES[status // 100]).observe(seconds)
