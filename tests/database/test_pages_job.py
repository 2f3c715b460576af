"""The pages of one job as requests: retry, submit again, why it failed, logs, progress, nodes."""

from __future__ import annotations

import re

import orjson
import pytest
from browsing import Browser, token_of
from doors import Api
from lab import Lab

from cograil.model.outcome import Failed

PAY = """
workflow_id: pay
inputs:
  order: {type: integer, default: 7}
  to: {type: string, default: mars}
nodes:
  charge: {handler: charge, params: {order: "{{ inputs.order }}"}, next: [ship, tell]}
  tell: {handler: tell, required: false, retry: {max_attempts: 1}, next: END}
  ship: {handler: ship, params: {to: "{{ inputs.to }}"}, retry: {max_attempts: 1}, next: thank}
  thank: {handler: thank, next: END}
"""
TRACEBACK = "Traceback (most recent call last):\n  KeyError: 'mars'"


@pytest.fixture
def browser(api: Api) -> Browser:
    return Browser(api)


async def pay(lab: Lab, *, ships: bool) -> str:
    """A job that charged, could tell nobody, and shipped or failed to."""
    await lab.publish(PAY)
    job_id = await lab.submit(PAY)
    hand = await lab.hand()
    broken = Failed("handler_error", "KeyError: 'mars'", details={"traceback": TRACEBACK})
    while items := await hand.claim():
        for item in items:
            works = item.handler in ("charge", "thank") or (ships and item.handler == "ship")
            await hand.report(item, {"done": item.handler} if works else broken)
        await lab.advance()
    assert (await lab.job(job_id))["status"] == ("completed" if ships else "failed")
    return job_id


def rows_of(page: bytes) -> dict[str, tuple[str, str]]:
    """What the preview says of each node: what becomes of it, and with which key."""
    found = re.findall(rb'<tr class="way-(\w+)"><td class="word">(\w+)</td>.*?<td>([^\n]*?)</td></tr>', page)
    told = {}
    for way, name, cells in found:
        last = re.sub(rb"<[^>]*>", b"", cells.split(b"<td>")[-1])
        told[name.decode()] = (way.decode(), last.decode())
    return told


async def test_a_failed_job_says_why_and_what_to_do(browser: Browser, lab: Lab) -> None:
    job_id = await pay(lab, ships=False)
    page = (await browser.get(f"/ui/jobs/{job_id}")).raw.decode()
    assert "Why it failed" in page
    assert "failed in attempt 1 of 1" in page
    assert "Traceback (most recent call last)" in page
    assert "fails the same way" in page
    assert re.search(r'data-node="tell" data-optional="yes"', page)
    assert 'class="badge failed optional"' in page
    state = orjson.loads((await browser.get(f"/ui/jobs/{job_id}/state", accept="*/*")).raw)
    assert state["percent"] == 25.0  # charge; what was skipped was not done
    assert '<progress max="100" value="25.0" data-progress class="failed"' in page


async def test_a_completed_job_is_full(browser: Browser, lab: Lab) -> None:
    job_id = await pay(lab, ships=True)
    page = (await browser.get(f"/ui/jobs/{job_id}")).raw.decode()
    assert '<progress max="100" value="100.0" data-progress class="completed"' in page
    assert "Submit again" in page


async def test_a_retry_is_previewed_with_its_keys_and_done(browser: Browser, lab: Lab) -> None:
    job_id = await pay(lab, ships=False)
    page = await browser.get(f"/ui/jobs/{job_id}/retry")
    assert rows_of(page.raw) == {
        "charge": ("kept", ""),
        "tell": ("again", "same"),
        "ship": ("again", "same"),
        "thank": ("again", "same"),
    }
    assert b"Nothing is changed for it" in page.raw
    fields = {"token": token_of(page), "from_node": "charge", "way": "form", "input.order": "7"}
    fields |= {"input.to": "earth", "do": "preview"}
    seen = await browser.post(f"/ui/jobs/{job_id}/retry", fields)
    assert rows_of(seen.raw)["charge"] == ("again", "new")
    assert b"charge completed</b>; running it again uses a NEW idempotency key" in seen.raw
    assert b"Nothing is changed for it" not in seen.raw
    done = await browser.post(f"/ui/jobs/{job_id}/retry", fields | {"from_node": "ship", "do": "retry"})
    assert done.status == 303
    again = await lab.job(done.headers["location"].rsplit("/", 1)[1])
    assert (again["retry_of"], again["input_params"]["to"]) == (job_id, "earth")


