"""What /metrics says: the names of the house, few labels, and numbers that are so."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families
from tests.support.api_client import ApiClient, serve_api
from tests.support.harness import Harness

from cograil import metrics
from cograil.definitions import read_workflow
from cograil.processes.process_readiness import ProcessHealth
from cograil.verbs.publish import publish

TWO = "workflow_id: two\nnodes: {a: {handler: echo}, b: {handler: echo, queue: gpu}}\n"
SLOW = "workflow_id: slow\nnodes: {a: {type: wait, wait: {seconds: 3600}}}\n"


async def told(harness: Harness) -> dict[str, float]:
    """All samples, as a process that sees all tenants tells them."""
    text, _ = metrics.exposition(await ProcessHealth(harness.db, {}).samples())
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


async def test_every_family_is_told_and_no_other(harness: Harness) -> None:
    text, _ = metrics.exposition(await ProcessHealth(harness.db, {}).samples())
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    ours = {name for name in families if not name.startswith("process_")}
    expected = {name.removesuffix("_total") for name in metrics.PROCESS_METRICS} | set(
        metrics.DATABASE_METRICS
    )
    assert ours == expected
    for name, family in (metrics.PROCESS_METRICS | metrics.DATABASE_METRICS).items():
        assert families[name.removesuffix("_total")].type == family.kind
        labels = {
            label for sample in families[name.removesuffix("_total")].samples for label in sample.labels
        }
        assert labels <= {*family.labels, "le"}


async def test_queues_jobs_and_processes_are_as_the_database_has_them(harness: Harness) -> None:
    for _ in range(3):
        await harness.submit(TWO)
    await harness.submit(SLOW)
    worker = await harness.manual_worker()
    for _ in range(3):
        await worker.claim(queues=["gpu"])
    samples = await told(harness)
    assert samples['cograil_queue_depth{queue="default",state="ready"}'] == 3
    assert samples['cograil_queue_depth{queue="gpu",state="running"}'] == 3
    assert 0 <= samples['cograil_oldest_ready_seconds{queue="default"}'] < 60
    assert 'cograil_oldest_ready_seconds{queue="gpu"}' not in samples
    assert samples['cograil_jobs{status="running"}'] == 4
    assert samples['cograil_jobs{status="pending"}'] == 0
    assert samples['cograil_processes{kind="worker"}'] == 1
    assert samples['cograil_processes{kind="orchestrator"}'] == 0
    assert samples["cograil_outbox_lag_seconds"] == 0


async def test_jobs_of_all_tenants_are_counted(harness: Harness) -> None:
    async with harness.db.transaction("publish") as tx:
        await publish(tx, read_workflow(SLOW), SLOW, "other")
    await harness.submit(SLOW)
    await harness.rows("select cograil.submit('slow', tenant => 'other')")
    samples = await told(harness)
    assert (samples['cograil_jobs{status="running"}'], samples['cograil_jobs{status="pending"}']) == (1, 1)


async def test_news_and_old_snapshots_have_an_age(harness: Harness) -> None:
    await harness.submit(TWO)
    worker = await harness.manual_worker()
    await worker.report(await worker.claim_one(), {})
    await harness.rows("update cograil.inbox set at = now() - interval '90 seconds' returning 1")
    async with harness.db.transaction("show") as tx:
        await tx.connection.execute("select count(*) from cograil.jobs")
        await tx.connection.execute("select pg_current_xact_id()")
        samples = await told(harness)
    assert 89 < samples["cograil_inbox_oldest_seconds"] < 120
    assert 0 < samples["cograil_db_oldest_xmin_seconds"] < 60


async def test_an_event_that_is_due_and_not_sent_is_a_lag(harness: Harness) -> None:
    await harness.submit(TWO, callback={"url": "https://example.org/told"})
    await harness.rows("update cograil.outbox set at = now() - interval '50 seconds' returning 1")
    assert 49 < (await told(harness))["cograil_outbox_lag_seconds"] < 80


async def test_a_job_is_counted_once_it_is_committed(harness: Harness) -> None:
    before = await told(harness)
    async with harness.running():
        assert (await harness.ended(await harness.submit(TWO)))["status"] == "completed"
    after = await told(harness)

    def grown(name: str) -> float:
        return after[name] - before[name]

    assert grown("cograil_jobs_submitted_total") == 1
    assert grown('cograil_jobs_ended_total{status="completed"}') == 1
    assert grown('cograil_job_run_seconds_count{status="completed"}') == 1
    assert grown("cograil_job_wait_seconds_count") == 1
    waited, ran = (
        grown("cograil_job_wait_seconds_sum"),
        grown('cograil_job_run_seconds_sum{status="completed"}'),
    )
    assert 0 <= waited <= ran < 20


async def test_rolled_back_changes_are_never_counted(harness: Harness) -> None:
    before = (await told(harness))["cograil_jobs_submitted_total"]
    noted: list[str] = []
    try:
        async with harness.db.transaction("submit") as tx:
            tx.afterwards(lambda: noted.append("never"))
            raise RuntimeError
    except RuntimeError:
        pass
    async with harness.db.transaction("submit") as tx:
        tx.afterwards(lambda: noted.append("once"))
        assert noted == []
    assert noted == ["once"]
    assert (await told(harness))["cograil_jobs_submitted_total"] == before


async def test_a_lease_that_ended_is_counted(harness: Harness) -> None:
    await harness.manual_worker(lease_seconds=-1.0)
    assert (await harness.tick()).dead == 1
    assert (await harness.tick()).dead == 0


async def test_openmetrics_has_the_traces_of_jobs(harness: Harness, dsn: str) -> None:
    trace = "c" * 32
    async with harness.running():
        await harness.ended(await harness.submit(TWO, trace_parent=f"00-{trace}-{'d' * 16}-01"))
    async with serve_api(harness, dsn) as api:
        answer = await api.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
        plain = await api.get("/metrics")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.raw.endswith(b"# EOF\n")
    assert re.search(
        rf'cograil_job_run_seconds_bucket{{.*}} .* # {{trace_id="{trace}"}}', answer.raw.decode()
    )
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert trace.encode() not in plain.raw


async def test_requests_are_counted_by_method_and_hundreds(harness: Harness, api: ApiClient) -> None:
    def count(status: str) -> float:
        labels = {"method": "GET", "status": status}
        return metrics.REGISTRY.get_sample_value("cograil_http_request_seconds_count", labels) or 0

    good, bad = count("2xx"), count("4xx")
    await api.get("/api/v1/jobs")
    await api.get("/api/v1/jobs/nothing")
    assert (count("2xx") - good, count("4xx") - bad) == (1, 1)


def test_the_deepest_of_many_queues_are_named_and_the_rest_is_one() -> None:
    samples = [("cograil_queue_depth", f"q{number}", "ready", float(number)) for number in range(1, 301)]
    samples += [("cograil_oldest_ready_seconds", f"q{number}", "", float(number)) for number in range(1, 301)]
    text, _ = metrics.exposition(samples)
    lines = [line for line in text.decode().splitlines() if line.startswith("cograil_queue_depth{")]
    assert len(lines) == metrics.MAX_QUEUES + 1
    assert f'cograil_queue_depth{{queue="others",state="ready"}} {float(sum(range(1, 201)))}' in lines
    assert 'cograil_oldest_ready_seconds{queue="others"} 200.0' in text.decode()


def test_public_metrics_have_nothing_of_jobs() -> None:
    text, _ = metrics.exposition(None)
    names = {family.name for family in text_string_to_metric_families(text.decode())}
    assert {name for name in names if name.startswith("cograil_") and not name.endswith("_created")} == {
        "cograil_build_info",
        "cograil_http_request_seconds",
    }
