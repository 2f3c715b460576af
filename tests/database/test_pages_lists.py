"""Pages outside of one job, as requests: subscriptions, keys, settings, approvals, workers, health, words."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_client import ApiClient
from tests.support.harness import Harness
from tests.support.page_client import PageClient

import cograil.ui
from cograil.model.schedule import SchedulePlan
from cograil.ui.rendering import detail, size
from cograil.ui.times import due, exact, read_wall_time, timed
from cograil.verbs.schedules import create_schedule, run_schedule

ASK = """
workflow_id: ask
inputs: {amount: {type: number}}
nodes:
  question:
    type: approval
    approval:
      message: "Pay back {{ inputs.amount }}?"
      approvers: [ada, grace]
      form:
        type: object
        properties: {method: {enum: [card, cash]}, sure: {type: boolean}}
        required: [method, sure]
"""
# Phrases that were on the pages; people look for the words of the field.
BANNED = (
    "Under way",
    ">Well<",
    ">95 %<",
    "Make good",
    "Make it<",
    "thing to mend",
    "Nobody was told",
    "Who is there",
    "Dark or light",
    "What to do<",
)
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


@pytest.fixture
def browser(api: ApiClient) -> PageClient:
    return PageClient(api)


async def text_of(browser: PageClient, path: str) -> str:
    page = await browser.get(path)
    assert page.status == 200, page.raw
    return page.raw.decode()


async def test_a_subscription_is_added_shown_once_with_its_secret_and_removed(
    browser: PageClient, harness: Harness
) -> None:
    token = await browser.token("/ui/deliveries")
    url = "https://example.com/mine"
    wrong = await browser.post("/ui/subscriptions", {"token": token, "url": "gopher://x"})
    assert (wrong.status, b'role="alert"' in wrong.raw) == (422, True)
    form = {"token": token, "url": url, "types": "cograil.job.completed, cograil.job.failed"}
    made = await browser.post("/ui/subscriptions", form)
    assert made.status == 200
    secret = re.search(rb"whsec_[\w+/=-]+", made.raw)
    assert secret is not None
    page = await browser.get("/ui/deliveries")
    assert (url.encode() in page.raw, secret[0] in page.raw) == (True, False)
    ((subscription,),) = await harness.rows("select id::text from cograil.subscriptions")
    assert (await browser.post("/ui/subscriptions", {"url": url})).status == 403  # without the token
    done = await browser.post(
        f"/ui/subscriptions/{subscription}/remove", {"token": token, "confirmed": "yes"}
    )
    assert done.status == 303
    assert url.encode() not in (await browser.get("/ui/deliveries")).raw
    actions = await harness.rows("select action from cograil.audit_log order by id")
    assert actions == [("subscribe",), ("unsubscribe",)]


async def test_admins_see_the_keys_of_their_tenant_and_no_secret(browser: PageClient) -> None:
    key = await browser.api.make_key("admin", name="ada")
    foreign = await browser.api.make_key("admin", tenant="other", name="eve")
    await browser.login(key)
    page = await text_of(browser, "/ui/keys")
    assert "ada" in page
    assert f"cograil keys revoke {key.split('_')[1]}" in page
    assert key not in page
    assert key.split("_", 2)[2] not in page
    assert foreign.split("_")[1] not in page


async def test_settings_are_shown_with_masked_passwords(browser: PageClient) -> None:
    page = await text_of(browser, "/ui/settings")
    assert "COGRAIL_LEASE__SECONDS" in page
    assert not re.search(r"://[^:@/<]+:(?!\*)[^@<]+@", page)


async def test_an_approval_shows_message_and_input_and_preselects_nothing(
    browser: PageClient, harness: Harness
) -> None:
    await harness.publish(ASK)
    async with harness.running():
        await browser.api.submit("ask", input_params={"amount": 120})
        page = await _page_with(browser, "Pay back 120?")
    assert '"amount": 120' in page.replace("&#34;", '"')
    assert "Approve “Pay back 120?”?" in page
    for name in ("by", "data.json.method", "data.json.sure"):
        assert re.search(rf'<select[^>]* name="{name}" required><option value="">choose…', page) or (
            re.search(rf'<select name="{name}" required><option value="">choose…', page)
        ), name


async def test_a_job_that_waits_is_waiting_on_every_page_and_its_times_are_elements(
    browser: PageClient, harness: Harness
) -> None:
    await harness.publish("workflow_id: pause\nnodes: {w: {type: wait, wait: {seconds: 90000}}}")
    async with harness.db.transaction("schedule") as tx:
        await create_schedule(
            tx, harness.engine_context, "default", "often", SchedulePlan("pause", "* * * * *")
        )
        job_id = (await run_schedule(tx, harness.engine_context, "default", "often"))["job_id"]
    await harness.advance()
    for path in (f"/ui/jobs/{job_id}/timeline", f"/ui/jobs/{job_id}/logs", "/ui/schedules/often"):
        page = await text_of(browser, path)
        assert "for a timer" in page, path
        assert 'class="badge running"' not in page, path
    page = await text_of(browser, f"/ui/jobs/{job_id}/timeline")
    assert "waits until <time" in page
    assert 'class="fill-waiting"' in page


async def _page_with(browser: PageClient, text: str) -> str:
    for _ in range(200):
        page = await text_of(browser, "/ui/approvals")
        if text in page:
            return page
    raise AssertionError(f"{text!r} does not appear")


async def test_workers_show_load_host_and_version(browser: PageClient, harness: Harness) -> None:
    async with harness.running():
        page = await text_of(browser, "/ui/workers")
        for _ in range(200):
            if "slots" in page:
                break
            page = await text_of(browser, "/ui/workers")
    assert re.search(r"0 of \d+ slots", page)
    assert re.search(r"pid \d+", page)
    assert re.search(r'data-name="Version">\d+\.\d+', page)
    orchestrators = page.partition('data-region="orchestrators"')[2]
    assert "Queues</th>" not in orchestrators
    assert "Handlers</th>" not in orchestrators


async def test_an_orchestrator_keeps_its_host_and_version_while_it_runs(
    harness: Harness, eventually: Any
) -> None:
    async def after_a_tick() -> list[Any]:
        return await harness.rows(
            "select info ->> 'host', info ->> 'version' from cograil.processes"
            " where kind = 'orchestrator' and info ? 'clock_offset_seconds'"
        )

    async with harness.orchestrator():
        ((host, version),) = await eventually(after_a_tick)
    assert host
    assert version


def test_health_has_human_units() -> None:
    assert detail("free_bytes", 55472504832) == ("free", "51.7 GiB")
    assert detail("oldest_seconds", None) == ("oldest", "—")
    assert detail("missing", ["a", "b"]) == ("missing", "a, b")
    assert (size(0), size(1023), size(1536)) == ("0 B", "1,023 B", "1.5 KiB")


def test_a_time_has_its_date_and_its_zone() -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert re.search(DATE, str(exact(tomorrow)))
    assert 'data-style="both"' in str(due(tomorrow))
    sentence = timed("a <b> until 2026-11-19T10:53:29.123+00:00 at most")
    assert "&lt;b&gt;" in sentence
    assert ">2026-11-19 10:53:29 UTC</time> at most" in sentence
    assert read_wall_time("2026-01-01T13:30", "Asia/Tokyo") == datetime(2026, 1, 1, 4, 30, tzinfo=UTC)
    for text, zone in (("odd", "UTC"), ("2026-01-01T13:30", "Nowhere/Land"), ("2026-01-01T13:30", "../etc")):
        with pytest.raises(ValueError, match=r"is not|Invalid"):
            read_wall_time(text, zone)


def test_pages_use_the_words_of_the_field() -> None:
    for path in sorted((Path(cograil.ui.__file__).parent / "templates").glob("*.html")):
        text = path.read_text()
        assert [phrase for phrase in BANNED if phrase in text] == [], path.name
