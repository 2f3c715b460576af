"""Schedules: each moment leads to one job, however many schedulers look and however often."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.harness import Harness

from cograil.definitions import cron
from cograil.definitions.cron import check_calendar, first_moments, moments, moments_until
from cograil.errors import Conflict, InvalidInput, ScheduleNotFound, WorkflowNotFound
from cograil.model.schedule import SchedulePlan
from cograil.scheduler.schedule_loop import Scheduler
from cograil.verbs import schedules as verbs
from cograil.verbs.schedules import wanted_moments

HELLO = """
workflow_id: hello
inputs:
  name: {type: string, default: World}
  at: {type: string, required: false}
nodes:
  greet: {handler: hello_world, params: {name: "{{ inputs.name }}"}}
"""
EVERY_MINUTE = SchedulePlan("hello", "* * * * *")
PAST = "update cograil.schedules set next_at = date_trunc('minute', now()) - {} * interval '1 minute'"


@pytest.fixture
async def hello(harness: Harness) -> Harness:
    await harness.publish(HELLO)
    return harness


async def make(harness: Harness, plan: SchedulePlan = EVERY_MINUTE, name: str = "tick") -> None:
    async with harness.db.transaction("schedule") as tx:
        await verbs.create_schedule(tx, harness.engine_context, "default", name, plan)


async def fire(harness: Harness) -> verbs.Fired:
    async with harness.db.transaction("fire") as tx:
        return await verbs.fire_due(tx, harness.engine_context)


async def outcomes(harness: Harness) -> list[str]:
    return [
        outcome for (outcome,) in await harness.rows("select outcome from cograil.firings order by due_at")
    ]


def test_a_day_that_is_short_or_long_has_every_moment_once() -> None:
    spring = moments("30 2 * * *", "Europe/Paris", datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert next(spring) == datetime(2026, 3, 29, 1, tzinfo=UTC)  # 2:30 is leapt over: as soon as it can
    autumn = moments("30 2 * * *", "Europe/Paris", datetime(2026, 10, 24, 12, tzinfo=UTC))
    assert [next(autumn), next(autumn)] == [
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
        datetime(2026, 10, 26, 1, 30, tzinfo=UTC),
    ]


@pytest.mark.parametrize("cron", ["", "* * * *", "61 * * * *", "* * 31 2 *", "bad", "* " * 200])
def test_an_invalid_calendar_is_reported_with_its_place(cron: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_calendar(cron, "Mars/Olympus")
    assert [problem.pointer for problem in caught.value.problems] == ["/timezone", "/cron"]


def test_the_last_of_many_moments_are_kept() -> None:
    first = datetime(2026, 1, 1, tzinfo=UTC)
    moments = moments_until("* * * * *", "UTC", first, first + timedelta(days=2), 10)
    assert len(moments) == 10
    assert moments[-1] == first + timedelta(days=2)
    rare = moments_until("0 0 1 1 *", "UTC", first, datetime(2031, 6, 1, tzinfo=UTC), 10)
    assert [moment.year for moment in rare] == [2026, 2027, 2028, 2029, 2030, 2031]
    assert moments_until("* * * * *", "UTC", first, first, 10) == [first]
    summer = datetime(2026, 10, 24, tzinfo=UTC)  # and back, wherever one begins to look
    whole = moments_until("30 * * * *", "Europe/Paris", summer, summer + timedelta(days=9), 1000)
    assert (
        moments_until("30 * * * *", "Europe/Paris", summer, summer + timedelta(days=9), 150) == whole[-150:]
    )


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The moments that were worked out."""
    computed: list[datetime] = []

    def noted(cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
        for moment in moments(cron, timezone, after):
            computed.append(moment)
            yield moment

    monkeypatch.setattr(cron, "moments", noted)
    return computed


def test_years_in_which_nobody_looked_are_not_counted_minute_by_minute(looked_at: list[datetime]) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert len(moments_until("* * * * *", "UTC", now - timedelta(days=3000), now, 1000)) == 1000
    assert len(looked_at) < 5000
    looked_at.clear()
    assert len(first_moments("* * * * *", "UTC", datetime(1, 1, 1, tzinfo=UTC), now, 1001)) == 1001
    assert len(looked_at) <= 1001


@pytest.mark.parametrize(
    ("missed", "minutes", "wanted"),
    [
        ("once", [0], [0]),
        ("once", [5, 4, 3], [3]),
        ("once", [5, 0], [0]),
        ("all", [5, 4], [5, 4]),
        ("skip", [5, 4], []),
        ("skip", [5, 0], [0]),
    ],
)
def test_moments_that_nobody_looked_at(missed: str, minutes: list[int], wanted: list[int]) -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    came = [now - timedelta(minutes=minute) for minute in minutes]
    assert wanted_moments(came, now, missed) == [now - timedelta(minutes=minute) for minute in wanted]


async def test_a_moment_leads_to_one_job_that_knows_it(hello: Harness) -> None:
    await make(hello, SchedulePlan("hello", "* * * * *", input={"name": "Ada"}, due_input="at"))
    assert (await fire(hello)).submitted == 0  # not due yet
    await hello.rows(PAST.format(0))
    assert await fire(hello) == verbs.Fired(submitted=1)
    assert (await fire(hello)).submitted == 0
    ((job, inputs, labels),) = await hello.rows(
        "select id::text, input::text, labels::text from cograil.jobs"
    )
    ((due, fired_job),) = await hello.rows("select due_at, job_id::text from cograil.firings")
    assert fired_job == job
    moment = due.astimezone(UTC).isoformat().replace("+00:00", "Z")
    assert f'"at": "{moment}"' in inputs
    assert f'"due_at": "{moment}"' in labels
    ((next_at,),) = await hello.rows("select next_at > now() from cograil.schedules")
    assert next_at


async def test_many_who_look_at_once_fire_once(hello: Harness) -> None:
    for number in range(20):
        await make(hello, name=f"s{number}")
    await hello.rows(PAST.format(0))
    fired = await asyncio.gather(*(fire(hello) for _ in range(6)))
    assert sum(firing.submitted for firing in fired) == 20
    assert (await hello.rows("select count(*) from cograil.jobs"))[0][0] == 20


async def test_a_scheduler_that_dies_in_between_has_fired_nothing(hello: Harness) -> None:
    await make(hello)
    await hello.rows(PAST.format(0))

    async def fire_and_die() -> None:
        async with hello.db.transaction("fire") as tx:
            assert (await verbs.fire_due(tx, hello.engine_context)).submitted == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fire_and_die()
    assert await hello.rows("select 1 from cograil.jobs") == []
    assert (await fire(hello)).submitted == 1


async def test_while_the_last_job_is_under_way(hello: Harness) -> None:
    await make(hello, name="skips")
    await make(hello, SchedulePlan("hello", "* * * * *", overlap="allow"), name="allows")
    await make(hello, SchedulePlan("hello", "* * * * *", overlap="cancel"), name="cancels")
    await hello.rows(PAST.format(0))
    await fire(hello)
    await hello.rows("update cograil.firings set due_at = due_at - interval '1 minute'")
    await hello.rows(PAST.format(0))
    await fire(hello)
    firings = await hello.rows("""
        select f.schedule, f.outcome, j.status
        from cograil.firings f left join cograil.jobs j on j.id = f.job_id
        order by f.schedule, f.due_at""")
    by_name: dict[str, list[tuple[str, str | None]]] = {}
    for name, outcome, status in firings:
        by_name.setdefault(name, []).append((outcome, status))
    assert by_name["skips"][-1] == ("overlapped", None)
    assert by_name["allows"][-2:] == [("submitted", "running"), ("submitted", "running")]
    assert by_name["cancels"][-2:] == [("submitted", "cancelled"), ("submitted", "running")]


async def test_a_schedule_without_overlap_stays_so_when_missed_moments_are_made_good(hello: Harness) -> None:
    await make(hello, SchedulePlan("hello", "* * * * *", missed="all"))
    await hello.rows(PAST.format(9))
    await fire(hello)
    assert await outcomes(hello) == ["overlapped"] * 9 + ["submitted"]


async def test_missed_moments_are_made_good_as_configured(hello: Harness) -> None:
    await make(hello, name="once")
    await make(hello, SchedulePlan("hello", "* * * * *", missed="all", overlap="allow"), name="all")
    await make(hello, SchedulePlan("hello", "* * * * *", missed="skip"), name="skip")
    await hello.rows(PAST.format(9))
    await fire(hello)
    firings = await hello.rows(
        "select schedule, outcome, count(*) from cograil.firings group by 1, 2 order by 1, 2"
    )
    counted = {(name, outcome): count for name, outcome, count in firings}
    assert counted[("all", "submitted")] == 10
    assert counted[("once", "submitted")] == 1
    assert counted[("skip", "missed")] >= 8


async def test_a_workflow_that_refuses_does_not_stop_the_others(hello: Harness) -> None:
    await make(hello, name="bad")
    await make(hello, name="good")
    await hello.rows("update cograil.schedules set input = '{\"unknown\": 1}' where name = 'bad'")
    await hello.rows(PAST.format(0))
    assert await fire(hello) == verbs.Fired(submitted=1, passed_over=1)
    ((error,),) = await hello.rows("select error ->> 'code' from cograil.firings where outcome = 'refused'")
    assert error == "invalid_input"


async def test_a_schedule_with_an_unknown_time_zone_does_not_stop_the_others(hello: Harness) -> None:
    await make(hello, name="odd")
    await make(hello, name="good")
    await hello.rows("update cograil.schedules set timezone = 'Mars/Olympus' where name = 'odd'")
    await hello.rows(PAST.format(0))
    assert await fire(hello) == verbs.Fired(submitted=1)
    ((by, why),) = await hello.rows(
        "select paused_by, paused_for from cograil.schedules where paused_at is not null"
    )
    assert by == "cograil"
    assert "Mars/Olympus" in why


async def test_pause_passes_over_and_resume_makes_nothing_good(hello: Harness) -> None:
    await make(hello)
    async with hello.db.transaction("schedule") as tx:
        await verbs.pause_schedule(tx, "default", "tick", by="ada", reason="tea")
    await hello.rows(PAST.format(3))
    assert await fire(hello) == verbs.Fired()
    async with hello.db.transaction("schedule") as tx:
        with pytest.raises(Conflict):
            await verbs.pause_schedule(tx, "default", "tick")
        shown = await verbs.resume_schedule(tx, "default", "tick")
    assert shown["paused_at"] is None
    assert await fire(hello) == verbs.Fired()


async def test_backfill_makes_good_what_led_to_no_job_and_nothing_twice(hello: Harness) -> None:
    await make(hello, SchedulePlan("hello", "0 0 * * *"))
    first, until = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 10, tzinfo=UTC)
    async with hello.db.transaction("schedule") as tx:
        backfilled = await verbs.backfill(
            tx, hello.engine_context, "default", "tick", first, until, is_preview=True
        )
    assert (backfilled["submitted"], len(backfilled["moments"])) == (10, 10)
    assert await hello.rows("select 1 from cograil.jobs") == []
    async with hello.db.transaction("schedule") as tx:
        half = datetime(2026, 1, 5, tzinfo=UTC)
        assert (await verbs.backfill(tx, hello.engine_context, "default", "tick", first, half))[
            "submitted"
        ] == 5
    async with hello.db.transaction("schedule") as tx:
        done = await verbs.backfill(tx, hello.engine_context, "default", "tick", first, until)
    assert (done["submitted"], done["kept"]) == (5, 5)
    assert await outcomes(hello) == ["submitted"] * 10


