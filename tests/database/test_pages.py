"""The pages as requests: who comes in, what a form must bring, what a page may weigh, and how it was."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from browsing import Browser, roles_are_asked_for, token_of
from doors import Api
from lab import Lab

from cograil.store import board as store
from cograil.store.reading import find_job
from cograil.store.watching import new_events
from cograil.ui.board import board_at, state_of
from cograil.ui.pages import TABLES
from cograil.ui.static_files import static_files

HELLO = "workflow_id: hello\nnodes:\n  greet: {handler: hello_world, params: {name: Ada}}\n"
ASK = "workflow_id: ask\nnodes:\n  question: {type: approval, approval: {message: Well?}}\n"
FAN = """
workflow_id: fan
inputs: {items: {type: array}}
nodes:
  spread:
    type: fan_out
    source: "{{ inputs.items }}"
    task: {handler: echo, params: {item: "{{ item }}"}}
    next: gather
  gather: {type: fan_in}
"""
STORY = """
workflow_id: story
nodes:
  measure: {handler: size_check, params: {size_bytes: 5}, next: route}
  route:
    type: conditional
    condition_field: output.route
    branches:
      - {name: small, condition: "== 'light'", next: spread}
      - {name: large, default: true, next: other}
  other: {handler: echo, next: END}
  spread:
    type: fan_out
    source: [1, 2, 3]
    task: {handler: flaky_echo, params: {failure_rate: 0.2},
           retry: {max_attempts: 10, backoff: fixed, initial_delay_seconds: 0.01}}
    next: gather
  gather: {type: fan_in, next: nap}
  nap: {type: wait, wait: {seconds: 0.05}, next: wrong}
  wrong: {handler: fail, required: false, retry: {max_attempts: 2, initial_delay_seconds: 0.01}, next: end}
  end: {handler: echo}
