"""Every page shows its times in one zone, which is named and can be chosen."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Page, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def page_in(visitor: Any, zone: str, **options: Any) -> AsyncIterator[Page]:
    """A page of an operator whose browser is in this zone."""
    context = await visitor.browser.new_context(base_url=visitor.site.url, timezone_id=zone, **options)
    context.set_default_timeout(15_000)
    await context.add_cookies([visitor.site.cookie("operator")])
    try:
        yield await context.new_page()
    finally:
        await context.close()


async def test_times_are_of_the_browser_of_utc_or_of_the_schedule(visitor: Any) -> None:
    async with page_in(visitor, "Asia/Tokyo") as page:
        await page.goto("/ui/schedules/mornings")  # at 6 in Berlin
        following = page.locator("[data-region=about] time").first
        await expect(following).to_have_text(re.compile(r"^in .*\(.*1[34]:00:00 GMT\+9\)$"))
        zones = page.get_by_label("Show times in")
        assert await zones.locator("option").all_inner_texts() == [
            "Asia/Tokyo (browser)",
            "UTC",
            "Europe/Berlin (schedule)",
        ]
        await zones.select_option("Europe/Berlin (schedule)")
        await expect(following).to_have_text(re.compile(r"06:00:00 (CET|CEST|GMT\+[12])\)$"))
        await zones.select_option("UTC")
        await expect(following).to_have_text(re.compile(r"0[45]:00:00 UTC\)$"))
        await page.goto("/ui/schedules")  # the choice is kept, and the list shows the same
        await expect(page.locator("td[data-name=Next] time").first).to_have_text(
            re.compile(r"0[45]:00:00 UTC\)$")
        )


async def test_a_backfill_is_asked_for_in_the_zone_of_the_page(visitor: Any) -> None:
    async with page_in(visitor, "Asia/Tokyo") as page:
        await page.goto("/ui/schedules/mornings")
        await page.get_by_label("From").fill("2026-01-01T13:30")  # 05:30 in Berlin
        await page.get_by_label("Until").fill("2026-01-01T14:30")
        await page.get_by_role("button", name="Preview").click()
        card = page.locator("section", has=page.get_by_role("heading", name="Backfill"))
        await expect(card).to_contain_text("times in Asia/Tokyo")
        await expect(card).to_contain_text("1 job would be submitted")
        await expect(card.locator("time")).to_have_text("2026-01-01 14:00:00 GMT+9")
        await expect(page.get_by_label("From")).to_have_value("2026-01-01T13:30")
        await page.get_by_label("Show times in").select_option("UTC")
        await expect(page.get_by_label("From")).to_have_value("2026-01-01T04:30")
        await expect(card.locator("time")).to_have_text("2026-01-01 05:00:00 UTC")


async def test_a_deadline_of_tomorrow_has_its_date(visitor: Any) -> None:
    async with page_in(visitor, "UTC") as page:
        for path in (f"/ui/jobs/{visitor.site.jobs['asking']}", "/ui/approvals"):
            await page.goto(path)
            await expect(page.locator("main")).to_contain_text(re.compile(r"\d{4}-\d\d-\d\d.\d\d:\d\d:\d\d"))


async def test_without_scripts_all_times_are_utc_and_say_so(visitor: Any) -> None:
    async with page_in(visitor, "Asia/Tokyo", java_script_enabled=False) as page:
        await page.goto("/ui/jobs")
        await expect(page.locator(".zone")).to_have_text("Times in UTC")
        times = await page.locator("main time").all_inner_texts()
        assert times
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", time) for time in times), times


async def test_the_chart_has_the_zone_of_the_page(visitor: Any) -> None:
    async with page_in(visitor, "Asia/Tokyo") as page:
        await page.goto("/ui/")
        await expect(page.locator(".chart canvas")).to_be_visible()
        await page.locator(".u-over").hover()
        await expect(page.locator(".u-legend")).to_contain_text("GMT+9")
        await page.get_by_label("Show times in").select_option("UTC")
        await page.locator(".u-over").hover(position={"x": 30, "y": 30})
        await expect(page.locator(".u-legend")).to_contain_text("UTC")


async def test_the_theme_button_says_what_it_does(visitor: Any) -> None:
    page = await visitor.page()
    await page.goto("/ui/queues")
    await page.get_by_role("button", name="Switch to dark").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.get_by_role("button", name="Switch to light").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "light")
    await page.evaluate("localStorage.removeItem('cograil-theme')")
