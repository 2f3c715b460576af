"""The parts of the pages of one job: why it failed, events that open, JSON that folds, logs, the phone."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import expect
from tests.browser.accessibility import wrong_for_some

pytestmark = pytest.mark.asyncio(loop_scope="session")
LINE = """
insert into cograil.task_logs (job_id, node_id, attempt, lines) values
  (%(job)s, 'question', 1, '[{"at": "2026-11-18T10:00:00+00:00", "level": "info", "message": "charged",
                              "fields": {"order": 7}}]')
"""
COVERED = """() => {
  const tools = document.querySelector(".zoom").getBoundingClientRect();
  const isUnder = (box) => box.left < tools.right && box.right > tools.left
    && box.top < tools.bottom && box.bottom > tools.top;
  return [...document.querySelectorAll(".dag-node .box")].map((box) => box.getBoundingClientRect())
    .filter(isUnder).length;
}"""


async def test_a_failed_job_shows_why_and_its_events_open(visitor: Any) -> None:
    page, job_id = await visitor.page(), visitor.site.jobs["broken"]
    await page.goto(f"/ui/jobs/{job_id}")
    why = page.locator("[data-region=why]")
    await expect(why).to_contain_text("Why it failed")
    await expect(why).to_contain_text("wrong failed in attempt 1 of 1: handler_error")
    event = page.locator(".events li", has_text="node failed")
    await event.locator("summary").first.click()
    data = event.get_by_role("group", name="Data of event")
    await expect(data).to_contain_text('"it broke"')
    await data.locator("summary").first.click()
    await expect(data).not_to_contain_text('"it broke"', use_inner_text=True)
    assert await wrong_for_some(page) == []


async def test_the_log_of_a_job_follows_it(visitor: Any) -> None:
    job_id = await visitor.site.submit("ask")
    page = await visitor.page()
    await page.goto(f"/ui/jobs/{job_id}/logs")
    await expect(page.get_by_text("Nothing was logged")).to_be_visible()
    await visitor.site.lab.rows(LINE, job=job_id)
    await expect(page.get_by_role("log")).to_contain_text("charged order=7")
    assert await wrong_for_some(page) == []
    await page.get_by_label("Text").fill("nothing like that")
    await page.get_by_role("button", name="Find").click()
    await expect(page.get_by_text("No line is like that")).to_be_visible()
    await page.goto("/ui/")  # nothing of it is followed any more


async def test_on_a_phone_nothing_covers_nodes_and_the_timeline_fits(visitor: Any) -> None:
    page, job_id = await visitor.page(), visitor.site.jobs["broken"]
    await page.set_viewport_size({"width": 390, "height": 780})
    await page.goto(f"/ui/jobs/{job_id}")
    await expect(page.locator(".dag-node .box").first).to_be_visible()
    assert await page.evaluate(COVERED) == 0
    await page.goto(f"/ui/jobs/{job_id}/timeline")
    assert await page.locator(".rows").evaluate("(part) => part.scrollWidth - part.clientWidth") <= 0