async def test_a_retry_never_ends_in_a_dead_end(browser: Browser, lab: Lab) -> None:
    job_id = await pay(lab, ships=True)
    page = await browser.get(f"/ui/jobs/{job_id}/retry")
    assert page.status == 200
    assert b"Choose the node from which to run it again." in page.raw
    fields = {
        "token": token_of(page),
        "from_node": "",
        "way": "json",
        "json": '{"order": "x"}',
        "do": "retry",
    }
    wrong = await browser.post(f"/ui/jobs/{job_id}/retry", fields | {"from_node": "charge"})
    assert wrong.status == 422
    assert b"a retry can change this input and not remove it" in wrong.raw
    late = await browser.post(f"/ui/jobs/{job_id}/retry", fields | {"json": '{"order": 7, "to": "mars"}'})
    assert late.status == 409
    assert b'name="from_node"' in late.raw  # the form is still there
    open_job = await lab.submit(PAY)
    running = await browser.get(f"/ui/jobs/{open_job}/retry")
    assert b"It can be retried once it has ended" in running.raw


async def test_an_ended_job_is_submitted_again_with_its_inputs(browser: Browser, lab: Lab) -> None:
    job_id = await pay(lab, ships=False)
    page = (await browser.get(f"/ui/submit?again={job_id}")).raw
    assert b'name="input.to" value="mars"' in page
    assert b'name="version" value="1"' in page
    assert (await browser.get("/ui/submit?again=01a1ee65-1c7d-7000-8000-000000000000")).status == 404


async def test_the_form_of_the_only_workflow_is_shown_at_once(browser: Browser, lab: Lab) -> None:
    await lab.publish(PAY)
    assert b'name="input.to"' in (await browser.get("/ui/submit")).raw
    await lab.publish(PAY.replace("workflow_id: pay", "workflow_id: other"))
    assert b'href="/ui/submit?workflow_id=other"' in (await browser.get("/ui/submit")).raw


# -- logs ------------------------------------------------------------------------------------------

LOG = """
insert into cograil.task_logs (job_id, node_id, attempt, lines) values
  (%(job)s, 'charge', 1, '[
    {"at": "2026-11-18T10:00:00+00:00", "level": "info", "message": "charged", "fields": {"order": 7}},
    {"at": "2026-11-18T10:00:02+00:00", "level": "warning", "message": "slow"}]'),
  (%(job)s, 'ship', 1, '[{"at": "2026-11-18T10:00:01+00:00", "level": "error", "message": "lost <b>"}]')
"""


async def logged(lab: Lab) -> str:
    job_id = await lab.submit(PAY)
    await lab.rows(LOG, job=job_id)
    return job_id


async def test_the_logs_of_a_job_have_pages_and_filters(api: Api, lab: Lab) -> None:
    job_id = await logged(lab)
    path = f"/api/v1/jobs/{job_id}/logs"

    async def messages(query: str) -> list[str]:
        return [line["message"] for line in (await api.get(path + query)).body["logs"]]

    assert await messages("") == ["charged", "slow", "lost <b>"]
    assert await messages("?node_id=ship") == ["lost <b>"]
    assert await messages("?level=warning") == ["slow", "lost <b>"]
    assert await messages("?search=ORDER") == ["charged"]
    first = (await api.get(f"{path}?limit=2")).body
    assert [line["message"] for line in first["logs"]] == ["charged", "slow"]
    rest = (await api.get(f"{path}?limit=2&after={first['next_cursor']}")).body
    assert [line["message"] for line in rest["logs"]] == ["lost <b>"]
    assert rest["next_cursor"] is None
    assert first["logs"][0]["fields"] == {"order": 7}
    assert await messages(f"?after={rest['logs'][-1]['cursor']}") == []
    assert (await api.get(f"{path}?after=x")).status == 422
    assert (await api.get(f"/api/v1/jobs/{job_id[:-1]}0/logs")).status in (404, 200)


