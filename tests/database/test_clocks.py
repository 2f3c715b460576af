"""A process whose clock is off: what it tells and compares with the database goes by PostgreSQL's clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from lab import Lab
from receivers import receiving, relay_settings, relaying
from tests.conftest import Eventually

from cograil import clock
from cograil.model.ids import new_id
from cograil.model.outcome import Failed
from cograil.processes.process_readiness import Health
from cograil.settings import Settings
from cograil.store.doctor import check_liveness
from cograil.verbs.advance import advance_one

HOUR = 3600.0


@pytest.fixture
def lab_settings() -> Settings:
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
async def test_the_time_is_the_databases_once_it_was_asked(lab: Lab) -> None:
    async with lab.db.transaction("test") as tx:
        told = tx.now
    assert abs((clock.now() - told).total_seconds()) < 5
    assert clock.offset_seconds() == pytest.approx(HOUR, abs=5)
    async with lab.db.single("test") as tx:
        assert abs((tx.now - told).total_seconds()) < 5
    born = datetime.fromtimestamp(int(new_id().replace("-", "")[:12], 16) / 1000, UTC)
    assert abs((born - told).total_seconds()) < 5


@pytest.mark.usefixtures("fast_clock")
async def test_readyz_and_the_doctor_warn(lab: Lab) -> None:
    checks = await Health(lab.db, {}).checks()
    assert checks["clock"].startswith("degraded: this machine's clock is 3600")
    assert "ahead of PostgreSQL's clock; synchronize it with NTP" in checks["clock"]
    async with lab.running():
        for _ in range(100):
            async with lab.db.single("test") as tx:
                findings = [one for one in await check_liveness(tx) if one.code == "L9"]
            if findings and findings[0].count == 2:
                break
            await asyncio.sleep(0.05)
    assert [one.split()[0] for one in findings[0].ids] == ["orchestrator", "worker"]


@pytest.mark.usefixtures("fast_clock")
async def test_every_process_logs_a_wrong_clock_once(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """Relays, servers and gateways too, which the doctor does not list."""
    for _ in range(3):
        async with lab.db.transaction("test"):
            pass
    (record,) = [record for record in caplog.records if record.name == "clock"]
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("this machine's clock is 3600")


async def test_a_clock_that_is_right_is_no_finding(lab: Lab) -> None:
    async with lab.running():
        await lab.ended(await lab.submit(ONE))
        async with lab.db.single("test") as tx:
            assert [one for one in await check_liveness(tx) if one.code == "L9"] == []
    assert (await Health(lab.db, {}).checks())["clock"] == "ok"


@pytest.mark.usefixtures("fast_clock")
async def test_callbacks_are_signed_by_the_databases_time(lab: Lab, eventually: Eventually) -> None:
    lab.engine_context.outbound = lab.settings.outbound
    async with receiving() as receiver, relaying(lab), lab.running():
        await lab.ended(await lab.submit(ONE, callback=receiver.callback()))
        await eventually(lambda: receiver.requests)
    ((now,),) = await lab.rows("select extract(epoch from now())::float8")
    assert abs(int(receiver.requests[0].headers["webhook-timestamp"]) - now) < 30


def test_what_is_known_better_is_not_made_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_base", None)
    began = time.monotonic()
    clock.synchronize(datetime.now(UTC), began)
    known = clock._base
    clock.synchronize(
        datetime.now(UTC) - timedelta(seconds=0.5), began - 1.5
    )  # took long, and says nothing new
    assert clock._base == known
    clock.synchronize(datetime.now(UTC) + timedelta(seconds=9), time.monotonic())
    assert clock._base == pytest.approx(known + 9, abs=0.5)


async def test_a_delay_begins_when_its_attempt_has_failed(lab: Lab) -> None:
    """Not when the transaction began that learnt of it, which may have waited for a lock since."""
    job = await lab.submit(RETRIED)
    hand = await lab.hand()
    item = await hand.claim_one()
    async with lab.db.transaction("advance") as tx:
        await asyncio.sleep(0.3)
        await hand.report(item, Failed("broken", "it broke"))
        ((reported_at,),) = await lab.rows("select clock_timestamp()")
        await advance_one(tx, lab.engine_context, job)
    ((not_before,),) = await lab.rows("select not_before from cograil.nodes where node_id = 'only'")
    assert (not_before - reported_at).total_seconds() > 4.9