"""


@pytest.fixture
def browser(api: Api) -> Browser:
    return Browser(api)


# -- who comes in -------------------------------------------------------------------------------------------


async def test_without_keys_pages_are_open_here_as_the_api_is(browser: Browser, lab: Lab) -> None:
    await lab.publish(HELLO)
    page = await browser.get("/ui/workflows/hello")
    assert page.status == 200
    assert b"admin of default" in page.raw
    foreign = await browser.get("/ui/", host="evil.example")
    assert foreign.status == 421
    away = await browser.post("/ui/workflows/hello/pause", {}, origin="http://evil.example")
    assert away.status == 403


async def test_who_names_no_page_is_shown_the_first(browser: Browser) -> None:
    """For now only: a browser that kept it would come here with whatever is at this port tomorrow."""
    for path, status in (("/", 307), ("/ui", 308)):
        answer = await browser.get(path)
        assert (answer.status, answer.headers["location"]) == (status, "/ui/")
    for answer in (await browser.get("//nowhere"), await browser.get("/", accept="application/json")):
        assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")


async def test_with_keys_one_logs_in_and_the_cookie_is_no_key(browser: Browser, api: Api) -> None:
    key = await api.make_key("viewer", name="ada")
    sent = await browser.get("/ui/jobs?status=failed")
    assert (sent.status, sent.headers["location"]) == (303, "/ui/login?next=/ui/jobs%3Fstatus%3Dfailed")
    answer = await browser.login(key, "/ui/jobs?status=failed")
    assert (answer.status, answer.headers["location"]) == (303, "/ui/jobs?status=failed")
    told = answer.headers["set-cookie"].lower()
    assert "httponly" in told
    assert "samesite=lax" in told
    assert "path=/ui" in told
    assert key.split("_", 2)[2] not in answer.headers["set-cookie"]
    page = await browser.get("/ui/jobs")
    assert page.status == 200
    assert b"viewer of default" in page.raw


async def test_a_cookie_that_is_not_as_we_made_it_is_nobody(browser: Browser, api: Api) -> None:
    viewer, admin = await api.make_key("viewer"), await api.make_key("admin")
    await browser.login(viewer)
    mine = browser.cookies["cograil_ui"]
    for forged in (
        mine[:-1] + ("0" if mine[-1] != "0" else "1"),
        mine.replace(mine.split(".")[0], admin.split("_")[1]),
        mine.replace(mine.split(".")[1], "99999999999"),
        "..." + mine,
    ):
        browser.cookies["cograil_ui"] = forged
        assert (await browser.get("/ui/")).status == 303
    browser.cookies["cograil_ui"] = mine
    assert (await browser.get("/ui/")).status == 200


async def test_a_session_ends_with_its_key(browser: Browser, api: Api, lab: Lab) -> None:
    key = await api.make_key("admin")
    await api.make_key("viewer")
    await browser.login(key)
    assert (await browser.get("/ui/")).status == 200
    await lab.rows("update cograil.keys set revoked_at = now() where id = %(id)s", id=key.split("_")[1])
    keys: Any = api.instance.keys
    keys._known.clear()  # five seconds later
    assert (await browser.get("/ui/")).status == 303


async def test_login_leads_to_no_other_site_and_keeps_guessers_out(browser: Browser, api: Api) -> None:
    key = await api.make_key("viewer")
    for place in ("https://evil.example/", "//evil.example", "/ui/\\evil", "/api/v1/jobs"):
        assert (await browser.login(key, place)).headers["location"] == "/ui/"
    browser.cookies.clear()
    statuses = {(await browser.login(f"cog_abc_{guess}")).status for guess in range(25)}
    assert statuses == {401, 429}
    other = await browser.login(await api.make_key("worker"))
    assert other.status in (403, 429)


async def test_another_tenants_job_is_not_there(browser: Browser, api: Api, lab: Lab) -> None:
    job_id = await lab.submit(HELLO)
    await browser.login(await api.make_key("admin", tenant="other"))
    for path in ("", "/timeline", "/nodes/greet", "/state"):
        assert (await browser.get(f"/ui/jobs/{job_id}{path}", accept="*/*")).status == 404
    page = await browser.get("/ui/jobs")
    assert job_id.encode() not in page.raw


async def test_every_page_and_every_form_asks_for_its_role(browser: Browser) -> None:
    await roles_are_asked_for(browser, TABLES)


# -- forms --------------------------------------------------------------------------------------------------


async def test_a_form_needs_its_token_its_origin_a_yes_and_the_role(
    browser: Browser, api: Api, lab: Lab
) -> None:
    job_id = await lab.submit(ASK)
    await lab.advance()
    path = f"/ui/jobs/{job_id}/cancel"
    await browser.login(await api.make_key("submitter"))
    token = await browser.token(f"/ui/jobs/{job_id}")
    yes = {"token": token, "confirmed": "yes"}
    assert (await browser.post(path, {"confirmed": "yes"})).status == 403
    assert (await browser.post(path, yes | {"token": "0" * 40})).status == 403
    assert (await browser.post(path, yes | {"token": "\u00e9"})).status == 403
    assert (await browser.post(path, yes, origin="http://evil.example")).status == 403
    assert (await browser.post(path, yes, sec_fetch_site="cross-site")).status == 403
    assert (await browser.post(path, yes, content_type="text/plain")).status == 415
    assert (await browser.post(f"/ui/jobs/{job_id}/pause", yes)).status == 403  # that takes an operator
    asked = await browser.post(path, {"token": token})
    assert (asked.status, b"Cancel this job?" in asked.raw) == (200, True)
    assert (await lab.job(job_id))["status"] == "running"
    done = await browser.post(path, yes | {"reason": "enough", "back": "//evil.example"})
    assert (done.status, done.headers["location"]) == (303, "/ui/")
    assert (await lab.job(job_id))["status"] == "cancelled"
    (entry,) = await lab.rows("select action, target, role, data ->> 'reason' from cograil.audit_log")
    assert entry == ("cancel", job_id, "submitter", "enough")


async def test_a_form_that_is_sent_twice_makes_one_job(browser: Browser, lab: Lab) -> None:
    await lab.publish(HELLO)
    page = await browser.get("/ui/submit?workflow_id=hello")
    once = re.search(rb'name="once" value="([^"]+)"', page.raw)
    assert once is not None
    form = {
        "token": token_of(page),
        "once": once[1].decode(),
        "workflow_id": "hello",
        "way": "json",
        "json": "{}",
    }
    answers = [await browser.post("/ui/submit", form) for _ in range(2)]
    assert [answer.status for answer in answers] == [303, 303]
    assert len({answer.headers["location"] for answer in answers}) == 1
    assert await lab.rows("select count(*) from cograil.jobs") == [(1,)]
    wrong = await browser.post("/ui/submit", form | {"once": "another", "json": "[1"})
    assert (wrong.status, b"this is no JSON" in wrong.raw) == (422, True)


async def test_a_field_that_does_not_fit_the_workflow_is_marked(browser: Browser, lab: Lab) -> None:
    await lab.publish(HELLO.replace("nodes:", "inputs: {count: {type: integer}}\nnodes:"))
    page = await browser.get("/ui/submit?workflow_id=hello")
    form = {"token": token_of(page), "once": "once", "workflow_id": "hello", "way": "fields"}
    wrong = await browser.post("/ui/submit", form | {"input.count": "1.5"})
    assert (wrong.status, b'aria-invalid="true"' in wrong.raw) == (422, True), wrong.raw


async def test_what_a_job_says_is_text_and_never_markup(browser: Browser, api: Api, lab: Lab) -> None:
    nasty = "</script><script>alert(1)</script>"
    await lab.publish(HELLO)
    job_id = await lab.submit(HELLO, {"name": nasty}, labels={"<b>": nasty}, submitted_by=nasty[:60])
    for path in (f"/ui/jobs/{job_id}", "/ui/jobs", f"/ui/jobs?q={nasty[9:15]}", "/ui/"):
        page = await browser.get(path)
        assert page.status == 200
        assert b"<script>alert" not in page.raw
        policy = page.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert page.headers["x-frame-options"] == "DENY"
        assert re.search(rb'\son\w+="|\sstyle="|javascript:', page.raw) is None


async def test_static_files_are_kept_for_good_under_the_name_of_what_is_in_them(browser: Browser) -> None:
    page = await browser.get("/ui/")
    path = re.search(rb'href="(/ui/static/[0-9a-f]{12}/app.css)"', page.raw)
    assert path is not None
    plain = await browser.get(path[1].decode())
    packed = await browser.get(path[1].decode(), accept_encoding="gzip, br")
    assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert (packed.headers["content-encoding"], len(packed.raw) < len(plain.raw)) == ("gzip", True)
    assert (await browser.get("/ui/static/0/../../app.py")).status == 404
    assert (await browser.get("/ui/static/0/nothing.js")).status == 404


# -- how it was ---------------------------------------------------------------------------------------------


async def test_at_its_last_event_the_past_is_the_present_and_before_it_only_grows(lab: Lab) -> None:
    async with lab.running():
        job_id = await lab.submit(STORY)
        await lab.ended(job_id)
    async with lab.db.transaction("test") as tx:
        found = await find_job(tx, job_id)
        assert found is not None
        workflow = await lab.decider.catalog.get(tx, found[1])
        events = await new_events(tx, job_id, 0)
        now = await store.job_board(tx, job_id, "default")
        assert now is not None
        past = [
            state_of(
                board_at(events, await store.children_at(tx, job_id, "default", seq), seq, workflow), workflow
            )
            for seq in range(1, now.seq + 1)
        ]
    assert [(name, node["status"]) for name, node in past[-1]["nodes"].items()] == [
        (name, node["status"]) for name, node in state_of(now, workflow)["nodes"].items()
    ]
    assert past[-1]["nodes"]["spread"]["children"] == {"completed": 3}
    assert {node["status"] for node in past[0]["nodes"].values()} == {"pending"}
    done = [
        sum(one["counts"].get(status, 0) for status in ("completed", "skipped", "failed")) for one in past
    ]
    assert done == sorted(done)  # nothing that has ended in this job begins again


async def test_a_node_of_the_past_shows_what_was_known_then(browser: Browser, lab: Lab) -> None:
    async with lab.running():
        job_id = await lab.submit(HELLO)
        await lab.ended(job_id)
    seqs = {event["event_type"]: event["seq"] for event in await lab.events(job_id)}
    before = await browser.get(f"/ui/jobs/{job_id}/nodes/greet?at={seqs['node_ready']}")
    during = await browser.get(f"/ui/jobs/{job_id}/nodes/greet?at={seqs['node_dispatched']}")
    after = await browser.get(f"/ui/jobs/{job_id}/nodes/greet?at={seqs['node_completed']}")
    assert b"Not rendered then" in before.raw
    assert b"&#34;name&#34;: &#34;Ada&#34;" in during.raw
    assert b"Hello" not in during.raw
    assert b"Hello" in after.raw
    assert (await browser.get(f"/ui/jobs/{job_id}/at?seq=9999", accept="*/*")).status == 404


# -- what it weighs -----------------------------------------------------------------------------------------


async def test_a_job_with_ten_thousand_children_is_a_small_page_and_a_quick_one(
    browser: Browser, lab: Lab
) -> None:
    job_id = await lab.submit(FAN, {"items": list(range(10_000))})
    await lab.advance()
    assert await lab.rows("select count(*) from cograil.nodes where parent is not null") == [(10_000,)]
    for path in ("", "/state", "/timeline", "/nodes/spread", "/at?seq=9000", "/nodes/spread/strip"):
        await browser.get(f"/ui/jobs/{job_id}{path}", accept="*/*")  # what is prepared once
        begun = time.perf_counter()
        page = await browser.get(f"/ui/jobs/{job_id}{path}", accept="*/*")
        took = time.perf_counter() - begun
        assert page.status == 200, page.raw
        assert len(page.raw) < 300_000, path
        assert took < 1.0, path
    page = await browser.get(f"/ui/jobs/{job_id}/nodes/spread")
    assert b"10,000 queued" in page.raw
    whole = len(
        (await browser.get(f"/ui/jobs/{job_id}")).raw
    )  # with all that any page loads, as it is not packed
    whole += sum(len(file.content) for file in static_files().values() if file.media_type != "text/plain")
    assert whole < 300_000


async def test_jobs_are_found_by_label_and_input_page_by_page(browser: Browser, lab: Lab) -> None:
    await lab.publish(HELLO)
    await lab.submit_many(HELLO, [{"name": f"Ada {number}"} for number in range(60)], labels={"team": "maps"})
    await lab.submit_many(HELLO, [{"name": "Grace"}], labels={"team": "maps", "urgent": ""})
    await lab.submit_many(HELLO, [{"name": "Grace"}])

    async def found(path: str) -> int:
        page = await browser.get(path)
        assert page.status == 200
        return page.raw.count(b'data-name="Job"')

    assert await found("/ui/jobs?label=team%3Dmaps%2C+urgent") == 1
    assert await found("/ui/jobs?q=grace") == 2
    assert await found("/ui/jobs?q=grace&label=team") == 1
    assert await found("/ui/jobs?q=nobody") == 0
    first = await browser.get("/ui/jobs?label=team%3Dmaps")
    assert first.raw.count(b'data-name="Job"') == 50
    older = re.search(rb'href="(/ui/jobs\?[^"]+)" rel="next"', first.raw)
    assert older is not None
    path = older[1].decode().replace("&amp;", "&")
    assert await found(path) == 11
    assert (await browser.get(path.replace("maps", "other"))).status == 422  # a cursor of another list