async def test_the_log_page_interleaves_nodes_and_shows_fields(browser: Browser, lab: Lab) -> None:
    job_id = await logged(lab)
    page = (await browser.get(f"/ui/jobs/{job_id}/logs")).raw.decode()
    places = [page.index(text) for text in ("charged", "lost &lt;b&gt;", "> slow")]
    assert places == sorted(places)
    assert "order=7" in page
    assert "order=7" in (await browser.get(f"/ui/jobs/{job_id}/nodes/charge")).raw.decode()
    found = (await browser.get(f"/ui/jobs/{job_id}/logs?level=error")).raw.decode()
    assert ("charged" in found, "lost &lt;b&gt;" in found) == (False, True)
    text = await browser.get(f"/ui/jobs/{job_id}/logs/download?format=text&node=charge")
    assert text.raw.splitlines()[0] == b"2026-11-18T10:00:00+00:00 charge#1 info charged order=7"
    assert text.headers["content-disposition"] == f'attachment; filename="{job_id}.log"'
    lines = (await browser.get(f"/ui/jobs/{job_id}/logs/download?format=json")).raw.splitlines()
    assert [orjson.loads(line)["node_id"] for line in lines] == ["charge", "charge", "ship"]


# -- nodes -----------------------------------------------------------------------------------------

MANY = """
workflow_id: many
nodes:
  cut: {type: fan_out, source: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], task: {handler: echo}, next: gather}
  gather: {type: fan_in}
"""


async def test_nodes_hide_children_and_sort_them_by_number(browser: Browser, lab: Lab) -> None:
    await lab.publish(MANY)
    await lab.submit(MANY)
    await lab.advance()

    async def names(query: str) -> list[str]:
        page = (await browser.get(f"/ui/nodes{query}")).raw.decode()
        return re.findall(r'data-name="Node" class="name"><a [^>]*>([^<]*)<', page)

    assert await names("") == ["cut"]
    assert await names("?children=yes") == ["cut", *(f"cut__{index}" for index in range(12))]
    assert await names("?children=yes&name=__1") == ["cut__1", "cut__10", "cut__11"]
    assert b'data-name="Attempt" class="right">-<' in (await browser.get("/ui/nodes")).raw


async def test_the_filter_of_nodes_says_queued_for_what_is_dispatched(browser: Browser, lab: Lab) -> None:
    await lab.submit(MANY)
    await lab.advance()
    page = (await browser.get("/ui/nodes?children=yes&status=dispatched")).raw.decode()
    assert '<option value="dispatched" selected>queued</option>' in page
    assert "cut__3" in page
    assert ">dispatched<" not in page
    assert "cut__3" in (await browser.get("/ui/nodes?children=yes&status=queued")).raw.decode()
    assert b"queued" in (await browser.get("/ui/nodes?status=odd")).raw


# -- the reference of the API, and what is not there -----------------------------------------------


async def test_docs_lead_to_the_reference_of_the_api(browser: Browser) -> None:
    moved = await browser.get("/docs")
    assert (moved.status, moved.headers["location"]) == (307, "/ui/docs")
    page = (await browser.get("/ui/docs")).raw.decode()
    assert "/api/v1/jobs/{job_id}/logs" in page
    assert "workflow_id: string" in page
    document = await browser.get("/openapi.json", accept="*/*")
    assert (document.status, document.headers["location"]) == (307, "/api/v1/openapi.json")
    assert orjson.loads((await browser.get("/ui/docs/openapi.json", accept="*/*")).raw)["openapi"] == "3.1.0"


async def test_a_deadline_has_its_date(browser: Browser, lab: Lab) -> None:
    text = (
        "workflow_id: ask\nnodes:\n  q: {type: approval, timeout_seconds: 80000, approval: {message: Pay?}}\n"
    )
    job_id = await lab.submit(text)
    page = (await browser.get(f"/ui/jobs/{job_id}")).raw.decode()
    assert re.search(r"until <time [^>]*>\d{4}-\d\d-\d\d \d\d:\d\d", page)
    assert "Pay?" in page


async def test_a_page_that_does_not_exist_keeps_the_menu(browser: Browser) -> None:
    page = await browser.get("/ui/nothing")
    assert page.status == 404
    assert b"admin of default" in page.raw
    assert b"<h2>Apps</h2>" in page.raw
    foreign = await browser.get("/ui/nothing", host="evil.example")
    assert b"admin of default" not in foreign.raw
