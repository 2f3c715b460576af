"""A process whose clock is off: what it tells and compares with the database goes by PostgreSQL's clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from tests.conftest import Eventually
from tests.support.harness import Harness
from tests.support.webhook_receiver import open_receiver, relay_settings, run_relay

from cograil import clock
from cograil.model.ids import new_id
from cograil.model.outcome import Failed
from cograil.processes.process_readiness import ProcessHealth
from cograil.settings import Settings
from cograil.store.doctor import check_liveness
from cograil.verbs.advance import advance_one

HOUR = 3600.0


@pytest.fixture
def harness_settings() -> Settings:
    return relay_settings()


ONE = "workflow_id: one\nnodes:\n  only: {handler: hello_world, params: {name: x}}\n"
RETRIED = """
workflow_id: retried
nodes:
  only: {handler: x, retry: {max_attempts: 2, backoff: fixed, initial_delay_seconds: 5}}
"""


@pytest.fixture
def fast_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's clock is an hour ahead; its monotonic one goes as ever."""
    true_time = time.time
    monkeypatch.setattr(clock, "_base", None)
    monkeypatch.setattr(clock, "_has_warned", False)
    monkeypatch.setattr(time, "time", lambda: true_time() + HOUR)


@pytest.mark.usefixtures("fast_clock")
async def test_the_time_is_the_databases_once_it_was_asked(harness: Harness) -> None:
    async with harness.db.transaction("test") as tx:
        database_time = tx.now
    assert abs((clock.now() - database_time).total_seconds()) < 5
    assert clock.offset_seconds() == pytest.approx(HOUR, abs=5)
    async with harness.db.single("test") as tx:
        assert abs((tx.now - database_time).total_seconds()) < 5
    born = datetime.fromtimestamp(int(new_id().replace("-", "")[:12], 16) / 1000, UTC)
    assert abs((born - database_time).total_seconds()) < 5


@pytest.mark.usefixtures("fast_clock")
async def test_readyz_and_the_doctor_warn(harness: Harness) -> None:
    checks = await ProcessHealth(harness.db, {}).checks()
    assert checks["clock"].startswith("degraded: this machine's clock is 3600")
    assert "ahead of PostgreSQL's clock; synchronize it with NTP" in checks["clock"]
    async with harness.running():
        for _ in range(100):
            async with harness.db.single("test") as tx:
                findings = [finding for finding in await check_liveness(tx) if finding.code == "L9"]
            if findings and findings[0].count == 2:
                break
            await asyncio.sleep(0.05)
    assert [id_line.split()[0] for id_line in findings[0].ids] == ["orchestrator", "worker"]


@pytest.mark.usefixtures("fast_clock")
async def test_every_process_logs_a_wrong_clock_once(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """Relays, servers and gateways too, which the doctor does not list."""
    for _ in range(3):
        async with harness.db.transaction("test"):
            pass
    (record,) = [record for record in caplog.records if record.name == "clock"]
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("this machine's clock is 3600")


async def test_a_clock_that_is_right_is_no_finding(harness: Harness) -> None:
    async with harness.running():
        await harness.ended(await harness.submit(ONE))
        async with harness.db.single("test") as tx:
            assert [finding for finding in await check_liveness(tx) if finding.code == "L9"] == []
    assert (await ProcessHealth(harness.db, {}).checks())["clock"] == "ok"


@pytest.mark.usefixtures("fast_clock")
async def test_callbacks_are_signed_by_the_databases_time(harness: Harness, eventually: Eventually) -> None:
    harness.engine_context.outbound = harness.settings.outbound
    async with open_receiver() as receiver, run_relay(harness), harness.running():
        await harness.ended(await harness.submit(ONE, callback=receiver.callback()))
        await eventually(lambda: receiver.requests)
    ((now,),) = await harness.rows("select extract(epoch from now())::float8")
    assert abs(int(receiver.requests[0].headers["webhook-timestamp"]) - now) < 30


def test_a_clock_estimate_is_not_replaced_by_a_worse_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_base", None)
    began = time.monotonic()
    clock.synchronize(datetime.now(UTC), began)
    known = clock._base
    clock.synchronize(
        datetime.now(UTC) - timedelta(seconds=0.5), began - 1.5
    )  # took long, and says nothing new
    assert known is not None
    assert clock._base == known
    clock.synchronize(datetime.now(UTC) + timedelta(seconds=9), time.monotonic())
    assert clock._base == pytest.approx(known + 9, abs=0.5)


async def test_a_delay_begins_when_its_attempt_has_failed(harness: Harness) -> None:
    """Not when the transaction began that learnt of it, which may have waited for a lock since."""
    job = await harness.submit(RETRIED)
    worker = await harness.manual_worker()
    item = await worker.claim_one()
    async with harness.db.transaction("advance") as tx:
        await asyncio.sleep(0.3)
        await worker.report(item, Failed("broken", "it broke"))
        ((reported_at,),) = await harness.rows("select clock_timestamp()")
        await advance_one(tx, harness.engine_context, job)
    ((not_before,),) = await harness.rows("select not_before from cograil.nodes where node_id = 'only'")
    assert (not_before - reported_at).total_seconds() > 4.9
