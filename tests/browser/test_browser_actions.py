"""Everything that one does on the pages: it is asked first, it is done, it is audited, and it says so."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect
from tests.browser.accessibility import wrong_for_some
from tests.browser.ui_site import LONG_NAME

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def confirm(page: Page, reason: str | None = None) -> None:
    """Say yes."""
    dialog = page.locator("#confirm")
    await expect(dialog).to_be_visible()
    if reason is not None:
        await dialog.get_by_label("Reason").fill(reason)
    await dialog.get_by_role("button", name="Yes").click()


async def test_cancel_with_a_reason_and_not_without_a_yes(visitor: Any) -> None:
    job_id = await visitor.site.submit("ask")
    await visitor.site.node_is(job_id, "question", "waiting")
    page = await visitor.page("submitter")
    await page.goto(f"/ui/jobs/{job_id}")
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Go back").click()
    assert (await visitor.site.lab.job(job_id))["status"] == "running"
    await page.get_by_role("button", name="Cancel").click()
    await confirm(page, "it is too late")
    await expect(page.locator(".toasts")).to_contain_text("the job was cancelled")
    await expect(page.locator("[data-job-badge]")).to_have_text("cancelled")
    assert (await visitor.site.audited())[0] == ("cancel", job_id)
    (reason,) = await visitor.site.lab.rows(
        "select data ->> 'reason' from cograil.audit_log order by id desc limit 1"
    )
    assert reason == ("it is too late",)


async def test_retry_a_job_and_a_node(visitor: Any) -> None:
    job_id = await visitor.site.submit("broken")
    await visitor.site.status(job_id, "failed")
    page = await visitor.page("submitter")
    await page.goto(f"/ui/jobs/{job_id}")
    await page.locator(".top").get_by_role("link", name="Retry").click()
    await expect(page.locator("#preview")).to_contain_text("fails the same way")
    await page.get_by_role("button", name="Retry in a new job").click()
    await expect(page.locator(".toasts")).to_contain_text("a new job was submitted")
    await expect(page.get_by_text("Retry of", exact=True)).to_be_visible()
    assert job_id not in page.url
    half = await visitor.site.submit("half")
    await visitor.site.node_is(half, "wrong", "failed")
    await page.goto(f"/ui/jobs/{half}/nodes/wrong")
    await page.get_by_role("link", name="Retry in place").click()
    await page.get_by_role("button", name="Retry in place").click()
    await expect(page).to_have_url(f"{visitor.site.url}/ui/jobs/{half}")
    assert (await visitor.site.audited())[0] == ("retry", half)
    await visitor.site.node_is(half, "wrong", "failed")
    await page.goto(f"/ui/jobs/{half}/nodes/wrong")
    await expect(page.locator("[data-region=attempts] tbody tr")).to_have_count(2)


async def test_a_completed_job_is_retried_from_a_chosen_node_with_other_inputs(visitor: Any) -> None:
    job_id = await visitor.site.submit("hello")
    await visitor.site.status(job_id, "completed")
    page = await visitor.page("submitter")
    await page.goto(f"/ui/jobs/{job_id}")
    await page.locator(".top").get_by_role("link", name="Retry").click()
    preview, button = page.locator("#preview"), page.get_by_role("button", name="Retry in a new job")
    await expect(preview).to_contain_text("Choose the node")
    await expect(button).to_be_disabled()
    await page.get_by_label("From node").select_option("greet")
    await expect(preview).to_contain_text("greet completed; running it again uses a NEW idempotency key")
    await page.get_by_label("name").fill("Grace")
    await expect(preview).to_contain_text("Changed: name")
    assert await wrong_for_some(page) == []
    await button.click()
    await expect(page.locator(".toasts")).to_contain_text("a new job was submitted")
    await expect(page.get_by_role("group", name="Input", exact=True)).to_contain_text("Grace")
    await page.get_by_role("link", name="Submit again").click()
    await expect(page.get_by_label("name")).to_have_value("Grace")
    await page.get_by_role("button", name="Submit").click()
    await expect(page.locator(".toasts")).to_contain_text("hello was submitted")


async def test_pause_and_resume_a_job(visitor: Any) -> None:
    job_id = await visitor.site.submit("ask")
    page = await visitor.page("operator")
    await page.goto(f"/ui/jobs/{job_id}")
    await page.get_by_role("button", name="Pause").click()
    await confirm(page, "wait for Ada")
    await expect(page.locator(".top .paused")).to_be_visible()
    await expect(page.locator("[data-region=why]")).to_contain_text("wait for Ada")
    await page.get_by_role("button", name="Resume").click()
    await confirm(page)
    await expect(page.locator(".top .paused")).to_have_count(0)
    assert (await visitor.site.audited())[:2] == [("resume job", job_id), ("pause job", job_id)]


@pytest.mark.parametrize(
    ("path", "name", "audited"),
    [
        ("/ui/queues", "Pause default", "queue"),
        ("/ui/workflows/hello", "Pause", "workflow"),
        ("/ui/schedules", "Pause mornings", "schedule"),
        ("/ui/schedules/mornings", "Pause", "schedule"),
    ],
)
async def test_pause_and_resume_queues_and_workflows(
    visitor: Any, path: str, name: str, audited: str
) -> None:
    page = await visitor.page("operator")
    await page.goto(path)
    await page.get_by_role("button", name=name).click()
    await confirm(page, "for a test")
    await expect(page.locator("main .badge.paused")).to_have_count(1)
    await page.get_by_role("button", name=name.replace("Pause", "Resume")).click()
    await confirm(page)
    await expect(page.locator("main .badge.paused")).to_have_count(0)
    actions = [action for action, _ in (await visitor.site.audited())[:2]]
    assert actions == [f"resume {audited}", f"pause {audited}"]


async def test_approve_with_a_form_and_reject_in_the_inbox(visitor: Any) -> None:
    first, second = await visitor.site.submit("ask"), await visitor.site.submit("ask")
    for job_id in (first, second):
        await visitor.site.node_is(job_id, "question", "waiting")
    page = await visitor.page("operator")
    await page.goto(f"/ui/jobs/{first}")
    await page.get_by_role("link", name="Answer it").click()
    await page.get_by_label("method").select_option("voucher")
    await page.get_by_label("Reason").first.fill("paid twice")
    await page.get_by_role("button", name="Approve").click()
    await confirm(page)
    await expect(page.locator(".toasts")).to_contain_text("approved")
    output = (await visitor.site.lab.nodes(first))["question"]["output"]
    assert (output["decision"], output["data"], output["reason"]) == (
        "approved",
        {"method": "voucher"},
        "paid twice",
    )
    await page.goto("/ui/approvals")
    await page.get_by_role("button", name=f"Reject question of {second[:8]}").last.click()
    await confirm(page)
    await expect(page.locator(".toasts")).to_contain_text("rejected")
    assert ("signal reject", second) in await visitor.site.audited()


async def test_send_a_dead_letter_again(visitor: Any) -> None:
    page = await visitor.page("operator")
    await page.goto("/ui/deliveries?state=dead")
    count = await page.locator("[data-region=deliveries] tbody tr").count()
    assert count
    await page.get_by_role("button", name="Re-send").first.click()
    await confirm(page)
    await expect(page.locator(".toasts")).to_contain_text("Sent again")
    assert (await visitor.site.audited())[0][0] == "resend"


async def test_submit_by_the_form_and_as_json(visitor: Any) -> None:
    page = await visitor.page("submitter")
    await page.goto("/ui/submit")
    await page.get_by_label("Workflow").select_option("fan")
    await page.get_by_label("items").fill("[1, 2")
    await page.get_by_role("button", name="Submit").click()
    await expect(page.get_by_role("alert")).to_contain_text("this is not valid JSON")
    await page.get_by_label("items").fill("[1, 2]")
    await page.get_by_label("label").first.fill("by hand")
    await page.get_by_role("radio", name="JSON").check()
    await expect(page.locator("#json")).to_have_value(
        '{\n  "items": [\n    1,\n    2\n  ],\n  "label": "by hand",\n  "allows_stale_auth": true\n}'
    )
    await page.locator("#json").fill('{"items": [1, 2, 3], "label": "as JSON"}')
    await page.locator("summary", has_text="More").click()
    await page.get_by_label("Labels").fill("made=here")
    await page.get_by_role("button", name="Submit").click()
    await expect(page.locator(".toasts")).to_contain_text("fan was submitted")
    job_id = page.url.rpartition("/")[2]
    job = await visitor.site.lab.job(job_id)
    assert (job["input_params"]["items"], job["labels"]) == ([1, 2, 3], {"made": "here"})
    assert job["submitted_by"] == "a submitter"
    visitor.complaints.clear()  # that the first one was answered 422


async def test_a_form_leaves_open_what_is_left_open_and_keeps_lines_apart(visitor: Any) -> None:
    page = await visitor.page("submitter")
    await page.goto(f"/ui/submit?workflow_id={LONG_NAME}")
    await expect(page.get_by_label("text")).to_have_value("first\nsecond")
    await expect(page.get_by_label("nothing")).to_have_value("")
    await page.get_by_role("radio", name="JSON").check()
    await page.locator("#json").fill("null")
    await page.get_by_role("radio", name="Form").check()  # anything but an object changes nothing
    await page.get_by_role("radio", name="JSON").check()
    await page.locator("#json").fill('{"text": "one\\ntwo"}')
    await page.get_by_role("radio", name="Form").check()
    await page.get_by_role("button", name="Submit").click()
    await expect(page.locator(".toasts")).to_contain_text("was submitted")
    job = await visitor.site.lab.job(page.url.rpartition("/")[2])
    assert job["input_params"] == {"text": "one\ntwo", "is_sure": None, "nothing": None}


async def test_without_scripts_an_action_is_confirmed_on_its_own_page(visitor: Any) -> None:
    context = await visitor.browser.new_context(base_url=visitor.site.url, java_script_enabled=False)
    try:
        await context.add_cookies([visitor.site.cookie("operator")])
        page = await context.new_page()
        await page.goto("/ui/queues")
        await page.get_by_role("button", name="Pause slow").click()
        await expect(page.get_by_role("heading", name="Sure?").first).to_be_visible()
        await page.get_by_role("button", name="Yes", exact=True).click()
        await expect(page.locator(".badge.paused")).to_have_count(1)
        await page.get_by_role("button", name="Resume slow").click()
        await page.get_by_role("button", name="Yes", exact=True).click()
        await expect(page.locator(".badge.paused")).to_have_count(0)
    finally:
        await context.close()


async def test_create_a_schedule_backfill_a_day_and_remove_it(visitor: Any) -> None:
    page = await visitor.page("operator")
    await page.goto("/ui/schedules")
    await page.get_by_label("Name").fill("nightly")
    await page.get_by_label("Workflow").select_option("hello")
    await page.get_by_label("Cron").fill("odd")
    await page.get_by_role("button", name="Create schedule").click()
    await expect(page.get_by_role("alert")).to_contain_text("cron")
    await page.get_by_label("Cron").fill("0 3 * * *")
    await page.get_by_label("Name").fill("mornings")
    await page.get_by_role("button", name="Create schedule").click()
    await expect(page.get_by_role("alert")).to_contain_text("mornings")  # is taken, and the form stays
    await expect(page.get_by_label("Cron")).to_have_value("0 3 * * *")
    await page.get_by_label("Name").fill("nightly")
    await page.get_by_role("button", name="Create schedule").click()
    await expect(page.locator(".toasts")).to_contain_text("Schedule nightly created")
    await page.get_by_role("link", name="nightly").click()
    await page.get_by_text("Workflow, cron and input").click()
    await page.get_by_label("Cron").fill("odd")
    await page.get_by_role("button", name="Save changes").click()
    await expect(page.get_by_role("alert")).to_contain_text("cron")  # and what was written is still there
    await page.get_by_label("Cron").fill("30 2 * * *")
    await page.get_by_label("Time zone").fill("Europe/Berlin")
    await page.get_by_role("button", name="Save changes").click()
    await expect(page.locator(".toasts")).to_contain_text("Schedule nightly changed")
    await page.get_by_label("From").fill("2026-01-01T00:00")
    await page.get_by_label("Until").fill("2026-01-03T12:00")
    await page.get_by_role("button", name="Preview").click()
    await expect(page.get_by_text("3 jobs would be submitted")).to_be_visible()
    await page.get_by_role("button", name="Start backfill").click()
    await confirm(page)
    await expect(page.locator("[data-region=firings] tbody tr")).to_have_count(3)
    await page.get_by_role("button", name="Remove").click()
    await confirm(page)
    await expect(page).to_have_url(f"{visitor.site.url}/ui/schedules")
    await expect(page.get_by_role("link", name="nightly")).to_have_count(0)
    actions = [action for action, _ in (await visitor.site.audited())[:3]]
    assert actions == ["remove schedule", "backfill", "change schedule"]
    visitor.complaints.clear()  # that the first ones were answered 422 and 409
