"""Subscriptions and deliveries over HTTP."""

from __future__ import annotations

from tests.support.api_client import ApiClient

HELLO = "workflow_id: hello\nnodes: {greet: {handler: hello_world}}"
SUBSCRIPTIONS, DELIVERIES = "/api/v1/subscriptions", "/api/v1/deliveries"


async def test_a_subscription_shows_its_secret_once(api: ApiClient) -> None:
    made = await api.post(SUBSCRIPTIONS, {"url": "https://example.com/hook", "types": ["job.completed"]})
    assert made.status == 201, made.raw
    name = made.body["subscription_id"]
    assert made.body["secret"].startswith("whsec_")
    listed = (await api.get(SUBSCRIPTIONS)).body["subscriptions"]
    assert [subscription["subscription_id"] for subscription in listed] == [name]
    assert made.body["secret"] not in str(listed)
    assert (await api.get(f"{SUBSCRIPTIONS}/{name}")).body["url"] == "https://example.com/hook"
    assert (await api.call("DELETE", f"{SUBSCRIPTIONS}/{name}")).status == 200
    assert (await api.get(f"{SUBSCRIPTIONS}/{name}")).status == 404


async def test_a_receiver_that_must_not_be_told_is_refused(api: ApiClient) -> None:
    for url in ("http://127.0.0.1/", "ftp://example.com/", "http://a@example.com/", "https://[::1]/"):
        answer = await api.post(SUBSCRIPTIONS, {"url": url})
        assert answer.status == 422, url
        assert answer.code.startswith("callback_"), url
        assert answer.body["pointer"] == "/url"


async def test_a_foreign_subscription_is_unknown(api: ApiClient) -> None:
    mine, other = await api.make_key("operator", "acme"), await api.make_key("operator", "globex")
    name = (await api.post(SUBSCRIPTIONS, {"url": "https://example.com/"}, key=mine)).body["subscription_id"]
    assert (await api.get(f"{SUBSCRIPTIONS}/{name}", key=other)).status == 404
    assert (await api.call("DELETE", f"{SUBSCRIPTIONS}/{name}", key=other)).status == 404
    assert (await api.get(SUBSCRIPTIONS, key=other)).body["subscriptions"] == []


async def test_a_secret_is_replaced_and_shown_once(api: ApiClient) -> None:
    made = (await api.post(SUBSCRIPTIONS, {"url": "https://example.com/hook"})).body
    path = f"{SUBSCRIPTIONS}/{made['subscription_id']}/rotate"
    rotated = await api.post(path)
    assert (rotated.status, rotated.body["overlap_hours"]) == (200, 24)
    assert rotated.body["secret"].startswith("whsec_")
    assert rotated.body["secret"] != made["secret"]
    assert rotated.body["secret"] not in str((await api.get(SUBSCRIPTIONS)).body)
    own = await api.post(path, {"secret": made["secret"], "overlap_hours": 0})
    assert own.body["secret"] == made["secret"]
    refused = await api.post(path, {"secret": "short"})
    assert (refused.status, refused.code, refused.body["pointer"]) == (422, "callback_secret", "/secret")
    stranger = await api.make_key("operator", "globex")
    assert (await api.post(path, key=stranger)).status == 404
    audited = await api.harness.rows(
        "select data::text from cograil.audit_log where action = 'rotate subscription'"
    )
    assert len(audited) == 2
    assert "whsec" not in str(audited)


async def test_deliveries_are_listed_and_unknown_ones_are_not_sent(api: ApiClient) -> None:
    assert (await api.get(DELIVERIES)).body == {"deliveries": [], "next_cursor": None}
    assert (await api.get(f"{DELIVERIES}?state=lost")).code == "invalid_parameter"
    assert (await api.post(f"{DELIVERIES}/01a1e50c-7310-7248-8dd1-729d3582eaf2/resend")).status == 404
    assert (await api.get(f"{DELIVERIES}/x")).status == 404


async def test_a_job_with_a_callback_that_must_not_be_is_refused(api: ApiClient) -> None:
    await api.post("/api/v1/workflows", {"source": HELLO})
    body = {"workflow_id": "hello", "callback": {"url": "http://169.254.169.254/"}}
    answer = await api.post("/api/v1/jobs", body)
    assert (answer.status, answer.code) == (422, "callback_blocked_address")
