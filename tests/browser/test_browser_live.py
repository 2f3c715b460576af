"""What is on a page follows what happens, without anybody reloading it, and never goes back."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")
MARK = "window.notReloaded = true"
IS_MARKED = "window.notReloaded === true"


def node(page: Page, name: str) -> Any:
    """A node in the drawn graph."""
    return page.locator(f".dag-node[data-id='{name}']")


async def answer(visitor: Any, job_id: str) -> None:
    body = {"name": "approve", "node_id": "question", "data": {"method": "card"}}
    await visitor.house.post(f"/jobs/{job_id}/signals", body)


async def test_the_page_of_a_job_follows_it_to_its_end(visitor: Any) -> None:
    job_id = await visitor.house.submit("ask")
    await visitor.house.node_is(job_id, "question", "waiting")
    page = await visitor.page()
    await page.goto(f"/ui/jobs/{job_id}")
    await page.evaluate(MARK)
    await expect(node(page, "question")).to_have_class("dag-node waiting")
    await expect(page.locator("[data-region=why]")).to_contain_text("Pay back 120?")
    await expect(page.locator("[data-live-job]")).to_have_attribute("data-live-state", "on")
    await answer(visitor, job_id)
    await expect(node(page, "question")).to_have_class("dag-node completed")
    await expect(node(page, "pay")).to_have_class("dag-node completed")
    await expect(page.locator("[data-job-badge]")).to_have_text("completed")
    await expect(page.locator("tr[data-node=pay] [data-cell=status]")).to_have_text("completed")
    await expect(page.get_by_role("group", name="Result")).to_contain_text("approved")
    await expect(page.get_by_role("link", name="Retry")).to_be_visible()
    assert await page.evaluate(IS_MARKED)


async def test_lists_follow_too(visitor: Any) -> None:
    page = await visitor.page()
    await page.goto("/ui/jobs")
    await page.evaluate(MARK)
    await expect(page.locator("[data-live-feed]")).to_have_attribute("data-live-state", "on")
    job_id = await visitor.house.submit("hello", labels={"seen": "live"})
    row = page.locator("tr", has=page.locator(f"a[href='/ui/jobs/{job_id}']"))
    await expect(row).to_contain_text("completed")
    assert await page.evaluate(IS_MARKED)


async def test_a_state_that_is_older_than_what_is_shown_is_not_shown(visitor: Any) -> None:
    job_id = await visitor.house.submit("ask")
    await visitor.house.node_is(job_id, "question", "waiting")
    page = await visitor.page()
    old = await (await page.request.get(f"/ui/jobs/{job_id}/state")).text()
    await page.goto(f"/ui/jobs/{job_id}")
    await answer(visitor, job_id)
    await expect(node(page, "pay")).to_have_class("dag-node completed")

    async def from_before(route: Route) -> None:
        """As of a server that is behind."""
        await route.fulfill(body=old, content_type="application/json")

    await page.route("**/state", from_before)
    async with page.expect_response("**/state"):
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await page.evaluate("new Promise(requestAnimationFrame)")
    assert "completed" in (await node(page, "pay").get_attribute("class"))
    assert "completed" in (await node(page, "question").get_attribute("class"))


async def test_who_was_cut_off_goes_on_where_he_was(visitor: Any) -> None:
    job_id = await visitor.house.submit("ask")
    await visitor.house.node_is(job_id, "question", "waiting")
    page = await visitor.page()
    await page.goto(f"/ui/jobs/{job_id}")
    await page.evaluate(MARK)
    await expect(page.locator("[data-live-job]")).to_have_attribute("data-live-state", "on")
    await page.context.set_offline(True)
    await answer(visitor, job_id)
    await visitor.house.status(job_id, "completed")
    await expect(node(page, "question")).to_have_class("dag-node waiting")
    await page.context.set_offline(False)
    await expect(node(page, "pay")).to_have_class("dag-node completed")
    assert await page.evaluate(IS_MARKED)
    visitor.complaints.clear()  # that the network was away


HIDE = """isHidden => {
  Object.defineProperty(document, "hidden", {configurable: true, get: () => isHidden});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


async def test_a_page_that_nobody_sees_lets_go_of_its_connection_and_goes_on_later(visitor: Any) -> None:
    """A browser has six of them for a site: with six pages that kept theirs, no other page would open."""
    job_id = await visitor.house.submit("ask")
    await visitor.house.node_is(job_id, "question", "waiting")
    page = await visitor.page()
    await page.goto(f"/ui/jobs/{job_id}")
    mark = page.locator("[data-live-job]")
    await expect(mark).to_have_text("live")
    async with page.expect_event("requestfailed", lambda request: "/events/stream" in request.url):
        await page.evaluate(HIDE, True)
    await answer(visitor, job_id)
    await visitor.house.status(job_id, "completed")
    async with page.expect_request("**/events/stream*"):
        await page.evaluate(HIDE, False)
    await expect(node(page, "pay")).to_have_class("dag-node completed")
    await expect(mark).to_have_text("over")


async def test_a_stream_that_is_refused_is_asked_for_again(visitor: Any) -> None:
    page = await visitor.page()
    await page.clock.install()
    await page.route("**/ui/events/stream*", lambda route: route.fulfill(status=503))
    await page.goto("/ui/queues")
    mark = page.locator("[data-live-feed]")
    await expect(mark).to_have_text("reconnecting…")
    await page.unroute("**/ui/events/stream*")
    await page.clock.fast_forward(6000)
    await expect(mark).to_have_text("live")
    visitor.complaints.clear()  # that it was refused


async def test_the_page_of_a_node_follows_it_too(visitor: Any) -> None:
    job_id = await visitor.house.submit("ask")
    await visitor.house.node_is(job_id, "question", "waiting")
    page = await visitor.page("operator")
    await page.goto(f"/ui/jobs/{job_id}/nodes/question")
    await page.evaluate(MARK)
    await expect(page.get_by_text("Waits for an answer")).to_be_visible()
    await expect(page.locator("[data-live-feed]")).to_have_text("live")
    await answer(visitor, job_id)
    await expect(page.get_by_role("group", name="Output")).to_contain_text("approved")
    await expect(page.get_by_text("Waits for an answer")).to_have_count(0)
    assert await page.evaluate(IS_MARKED)


async def test_what_somebody_writes_stays_when_the_inbox_changes(visitor: Any) -> None:
    first = await visitor.house.submit("ask")
    await visitor.house.node_is(first, "question", "waiting")
    page = await visitor.page("operator")
    await page.goto("/ui/approvals")
    mine = page.get_by_role("region", name=f"question of job {first}")
    await mine.get_by_label("Reason").fill("paid twice")
    await mine.get_by_label("method").select_option("voucher")
    await mine.get_by_role("button", name="Approve").focus()
    second = await visitor.house.submit("ask")
    await expect(page.get_by_role("region", name=f"question of job {second}")).to_be_visible()
    await expect(mine.get_by_label("Reason")).to_have_value("paid twice")
    await expect(mine.get_by_label("method")).to_have_value('"voucher"')
    for job_id in (first, second):
        await visitor.house.post(f"/jobs/{job_id}/cancel", {})


async def test_the_graph_opens_nodes_lights_paths_and_zooms(visitor: Any) -> None:
    job_id = visitor.house.jobs["fan"]
    page = await visitor.page()
    await page.goto(f"/ui/jobs/{job_id}")
    await expect(node(page, "whisper")).to_have_class("dag-node skipped")
    await expect(node(page, "spread").locator(".sub")).to_have_text("20 of 20")
    await expect(node(page, "spread").locator(".fill-completed")).to_have_count(1)
    await node(page, "report").hover()
    await expect(node(page, "prepare")).to_have_class("dag-node completed on")
    await expect(node(page, "whisper")).not_to_have_class("on")
    await page.mouse.move(5, 5)
    world = page.locator("#graph svg > g")
    before = await world.get_attribute("transform")
    await page.get_by_role("button", name="Zoom in").click()
    assert await world.get_attribute("transform") != before
    await page.get_by_role("button", name="Show all").click()
    await page.get_by_role("button", name="Children of spread").click()
    await expect(node(page, "spread").locator("rect.fill-completed")).to_have_count(21)  # cells and the bar
    await page.get_by_role("button", name="Children of spread").click()
    await expect(node(page, "spread").locator("rect.fill-completed")).to_have_count(1)
    await node(page, "spread").locator("a").click()
    await expect(page.locator("h1")).to_have_text("spread")


async def test_a_graph_of_hundreds_of_nodes_is_there_soon_and_shows_what_happens(visitor: Any) -> None:
    wide = "".join(f"  a{n}: {{handler: echo, next: [b{n}, b{(n * 7 + 1) % 150}]}}\n" for n in range(150))
    long = "".join(f"  c{n}: {{type: wait, wait: {{seconds: 0}}, next: c{n + 1}}}\n" for n in range(120))
    text = (
        f"workflow_id: large\nnodes:\n{wide}{long}  c120: {{type: approval, approval: {{message: Well?}}}}\n"
    )
    await visitor.house.lab.publish(text + "".join(f"  b{n}: {{handler: echo}}\n" for n in range(150)))
    job_id = await visitor.house.submit("large")
    await visitor.house.node_is(job_id, "c120", "waiting")
    page = await visitor.page()
    await page.goto(f"/ui/jobs/{job_id}")
    await expect(page.locator(".dag-node")).to_have_count(421, timeout=10_000)
    await expect(node(page, "c120")).to_be_in_viewport()
    await expect(node(page, "c0")).not_to_be_in_viewport()
    await page.keyboard.press("Tab")
    await node(page, "c0").locator("a").focus()  # by keys: who comes to a node sees it
    await expect(node(page, "c0")).to_be_in_viewport()
    before = await page.locator("#graph svg > g").get_attribute("transform")
    await page.keyboard.press("ArrowRight")
    assert await page.locator("#graph svg > g").get_attribute("transform") != before
    await page.get_by_role("button", name="Show all").click()
    await expect(node(page, "c120")).to_be_in_viewport()
    await visitor.house.post(f"/jobs/{job_id}/cancel", {})


async def test_the_children_of_a_fan_out_are_followed_on_the_page_of_their_node(visitor: Any) -> None:
    job_id = await visitor.house.submit("crowd")
    await visitor.house.node_is(job_id, "many", "running")
    page = await visitor.page()
    await page.goto(f"/ui/jobs/{job_id}/nodes/many")
    await page.evaluate(MARK)
    await expect(page.locator("[data-region=children]")).to_contain_text("5 queued")
    await expect(page.locator("[data-live-feed]")).to_have_attribute("data-live-state", "on")
    await visitor.house.post(f"/jobs/{job_id}/cancel", {})
    await expect(page.locator("[data-region=children]")).to_contain_text("5 cancelled")
    await expect(page.locator("canvas.strip")).not_to_have_attribute("width", "300")  # it was drawn again
    assert await page.evaluate(IS_MARKED)


async def test_the_children_of_the_past_are_those_of_then(visitor: Any) -> None:
    job_id = visitor.house.jobs["fan"]
    events = await visitor.house.lab.events(job_id)
    begun = next(
        e["seq"] for e in events if (e["event_type"], e["node_id"]) == ("node_dispatched", "spread__3")
    )
    page = await visitor.page()
    await page.goto(f"/ui/jobs/{job_id}")
    await page.get_by_role("button", name="Children of spread").click()
    await expect(node(page, "spread").locator("rect.fill-completed")).to_have_count(21)
    await page.get_by_label("Time travel").fill(str(begun))
    await expect(node(page, "spread").locator("rect.fill-completed")).to_have_count(0)
    await expect(node(page, "spread").locator("rect.fill-dispatched[rx]")).to_have_count(4)
    await page.keyboard.press("Escape")
    await expect(node(page, "spread").locator("rect.fill-completed")).to_have_count(21)
    await page.get_by_label("Time travel").fill(str(begun))
    await expect(page.locator("#travel-out")).to_contain_text(f"event {begun} of")
    await node(page, "spread").locator("a").click()
    await expect(page.get_by_text(f"as of event {begun}")).to_be_visible()
    await expect(page.locator("[data-region=children] .badge.completed")).to_have_count(0)
    await page.get_by_role("link", name="spread__19").click()
    await expect(page.get_by_text("Not rendered then.")).to_be_visible()


async def test_what_came_while_one_looked_back_is_there_afterwards(visitor: Any) -> None:
    job_id = await visitor.house.submit("ask")
    await visitor.house.node_is(job_id, "question", "waiting")
    page = await visitor.page()
    await page.goto(f"/ui/jobs/{job_id}")
    await page.get_by_label("Time travel").fill("2")
    await expect(page.get_by_role("button", name="Back to now")).to_be_enabled()
    await answer(visitor, job_id)
    await visitor.house.status(job_id, "completed")
    await expect(page.locator("#travel-to")).not_to_have_attribute("max", "4")
    await page.get_by_role("button", name="Back to now").click()
    await expect(page.locator("[data-job-badge]")).to_have_text("completed")
    await expect(page.get_by_role("link", name="Retry")).to_be_visible()


async def test_a_job_is_seen_as_it_was(visitor: Any) -> None:
    job_id = visitor.house.jobs["broken"]
    events = await visitor.house.lab.events(job_id)
    dispatched = next(
        e["seq"] for e in events if (e["event_type"], e["node_id"]) == ("node_dispatched", "begin")
    )
    page = await visitor.page()
    await page.goto(f"/ui/jobs/{job_id}")
    await expect(node(page, "wrong")).to_have_class("dag-node failed")
    slider = page.get_by_label("Time travel")
    await slider.fill(str(dispatched))
    await expect(page.locator("#travel-out")).to_contain_text(f"event {dispatched} of {events[-1]['seq']}")
    await expect(node(page, "begin")).to_have_class("dag-node dispatched")
    await expect(node(page, "wrong")).to_have_class("dag-node pending")
    await expect(page.locator("tr[data-node=wrong] [data-cell=status]")).to_have_text("pending")
    await expect(page.locator("[data-job-badge]")).to_have_text("running")
    await node(page, "wrong").locator("a").click()
    await expect(page.get_by_text(f"as of event {dispatched}")).to_be_visible()
    await expect(page.get_by_text("Not rendered then.")).to_be_visible()
    await page.go_back()
    await page.get_by_label("Time travel").fill("2")
    await page.get_by_role("button", name="Play").click()
    await expect(node(page, "wrong")).to_have_class("dag-node failed")  # it plays to its end
    await expect(page.get_by_role("button", name="Back to now")).to_be_disabled()
