"""What /metrics says of container jobs: the names of the service before this one, and few labels."""

from __future__ import annotations

import asyncio
import time

from tests.apps.containers.container_site import ContainerSite, working
from tests.support.webhook_receiver import OK, http_response

from cograil import metrics
from cograil.apps.containers.metrics import path_label
from cograil.apps.containers.queries import sample_container_metrics
from cograil.processes.process_readiness import ProcessHealth

RUNNING = "echo up; while true; do sleep 0.1; done"


async def counted(site: ContainerSite) -> dict[str, float]:
    """What /metrics of `up` or a worker says now, by name and labels."""
    return by_name(
        metrics.exposition(
            await ProcessHealth(site.lab.db, {}, samples=[sample_container_metrics]).samples()
        )[0]
    )


def by_name(metrics: bytes) -> dict[str, float]:
    samples = (line.rsplit(" ", 1) for line in metrics.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


class Growth:
    """By how much counts have grown in this test: others of this process have counted before."""

    def __init__(self, site: ContainerSite, before: dict[str, float]) -> None:
        self.site = site
        self.before = before

    async def of(self, name: str) -> float:
        return (await counted(self.site)).get(name, 0.0) - self.before.get(name, 0.0)

    async def reaches(self, name: str, value: float) -> None:
        until = time.monotonic() + 20
        while (current := await self.of(name)) != value:
            assert time.monotonic() < until, f"{name}: {current}, not {value}"
            await asyncio.sleep(0.05)


async def growing(site: ContainerSite) -> Growth:
    return Growth(site, await counted(site))


async def test_jobs_are_counted_once_from_their_beginning_to_their_end(site: ContainerSite) -> None:
    grown = await growing(site)
    async with working(site.lab):
        await site.start("good", "true")
        await site.start("bad", "exit 3")
        await site.start("long", RUNNING)
        await site.until("long", "running")
        await site.until("good", "completed")
        await site.until("bad", "failed")
        await grown.reaches('job_duration_seconds_count{status="completed"}', 1)
        await grown.reaches('job_errors_total{code="exit_code"}', 1)
        assert (await counted(site))["jobs_active"] == 1
        assert (await site.call("DELETE", "/long")).status == 204
        assert (await counted(site))["jobs_active"] == 0
        assert await grown.of('job_duration_seconds_count{status="cancelled"}') == 1
        await site.swept()
    assert await grown.of("jobs_total") == 3
    for word in ("completed", "failed", "cancelled"):
        assert await grown.of(f'job_duration_seconds_count{{status="{word}"}}') == 1


async def test_requests_are_counted_by_route_and_kind_of_answer(site: ContainerSite) -> None:
    grown = await growing(site)
    await site.call("GET")
    for name in ("a", "b", "c"):
        assert (await site.call("GET", f"/{name}")).status == 404
    assert (await site.post("no spaces")).status == 400
    assert await grown.of('http_requests_total{method="GET",path="/v1/jobs",status="2xx"}') == 1
    missed = '{method="GET",path="/v1/jobs/{jobId}",status="4xx"}'
    assert await grown.of(f"http_errors_total{missed}") == 3
    assert await grown.of(f"http_request_duration_seconds_count{missed}") == 3
    assert await grown.of('http_errors_total{method="POST",path="/v1/jobs",status="4xx"}') == 1
    assert await grown.of('http_errors_total{method="GET",path="/v1/jobs",status="2xx"}') == 0


def test_request_metrics_have_three_path_labels() -> None:
    paths = ("/v1/jobs", "/v1/jobs/x", "/v1/jobs/y", "/v1/jobs/x/y", "/v1/jobs/", "/v1/jobsworth")
    assert {path_label(path) for path in paths} == {"/v1/jobs", "/v1/jobs/{jobId}", "other"}


async def test_deliveries_are_counted_as_those_of_a_dispatcher(site: ContainerSite) -> None:
    """The first is tried again, the second is refused for good; meanwhile both are seen to wait."""
    grown = await growing(site)
    answers = iter([http_response(503), OK, http_response(400)])
    site.receiver.script = lambda _: next(answers)
    site.receiver.gate.clear()
    async with working(site.lab):
        await site.start("told", "true", callback=site.callback("start", "exit"))
        await site.until("told", "completed")
        await grown.reaches("dispatcher_queue_size", 2)
        site.receiver.gate.set()
        await grown.reaches("dispatcher_failed_total", 1)
        await grown.reaches("dispatcher_queue_size", 0)
    assert await grown.of("dispatcher_requeued_total") >= 1
    assert await grown.of("dispatcher_delivered_total") == 1
    assert await grown.of("dispatcher_duration_seconds_count") == 1
    assert await grown.of("dispatcher_dropped_total") == 0


async def test_a_server_that_sees_one_tenant_says_nothing_of_all(site: ContainerSite) -> None:
    await site.start("waits", "true")
    metrics = by_name((await site.api.call("GET", "/metrics")).raw)
    assert metrics["jobs_total"] >= 1
    assert not {"jobs_active", "dispatcher_queue_size"} & metrics.keys()


def test_counts_of_another_process_are_added_to_our_own() -> None:
    metrics.http_requests.labels("GET", "/v1/jobs", "2xx").inc()
    labels = {"method": "GET", "path": "/v1/jobs", "status": "2xx"}
    name = 'http_requests_total{method="GET",path="/v1/jobs",status="2xx"}'
    own = by_name(metrics.exposition([])[0])
    others = {"http_requests": [("http_requests_total", labels, 5.0)]}
    assert by_name(metrics.exposition([], others=others)[0])[name] == own[name] + 5
    assert not [sample for sample in own if sample.split("{")[0].endswith("_created")]
    assert "process_open_fds" not in metrics.collect_counts()
