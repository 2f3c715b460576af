"""Everything works from the keyboard alone."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def tab_to(page: Page, name: str) -> None:
    """Press Tab until this has the focus; it is seen to have it."""
    focused_text = "(here => here.innerText || here.textContent || here.name || '')(document.activeElement)"
    for _ in range(90):
        await page.keyboard.press("Tab")
        if (await page.evaluate(f"({focused_text}).trim()")).startswith(name):
            return
    raise AssertionError(f"nobody comes to {name!r} by Tab")


async def test_the_keys_of_every_page(visitor: Any) -> None:
    page = await visitor.page()
    await page.goto("/ui/health")
    for key, place in (("j", "/ui/jobs"), ("w", "/ui/workflows"), ("h", "/ui/")):
        await page.keyboard.press("g")
        await page.keyboard.press(key)
        await expect(page).to_have_url(visitor.site.url + place)
        await page.wait_for_load_state()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_contain_text("refresh this page")
    await page.keyboard.press("Escape")
    await expect(page.locator("#help")).to_be_hidden()
    await page.evaluate("window.notReloaded = true")
    async with page.expect_navigation():
        await page.keyboard.press("r")
    await page.wait_for_load_state()
    assert await page.evaluate("window.notReloaded") is None
    await page.goto("/ui/jobs")
    await page.get_by_label("Label").press("g")
    await page.get_by_label("Label").press("h")
    await expect(page.get_by_label("Label")).to_have_value("gh")  # in a field they are letters


async def test_the_menu_of_a_phone_is_closed_by_escape_and_says_so(visitor: Any) -> None:
    page = await visitor.page()
    await page.set_viewport_size({"width": 390, "height": 800})
    await page.goto("/ui/")
    menu = page.get_by_role("button", name="Menu")
    await menu.click()
    await expect(menu).to_have_attribute("aria-expanded", "true")
    await page.keyboard.press("Escape")
    await expect(menu).to_have_attribute("aria-expanded", "false")
    await menu.click()  # and opens again at the first click
    await expect(page.get_by_role("link", name="Queues")).to_be_visible()


async def test_a_job_is_submitted_looked_at_and_cancelled_without_a_mouse(visitor: Any) -> None:
    page = await visitor.page("operator")
    await page.goto("/ui/submit?workflow_id=stuck")
    await tab_to(page, "Submit")
    if "/ui/submit" in await page.evaluate("document.activeElement.href || ''"):
        await tab_to(page, "Submit")  # the first is the link in the menu
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("stuck")
    job_id = page.url.rpartition("/")[2]
    await visitor.site.node_is(job_id, "long", "dispatched")
    await tab_to(page, "long")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("long")
    await page.go_back()
    await tab_to(page, "Cancel")
    await page.keyboard.press("Enter")
    await expect(page.locator("#confirm-reason")).to_be_focused()
    await page.keyboard.type("by hand")
    await page.keyboard.press("Escape")
    await expect(page.locator("#confirm")).to_be_hidden()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Enter")
    await visitor.site.status(job_id, "cancelled")
    await expect(page.locator("[data-job-badge]")).to_have_text("cancelled")
