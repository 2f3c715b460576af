"""What a process counts, for Prometheus. Counted where it happens, told by `/metrics`.

A leaf like `logs.py`: everybody may count, nobody reads the counts to decide something. Labels are words
of ours and names of queues, never ids, keys or tenants: so many series there are, and no more.
docs/reference/metrics.md lists all of it.
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
MAX_QUEUES = 100  # that are shown by name; the others together
OTHERS = "others"
WAITS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86400)
ANSWERS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
REQUEST = ("method", "path", "status")
OWN = ("process_", "cograil_build")
OUTSIDE = ("cograil_http_", "cograil_build", "process_")
HUNDREDS = ("", "1xx", "2xx", "3xx", "4xx", "5xx")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)


class Family(NamedTuple):
    """A metric: what kind it is, its labels, and what it says."""

    kind: str
    labels: tuple[str, ...]
    text: str


COUNTED: dict[str, Family] = {}


def _counter(name: str, text: str, *labels: str) -> Counter:
    COUNTED[f"{name}_total"] = Family("counter", labels, text)
    return Counter(name, text, labels, registry=REGISTRY)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    COUNTED[name] = Family("gauge", labels, text)
    return Gauge(name, text, labels, registry=REGISTRY)


class Series:
    """How often a duration was how long, with a trace as an example of each."""

    __slots__ = ("bounds", "counts", "examples", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.examples: list[Exemplar | None] = [None] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float, trace_id: str | None = None) -> None:
        """Count this one. Called for every job and every request, in one thread: no lock, no walk."""
        place = bisect_left(self.bounds, seconds)
        self.counts[place] += 1
        self.total += seconds
        if trace_id is not None:
            self.examples[place] = Exemplar({"trace_id": trace_id}, seconds, time.time())


class Durations(Collector):
    """A histogram for what happens often: a fifth of the price of the library's own, measured with labels."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...], labels: tuple[str, ...]) -> None:
        self._name, self._text, self._bounds, self._labels = name, text, bounds, labels
        self._series: dict[tuple[str, ...], Series] = {} if labels else {(): Series(bounds)}

    def of(self, *labels: str) -> Series:
        """Those with these labels."""
        found = self._series.get(labels)
        if found is None:
            found = self._series[labels] = Series(self._bounds)
        return found

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        words = [*(repr(float(bound)) for bound in self._bounds), "+Inf"]
        for labels, series in list(self._series.items()):
            so_far = accumulate(series.counts)
            buckets = [
                (word, count) if example is None else (word, count, example)
                for word, count, example in zip(words, so_far, series.examples, strict=True)
            ]
            family.add_metric(labels, buckets, series.total)
        yield family


def _histogram(name: str, text: str, bounds: tuple[float, ...], *labels: str) -> Durations:
    COUNTED[name] = Family("histogram", labels, text)
    made = Durations(name, text, bounds, labels)
    REGISTRY.register(made)
    return made


