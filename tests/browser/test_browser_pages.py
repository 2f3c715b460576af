"""Every page opens, says nothing wrong, is right for those who cannot see it, and fits a phone."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import expect
from tests.browser.accessibility import wrong_for_some
from tests.browser.ui_site import LONG_NAME, LONG_NODE

pytestmark = pytest.mark.asyncio(loop_scope="session")
PAGES = {
    "/ui/": "Dashboard",
    "/ui/jobs": "Jobs",
    "/ui/jobs?q=nothing-like-that": "Jobs",
    "/ui/jobs/{fan}": "A fan of many",
    "/ui/jobs/{stuck}": "stuck",
    "/ui/jobs/{broken}": "broken",
    "/ui/jobs/{fan}/timeline": "Timeline",
    "/ui/jobs/{fan}/timeline?type=node_completed&node=prepare": "Timeline",
    "/ui/jobs/{fan}/nodes/spread": "spread",
    "/ui/jobs/{fan}/nodes/spread__3": "spread__3",
    "/ui/jobs/{broken}/nodes/wrong": "wrong",
    "/ui/jobs/{broken}/retry": "Retry",
    "/ui/jobs/{fan}/logs": "Logs",
    "/ui/submit?again={fan}": "Submit a job",
    "/ui/nodes?children=yes&name=spread": "Nodes",
    "/ui/docs": "API reference",
    "/ui/jobs/{asking}/nodes/question": "question",
    "/ui/jobs/{fan}/nodes/spread?at=40": "spread",
    "/ui/jobs/{long}": LONG_NAME,
    f"/ui/jobs/{{long}}/nodes/{LONG_NODE}": LONG_NODE,
    "/ui/jobs/{long}/timeline": "Timeline",
    f"/ui/workflows/{LONG_NAME}": LONG_NAME,
    f"/ui/submit?workflow_id={LONG_NAME}": "Submit a job",
    "/ui/workflows": "Workflows",
    "/ui/workflows/hello?version=2&against=1": "hello",
    "/ui/submit": "Submit a job",
    "/ui/submit?workflow_id=fan": "Submit a job",
    "/ui/nodes": "Nodes",
    "/ui/tasks": "Tasks",
    "/ui/queues": "Queues",
    "/ui/workers": "Workers and orchestrators",
    "/ui/deliveries": "Deliveries",
    "/ui/approvals": "Approvals",
    "/ui/schedules": "Schedules",
    "/ui/schedules/mornings": "mornings",
    "/ui/companies": "Companies",
    "/ui/companies?q=nothing-like-that": "Companies",
    "/ui/companies/552032534": "DANONE",
    "/ui/companies/732829320": "DANONE",
    "/ui/documents": "Documents",
    "/ui/documents?user=ada": "Documents",
    "/ui/health": "Health",
    "/ui/audit": "Audit log",
    "/ui/keys": "API keys",
    "/ui/captures": "Captures",
    "/ui/settings": "Settings",
    "/ui/settings?changed=yes": "Settings",
    "/ui/jobs?period=24h&sort=longest": "Jobs",
}

# Words in the cards of a phone that begin left of them, where nobody can scroll to.
CUT_OFF = """[...document.querySelectorAll(".cards td *")].filter((part) => {
  const { left, width } = part.getBoundingClientRect();
  return width && left < 0;
}).map((part) => part.outerHTML)"""


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_whole_in_the_light_in_the_dark_and_on_a_phone(visitor: Any, path: str) -> None:
    page = await visitor.page()
    answer = await page.goto(path.format(**visitor.site.jobs))
    assert answer is not None
    assert answer.status == 200
    assert "unsafe" not in answer.headers["content-security-policy"]
    await expect(page.locator("h1")).to_have_text(PAGES[path])
    await expect(page.locator("[aria-current=page]")).to_have_count(1)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert await wrong_for_some(page) == []
    await page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    assert await wrong_for_some(page, "color-contrast") == []  # nothing else has changed
    await page.set_viewport_size({"width": 390, "height": 800})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    assert await page.evaluate(CUT_OFF) == []
    await page.get_by_role("button", name="Menu").click()
    await expect(page.get_by_role("link", name="Queues")).to_be_visible()


async def test_a_missing_page_has_an_error_page_of_its_own(visitor: Any) -> None:
    page = await visitor.page()
    for path in ("/ui/nothing", "/ui/jobs/01a1e845-3c82-70ae-bcdd-06ffe86b4039", "/ui/workflows/none"):
        answer = await page.goto(path)
        assert answer is not None
        assert answer.status == 404
        await expect(page.locator("h1")).to_have_text("This page does not exist")
        assert await wrong_for_some(page) == []
    answer = await page.goto("/ui/jobs?status=odd")
    assert answer is not None
    assert answer.status == 422
    await expect(page.locator("h1")).to_have_text("Unprocessable Entity")
    assert await wrong_for_some(page) == []
    assert all(
        "Failed to load resource" in complaint for complaint in visitor.complaints
    )  # that is what was asked for
    visitor.complaints.clear()


async def test_login_with_a_key_that_is_wrong_and_with_one_that_is_right(visitor: Any) -> None:
    page = await visitor.page("nobody")
    await page.goto("/ui/queues")
    await expect(page).to_have_url(f"{visitor.site.url}/ui/login?next=/ui/queues")
    assert await wrong_for_some(page) == []
    await page.get_by_label("API key").fill("cog_wrong_key")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_have_text("This key is not known here.")
    assert await wrong_for_some(page) == []
    visitor.complaints.clear()
    await page.get_by_label("API key").fill(visitor.site.keys["viewer"])
    await page.get_by_role("button", name="Log in").click()
    await expect(page).to_have_url(f"{visitor.site.url}/ui/queues")
    await expect(page.get_by_text("viewer of default")).to_be_visible()
    await page.get_by_role("button", name="Log out").click()
    await expect(page).to_have_url(f"{visitor.site.url}/ui/login")
    await page.goto("/ui/queues")
    await expect(page.get_by_label("API key")).to_be_visible()


async def test_forbidden_actions_are_not_offered(visitor: Any) -> None:
    page = await visitor.page("viewer")
    jobs = visitor.site.jobs
    for path in (
        "/ui/queues",
        f"/ui/jobs/{jobs['stuck']}",
        f"/ui/jobs/{jobs['broken']}",
        f"/ui/jobs/{jobs['broken']}/nodes/wrong",
        f"/ui/jobs/{jobs['asking']}/nodes/question",
        "/ui/approvals",
        "/ui/deliveries",
        "/ui/schedules",
        "/ui/schedules/mornings",
        "/ui/workflows/hello",
        "/ui/companies",
        "/ui/companies/552032534",
        "/ui/documents",
    ):
        await page.goto(path)
        assert await page.locator("main form[method=post]").count() == 0, path
    assert await page.get_by_role("link", name="Submit").count() == 0
    assert await page.get_by_role("link", name="Workers").count() == 0
    answer = await page.goto("/ui/submit")
    assert answer is not None
    assert answer.status == 403
    assert await page.get_by_role("link", name="Submit").count() == 0  # on the page of an error either
    await expect(page.get_by_text("viewer of default")).to_be_visible()
    visitor.complaints.clear()


async def test_jobs_are_found_by_label_and_by_what_is_in_their_input(visitor: Any) -> None:
    page, jobs = await visitor.page(), visitor.site.jobs
    await page.goto("/ui/jobs")
    await page.get_by_label("Label").fill("customer=acme")
    await page.get_by_role("button", name="Find").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator(f"a[href='/ui/jobs/{jobs['done']}']")).to_be_visible()
    await page.goto("/ui/jobs")
    await page.get_by_label("Input, id or submitter").fill("NEEDLE")
    await page.keyboard.press("Enter")
    await expect(page.locator(f"a[href='/ui/jobs/{jobs['fan']}']")).to_be_visible()
    await expect(page.locator("tbody tr")).to_have_count(1)


@pytest.mark.parametrize("path", ["/ui/nodes", "/ui/tasks"])
async def test_no_column_is_cut_off_at_1280(visitor: Any, path: str) -> None:
    page = await visitor.page()
    await page.goto(path)
    hidden = "parts => parts.map(part => part.scrollWidth - part.clientWidth).filter(width => width > 1)"
    assert await page.locator("main .scroll").evaluate_all(hidden) == []


async def test_the_events_of_a_timeline_are_found_by_type_and_node(visitor: Any) -> None:
    page, jobs = await visitor.page(), visitor.site.jobs
    await page.goto(f"/ui/jobs/{jobs['broken']}/timeline")
    rows = page.locator("[data-region=events] .events li")
    await page.locator("select[name=node]").select_option("wrong")
    await page.locator("select[name=type]").select_option("task failed")
    await page.get_by_role("button", name="Find").click()
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("it broke")
    await page.get_by_role("link", name="Clear").click()
    assert await rows.count() > 5


async def test_tasks_that_have_ended_are_listed_with_who_did_them(visitor: Any) -> None:
    job_id = await visitor.site.submit("broken")  # the page shows the newest, and other tests make many
    await visitor.site.status(job_id, "failed")
    page = await visitor.page()
    await page.goto("/ui/tasks")
    ended = page.locator("[data-region=ended]")
    row = ended.locator("tr", has=page.locator(f"a[href='/ui/jobs/{job_id}/nodes/wrong']"))
    await expect(row).to_contain_text("failed")
    await expect(row).to_contain_text("it broke")
    await expect(ended.get_by_role("img", name="Durations of the last")).to_be_visible()
    worker = await row.locator("[data-name=Worker]").inner_text()
    await row.get_by_role("link", name=worker).click()
    await expect(page.get_by_label("Worker")).to_have_value(worker)
    assert await ended.locator("tbody tr").count() > 5
    await page.goto("/ui/tasks?worker=nobody")
    await expect(ended).to_contain_text("No finished tasks")
