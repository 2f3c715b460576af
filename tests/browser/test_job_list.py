"""The list of jobs: time range, order, errors, waiting jobs, and actions on many at once."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Page, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")


def row(page: Page, job_id: str) -> Any:
    return page.locator("tbody tr", has=page.locator(f"a[href='/ui/jobs/{job_id}']"))


async def test_the_list_says_why_a_job_failed_and_what_another_waits_for(visitor: Any) -> None:
    page, jobs = await visitor.page(), visitor.site.jobs
    await page.goto("/ui/jobs")
    await expect(row(page, jobs["broken"]).locator("[data-name=Error]")).to_have_text("wrong: it broke")
    asking = row(page, jobs["asking"]).locator("[data-name=Status]")
    await expect(asking.locator(".badge.waiting")).to_have_text("waiting")
    await expect(asking).to_contain_text("for approval")
    await page.locator("select[name=status]").select_option("waiting")
    await page.get_by_role("button", name="Find").click()
    await expect(row(page, jobs["asking"])).to_have_count(1)
    await expect(row(page, jobs["stuck"])).to_have_count(0)
    await page.goto("/ui/jobs?status=running")
    await expect(row(page, jobs["asking"])).to_have_count(0)
    await page.goto("/ui/")
    await expect(page.locator("a.tile.waiting[href='/ui/jobs?status=waiting'] b")).not_to_have_text("0")


async def test_jobs_are_listed_by_time_and_order(visitor: Any) -> None:
    page, jobs = await visitor.page(), visitor.site.jobs
    await page.goto("/ui/jobs?period=1h&sort=oldest")
    first = page.locator("tbody tr").first
    await expect(first.locator(f"a[href='/ui/jobs/{jobs['done']}']")).to_be_visible()
    await page.get_by_text("Custom time range").click()
    await page.get_by_label("From").fill("2020-01-01T00:00")
    await page.get_by_label("Until").fill("2020-02-01T00:00")
    await page.get_by_role("button", name="Find").click()
    await expect(page.get_by_text("No job matches")).to_be_visible()
    await expect(page.get_by_label("From")).to_have_value("2020-01-01T00:00")
    await page.get_by_label("Until").fill("2120-02-01T00:00")
    await page.get_by_label("Sort").select_option("longest first")
    await page.get_by_role("button", name="Find").click()
    await expect(row(page, jobs["done"])).to_have_count(1)
    waits = await page.locator("tbody tr [data-name=Took]").all_inner_texts()
    assert any(re.search(r"\d", wait) for wait in waits)
    answer = await page.goto("/ui/jobs?since=odd")
    assert answer is not None
    assert answer.status == 422
    visitor.complaints.clear()


async def test_selected_jobs_are_cancelled_after_a_preview(visitor: Any) -> None:
    site = visitor.site
    first, second = [await site.submit("stuck", labels={"bulk": "yes"}) for _ in range(2)]
    page = await visitor.page("operator")
    await page.goto("/ui/jobs?label=bulk%3Dyes")
    cancel = page.get_by_role("button", name="Cancel selected")
    await expect(cancel).to_be_disabled()
    await page.get_by_label("Select all jobs on this page").check()
    await expect(page.locator("[data-selected]")).to_have_text("2 selected")
    await row(page, second).get_by_role("checkbox").uncheck()
    await expect(page.locator("[data-selected]")).to_have_text("1 selected")
    await cancel.click()
    await expect(page.locator("h1")).to_have_text("Cancel 1 job")
    await expect(page.locator(f"a[href='/ui/jobs/{first}']")).to_be_visible()
    await page.locator("main").get_by_label("Reason").fill("not needed")
    await page.get_by_role("button", name="Cancel 1 job").click()
    await expect(page.locator("h1")).to_have_text("Bulk cancel")
    await expect(page.locator("[data-region=progress]")).to_contain_text("1 of 1 jobs: 1 cancelled")
    assert await site.status(first, "cancelled") == "cancelled"
    assert (await site.lab.job(second))["status"] == "running"
    assert (await site.audited())[0][0] == "bulk cancel"
    await page.goto("/ui/jobs?label=bulk%3Dyes")
    await page.get_by_role("button", name="Cancel all matching").click()
    await expect(page.locator("h1")).to_have_text("Cancel 1 job")
    await page.get_by_role("button", name="Cancel 1 job").click()
    assert await site.status(second, "cancelled") == "cancelled"


async def test_selected_jobs_are_retried(visitor: Any) -> None:
    site = visitor.site
    job_id = await site.submit("broken", labels={"again": "yes"})
    await site.status(job_id, "failed")
    page = await visitor.page("operator")
    await page.goto("/ui/jobs?label=again%3Dyes")
    await row(page, job_id).get_by_role("checkbox").check()
    await page.get_by_role("button", name="Retry selected").click()
    await page.get_by_role("button", name="Retry 1 job").click()
    await expect(page.locator("[data-region=progress]")).to_contain_text("1 of 1 jobs: 1 retried")


async def test_a_viewer_cannot_select_jobs(visitor: Any) -> None:
    page = await visitor.page("submitter")
    await page.goto("/ui/jobs")
    await expect(page.get_by_role("checkbox")).to_have_count(0)


async def test_an_id_is_copied(visitor: Any) -> None:
    page, jobs = await visitor.page(), visitor.site.jobs
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto("/ui/jobs")
    await row(page, jobs["done"]).get_by_role("button", name="Copy job id").click()
    await expect(page.locator(".toasts")).to_contain_text("Copied")
    assert await page.evaluate("navigator.clipboard.readText()") == jobs["done"]