build = _gauge("cograil_build_info", "Always 1, with the version of this process.", "version")
build.labels(version("cograil")).set(1)
jobs_submitted = _counter("cograil_jobs_submitted", "Jobs that this process has made.")
jobs_ended = _counter("cograil_jobs_ended", "Jobs whose end this process has written.", "status")
job_wait_seconds = _histogram(
    "cograil_job_wait_seconds",
    "From the moment at which a job might begin until a worker began something of it; told at its end.",
    WAITS,
)
job_run_seconds = _histogram(
    "cograil_job_run_seconds", "From the beginning of a job to its end.", WAITS, "status"
)
passes = _counter("cograil_passes", "Transactions in which this orchestrator advanced jobs.")
jobs_advanced = _counter("cograil_jobs_advanced", "Jobs that this orchestrator advanced, each time counted.")
leases_expired = _counter(
    "cograil_leases_expired",
    "Workers and orchestrators whose lease ended without a word, as this orchestrator saw it.",
)
tasks_rescued = _counter(
    "cograil_tasks_rescued", "Tasks that this orchestrator took from dead workers or over their time."
)
tasks_claimed = _counter("cograil_tasks_claimed", "Tasks this worker has claimed.")
tasks_reported = _counter("cograil_tasks_reported", "Outcomes this worker has reported.", "outcome")
tasks_held = _gauge("cograil_tasks_held", "Tasks this worker holds now.")
deliveries = _counter("cograil_deliveries", "Tries of this relay to deliver an event.", "outcome")
http_request_seconds = _histogram(
    "cograil_http_request_seconds",
    "From a request to the beginning of its answer, by method and hundreds of the status.",
    ANSWERS,
    "method",
    "status",
)
# What the service that the app `containers` takes over counted, by the names that its dashboards know.
http_request_duration = _histogram(
    "http_request_duration_seconds",
    "How long requests to /v1/jobs took.",
    (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    *REQUEST,
)
company_sources = _counter(
    "cograil_company_sources",
    "Requests of this worker to registers of companies, by what they came to.",
    "source",
    "outcome",
)
http_requests = _counter("http_requests", "Requests to /v1/jobs.", *REQUEST)
http_errors = _counter("http_errors", "Requests to /v1/jobs that were refused.", *REQUEST)
container_jobs = _counter("jobs", "Container jobs accepted here.")
container_job_errors = _counter("job_errors", "Container jobs that failed, as far as settled here.", "code")
container_job_duration = _histogram(
    "job_duration_seconds",
    "From accepting a container job to its end, as far as settled here.",
    (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 14400),
    "status",
)
callback_duration = _histogram(
    "dispatcher_duration_seconds",
    "How long the requests took that delivered a container job's event.",
    (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
callbacks_delivered = _counter("dispatcher_delivered", "Events of container jobs delivered by this relay.")
callbacks_failed = _counter("dispatcher_failed", "Events of container jobs refused for good, or given up.")
callbacks_dropped = _counter(
    "dispatcher_dropped", "Events of container jobs that were never tried: none are dropped."
)
callbacks_requeued = _counter(
    "dispatcher_requeued", "Events of container jobs put back, to be tried again later."
)
for _status in ("completed", "failed", "cancelled"):  # a rate needs a series from the start
    jobs_ended.labels(_status)
    job_run_seconds.of(_status)
for _outcome in ("completed", "failed"):
    tasks_reported.labels(_outcome)
for _outcome in ("delivered", "failed", "dead"):
    deliveries.labels(_outcome)

Sample = tuple[str, str, str, float]  # name, labels, value
Counted = tuple[str, Mapping[str, str], float]  # name, labels, value
Counts = Mapping[str, Sequence[Counted]]  # by the name of their family
NOTHING: Counts = {}


FOUND = {
    "cograil_queue_depth": Family(
        "gauge", ("queue", "state"), "Tasks that are ready, held back by a limit, or running."
    ),
    "cograil_oldest_ready_seconds": Family("gauge", ("queue",), "How long the oldest ready task has waited."),
    "cograil_jobs": Family(
        "gauge", ("status",), "Jobs that have not ended; counted up to 10,000 of a tenant."
    ),
    "cograil_processes": Family("gauge", ("kind",), "Orchestrators and workers whose lease is valid."),
    "cograil_inbox_oldest_seconds": Family(
        "gauge", (), "How long the oldest news has waited for an orchestrator."
    ),
    "cograil_outbox_lag_seconds": Family(
        "gauge", (), "How long the oldest event that is due has not been sent."
    ),
    "cograil_db_oldest_xmin_seconds": Family("gauge", (), "How long the oldest snapshot has kept dead rows."),
    "jobs_active": Family("gauge", (), "Container jobs that have not ended, of all processes."),
    "dispatcher_queue_size": Family(
        "gauge", (), "Events of container jobs to be delivered, of all relays; at most 100000."
    ),
}


class _Found(Collector):
    """What the database said, as metrics."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = _bounded(list(samples))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, (_, labels, text) in FOUND.items():
            family = GaugeMetricFamily(name, text, labels=labels)
            for found, first, second, value in self._samples:
                if found == name:
                    family.add_metric((first, second)[: len(labels)], value)
            yield family


class _All(Collector):
    """What this process counts with those it speaks for, then what the database said, if it was asked."""

    def __init__(self, samples: Iterable[Sample] | None, others: Counts) -> None:
        self._found = None if samples is None else _Found(samples)
        self._others = others

    def collect(self) -> Iterator[Metric]:
        for own in REGISTRY.collect():
            if self._found is not None or own.name.startswith(OUTSIDE):
                yield _together(own, self._others.get(own.name, ()))
        if self._found is not None:
            yield from self._found.collect()


def _together(own: Metric, others: Sequence[Counted]) -> Metric:
    """One family, with what others counted of it added.

    Without the times at which counting began: as `jobs_created` they would mean something else.
    """
    whole = Metric(own.name, own.documentation, own.type)
    more = {(name, tuple(sorted(labels.items()))): value for name, labels, value in others}
    for one in own.samples:
        if not one.name.endswith("_created"):
            added = more.pop((one.name, tuple(sorted(one.labels.items()))), 0.0)
            whole.add_sample(one.name, one.labels, one.value + added, exemplar=one.exemplar)
    for (name, items), value in more.items():
        whole.add_sample(name, dict(items), value)
    return whole


def counts() -> Counts:
    """What this process counted, for another that speaks for it; what it uses itself is its own."""
    own = [family for family in REGISTRY.collect() if not family.name.startswith(OWN)]
    return {family.name: [one[:3] for one in _together(family, ()).samples] for family in own}


def _bounded(samples: list[Sample]) -> list[Sample]:
    """Of many queues the deepest by name, and the rest as one."""
    of_queue = [name for name, family in FOUND.items() if family.labels[:1] == ("queue",)]
    depths: dict[str, float] = {}
    for name, queue, _, value in samples:
        if name == "cograil_queue_depth":
            depths[queue] = depths.get(queue, 0) + value
    if len(depths) <= MAX_QUEUES:
        return samples
    named = set(sorted(depths, key=lambda queue: (-depths[queue], queue))[:MAX_QUEUES])
    kept = [one for one in samples if one[0] not in of_queue or one[1] in named]
    rest: dict[tuple[str, str], float] = {}
    for name, queue, state, value in samples:
        if name in of_queue and queue not in named:
            so_far = rest.get((name, state), 0.0)
            rest[name, state] = so_far + value if name == "cograil_queue_depth" else max(so_far, value)
    return kept + [(name, OTHERS, state, value) for (name, state), value in rest.items()]


def exposition(
    samples: Iterable[Sample] | None, accept: str = "", others: Counts = NOTHING
) -> tuple[bytes, str]:
    """All counts of this process and of `others`, these samples of the database, and the kind of text.

    Without samples (None) it is for a port that others reach too: of requests and of the process, not of
    jobs. Who takes OpenMetrics gets exemplars with the ids of traces.
    """
    everything = CollectorRegistry()
    everything.register(_All(samples, others))
    if "application/openmetrics-text" in accept:
        return generate_open(everything), OPEN_CONTENT_TYPE  # type: ignore[no-untyped-call]
    return generate_latest(everything), CONTENT_TYPE


def count_request(method: str, status: int, seconds: float) -> None:
    """One answer over HTTP."""
    known = method if method in METHODS else "other"
    http_request_seconds.of(known, HUNDREDS[status // 100]).observe(seconds)