async def test_a_backfilled_moment_is_not_fired_by_the_clock(hello: Harness) -> None:
    await make(hello)
    await hello.rows(PAST.format(0))
    async with hello.db.transaction("schedule") as tx:
        first = tx.now - timedelta(minutes=2)
        await verbs.backfill(tx, hello.engine_context, "default", "tick", first, tx.now)
    before = await hello.rows("select count(*) from cograil.jobs")
    assert await fire(hello) == verbs.Fired()
    assert await hello.rows("select count(*) from cograil.jobs") == before


async def test_an_invalid_schedule_is_refused(hello: Harness) -> None:
    now = datetime.now(UTC)
    async with hello.db.transaction("schedule") as tx:
        with pytest.raises(WorkflowNotFound):
            await verbs.create_schedule(
                tx, hello.engine_context, "default", "x", SchedulePlan("nobody", "* * * * *")
            )
        with pytest.raises(InvalidInput):
            await verbs.create_schedule(tx, hello.engine_context, "default", "a b", EVERY_MINUTE)
        bad = SchedulePlan("hello", "* * * * *", input={"unknown": 1})
        with pytest.raises(InvalidInput):
            await verbs.create_schedule(tx, hello.engine_context, "default", "x", bad)
        await verbs.create_schedule(tx, hello.engine_context, "default", "x", EVERY_MINUTE)
        with pytest.raises(Conflict):
            await verbs.create_schedule(tx, hello.engine_context, "default", "x", EVERY_MINUTE)
        with pytest.raises(ScheduleNotFound):
            await verbs.show_schedule(tx, "another", "x")
        for first, until in (
            (now, now),
            (now, now + timedelta(days=1)),
            (now - timedelta(days=9), now),
            (datetime(1, 1, 1, tzinfo=UTC), now),  # would be a thousand million moments
        ):
            with pytest.raises(InvalidInput):
                await verbs.backfill(tx, hello.engine_context, "default", "x", first, until)


async def test_the_clock_hears_of_changes_and_fires(hello: Harness, eventually: object) -> None:
    scheduler = Scheduler(hello.db, hello.engine_context)
    running = asyncio.create_task(scheduler.run())
    try:
        await make(hello)
        await hello.rows(PAST.format(0))
        await hello.rows("select pg_notify('cograil_schedules', '')")
        await eventually(lambda: hello.rows("select 1 from cograil.firings"))  # type: ignore[operator]
    finally:
        scheduler.stop()
        await running
