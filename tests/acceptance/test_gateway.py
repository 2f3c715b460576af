"""The gateway with real processes: requests from outside, what operators see, and who may."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from tests.acceptance.gateway_site import SUBMIT, Caller, Site, until

# -- requests ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "/api"])
def test_a_request_is_accepted_done_and_answered_under_its_id(site: Site, prefix: str) -> None:
    partner = Caller(site.gateway + prefix, site.keys["default", "gateway"])
    answer = partner.post("/platform/submit", SUBMIT | {"input_params": {"name": "Grace"}, "priority": 4})
    assert answer.status_code == 202
    accepted = answer.json()
    assert accepted.keys() == {"request_id", "workflow_id", "submitted_at", "status"}
    assert (accepted["workflow_id"], accepted["status"]) == ("greet", "accepted")
    done = partner.ended(accepted["request_id"])
    assert done.keys() == {
        *("request_id", "workflow_id", "status", "submitted_at"),
        *("completed_at", "result", "error", "progress"),
    }
    assert done["request_id"] == accepted["request_id"]
    assert (done["status"], done["error"]) == ("completed", None)
    assert done["result"]["zz_inner_greeter"] == {"message": "Hello, Grace!"}
    assert done["progress"] == {"completed": 2, "total": 2, "percent": 100.0}
    ((stored,),) = site.rows(
        f"select count(*) from cograil.jobs where correlation_id = '{accepted['request_id']}'"
        " and submitted_by = 'shop' and priority = 4"
    )
    assert stored == 1


def test_a_circle_through_the_gateway_comes_to_an_end(site: Site, partner: Caller, operator: Caller) -> None:
    """B138: the hop of an event is handed on to the job, so the events of that one say one more."""
    for place, hop in enumerate(("1", "2")):
        answer = partner.post("/platform/submit", SUBMIT, headers={"cograil-hop": hop})
        job = site.job_of(answer.json()["request_id"])
        assert site.rows(f"select labels ->> 'cograil-hop' from cograil.jobs where id = '{job}'") == [(hop,)]
        jobs = {"jobs": [{"workflow_id": "greet"}] * (place + 1)}
        many = operator.post("/gateway/submit/batch", jobs, headers={"cograil-hop": hop}).json()
        for request in many["message_ids"]:
            status = operator.get(f"/status/lookup?correlation_id={request}").json()
            assert status["labels"] == {"cograil-hop": hop}
    refused = partner.post("/platform/submit", SUBMIT, headers={"cograil-hop": "3"})
    assert (refused.status_code, refused.json()["code"]) == (508, "loop_detected")


def test_a_job_that_was_never_a_request_is_none_of_those_outside(
    site: Site, partner: Caller, operator: Caller
) -> None:
    """Somebody inside gave it a correlation id that looks like the id of a request."""
    never = str(uuid4())
    inside = site.caller("submitter", url=site.api)
    made = inside.post("/api/v1/jobs", {"workflow_id": "greet", "correlation_id": never})
    assert made.status_code == 202
    assert partner.get(f"/platform/status/{never}").status_code == 404
    assert operator.get(f"/status/lookup?correlation_id={never}").json()["job_id"] == made.json()["job_id"]


def test_a_request_with_an_idempotency_key_has_one_id_however_often_it_is_made(partner: Caller) -> None:
    key = f"order-{uuid4()}"
    first = partner.submit("greet", idempotency_key=key)
    assert partner.submit("greet", idempotency_key=key) == first
    header = partner.post("/platform/submit", SUBMIT, headers={"idempotency-key": key})
    assert (header.status_code, header.json()["request_id"]) == (202, first)
    other = partner.post("/platform/submit", SUBMIT | {"idempotency_key": key, "priority": 1})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")


def test_a_request_fails_in_one_sentence_and_a_cancelled_one_too(
    site: Site, partner: Caller, operator: Caller
) -> None:
    doomed = partner.ended(partner.submit("doomed"))
    assert (doomed["status"], doomed["result"]) == ("failed", None)
    assert doomed["error"] == "no blob for a step"
    running = partner.submit("long")
    until(lambda: partner.status(running)["status"] == "running")
    assert partner.status(running)["progress"] == {"completed": 0, "total": 1, "percent": 0.0}
    job = site.job_of(running)
    assert operator.post(f"/proxy/orchestrator/api/v1/jobs/{job}/cancel").status_code == 200
    ended = partner.ended(running)
    assert (ended["status"], ended["error"]) == ("failed", "cancelled")


def test_a_request_of_a_paused_workflow_is_pending(site: Site, partner: Caller, operator: Caller) -> None:
    assert operator.post("/proxy/orchestrator/api/v1/workflows/greet/pause").status_code == 200
    try:
        request = partner.submit("greet")
        assert partner.status(request)["status"] in ("pending", "running")
        assert partner.status(request)["completed_at"] is None
    finally:
        assert operator.post("/proxy/orchestrator/api/v1/workflows/greet/resume").status_code == 200
    assert partner.ended(request)["status"] == "completed"


UNKNOWN = "2f2782fa-6c1e-41f2-a367-b03cc45ba13f"


@pytest.mark.parametrize("unknown", [UNKNOWN, "7", "x" * 200, "%00", "..", "%2e%2e%2fsubmit", "ä"])
def test_an_unknown_request_is_not_found(partner: Caller, unknown: str) -> None:
    answer = partner.get(f"/platform/status/{unknown}")
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"


def test_the_id_of_a_job_is_not_the_id_of_a_request(site: Site, partner: Caller) -> None:
    assert partner.get(f"/platform/status/{site.job_of(partner.submit('greet'))}").status_code == 404


def test_a_batch_counts_what_was_accepted_and_says_what_was_not(partner: Caller, operator: Caller) -> None:
    jobs = [{"workflow_id": "greet"}, {"workflow_id": "nope"}, {"workflow_id": "greet", "priority": 9}]
    answer = operator.post("/gateway/submit/batch", {"jobs": jobs})
    assert answer.status_code == 202
    body = answer.json()
    assert (body["submitted"], body["failed"], len(body["message_ids"])) == (2, 1, 2)
    assert [(error["index"], error["code"]) for error in body["errors"]] == [(1, "workflow_not_found")]
    for request_id in body["message_ids"]:
        assert partner.ended(request_id)["status"] == "completed"
    whole = operator.post("/gateway/submit/batch", {"jobs": [{"workflow_id": "greet"}] * 100})
    assert (whole.json()["submitted"], len(set(whole.json()["message_ids"]))) == (100, 100)
    for wrong in ([], [{"workflow_id": "greet"}] * 101, "greet"):
        assert operator.post("/gateway/submit/batch", {"jobs": wrong}).status_code == 422
    single = operator.post("/gateway/submit", {"workflow_id": "greet"})
    assert (single.status_code, single.json()["message_id"]) == (202, single.json()["request_id"])
    assert single.json()["status"] == "queued"


def test_an_operator_may_name_the_correlation_id_of_a_job(operator: Caller) -> None:
    """As clients of the original do; it is found by it."""
    body = {"workflow_id": "greet", "correlation_id": "order-7"}
    submitted = operator.post("/gateway/submit", body).json()
    assert (submitted["correlation_id"], submitted["status"]) == ("order-7", "queued")
    status = operator.get("/status/lookup?correlation_id=order-7").json()
    assert status["correlation_id"] == "order-7"


def test_limits_hold_for_each_job_of_a_batch(operator: Caller) -> None:
    good, large = {"workflow_id": "greet"}, {"name": "x" * 300_000}
    jobs = [good, {"workflow": "greet"}, "greet", good | {"input_params": large}, good]
    body = operator.post("/gateway/submit/batch", {"jobs": jobs}).json()
    assert (body["submitted"], body["failed"]) == (2, 3)
    assert [(error["index"], error["code"]) for error in body["errors"]] == [
        (1, "invalid_input"),
        (2, "invalid_type"),
        (3, "too_large"),
    ]
    inputs = {f"input_{number}": number for number in range(106)}
    many = operator.post("/gateway/submit/batch", {"jobs": [good | {"input_params": inputs}] * 100})
    assert many.status_code == 202
    assert {error["code"] for error in many.json()["errors"]} == {"unknown_input"}


def test_the_key_of_a_batch_makes_each_of_its_jobs_once(operator: Caller) -> None:
    key, own = f"batch-{uuid4()}", f"own-{uuid4()}"
    good: dict[str, Any] = {"workflow_id": "greet"}
    jobs = [good, good, good | {"priority": 3}, good | {"idempotency_key": own}]

    def send(jobs: list[dict[str, Any]], key: str = key) -> dict[str, Any]:
        answer = operator.post("/gateway/submit/batch", {"jobs": jobs}, headers={"idempotency-key": key})
        assert answer.status_code == 202, answer.text
        results: dict[str, Any] = answer.json()
        return results

    first = send(jobs)
    assert (first["submitted"], len(set(first["message_ids"]))) == (4, 4)
    assert send(jobs) == first
    other = send([good, good, good | {"priority": 4}])
    assert other["message_ids"] == first["message_ids"][:2]
    assert [(error["index"], error["code"]) for error in other["errors"]] == [(2, "idempotency_conflict")]
    assert (
        send([good | {"idempotency_key": own}], f"another-{key}")["message_ids"] == first["message_ids"][3:]
    )
    longest = f"{key:x<128}"
    assert len(set(send([good, good], longest)["message_ids"])) == 2
    assert send([good, good], longest) == send([good, good], longest)
    empty = operator.post("/gateway/submit/batch", {"jobs": jobs}, headers={"idempotency-key": ""})
    assert (empty.status_code, empty.json()["code"]) == (400, "invalid_idempotency_key")


def test_a_job_is_found_by_its_key_whichever_route_it_came_by(site: Site, operator: Caller) -> None:
    api = site.caller("operator", url=site.api)
    body = {"workflow_id": "greet"}
    routes = ("/api/v1/jobs", "/api/dag/submit", "/api/v1/jobs/batch", "/api/v1/submit")
    for route in routes:
        key = f"{route.strip('/').replace('/', '-')}-{uuid4()}"
        submission: dict[str, Any] = body | {"idempotency_key": key}
        if route.endswith("batch"):
            submission = {"jobs": [submission]}
        elif route.endswith("v1/submit"):
            submission |= {"submitted_by": "shop", "request_id": str(uuid4())}
        submitted = api.post(route, submission).json()
        job = submitted["results"][0]["job_id"] if "results" in submitted else submitted["job_id"]
        assert operator.get(f"/status/lookup?idempotency_key={key}").json()["job_id"] == job, route


# -- operators --------------------------------------------------------------------------------------------


def test_operators_see_jobs_nodes_events_and_counts(site: Site, partner: Caller, operator: Caller) -> None:
    key = f"seen-{uuid4()}"
    partner.ended(partner.submit("greet"))  # of two, one is on the second page
    request = partner.submit("greet", idempotency_key=key)
    partner.ended(request)
    job = site.job_of(request)
    shown = operator.get(f"/status/job/{job}").json()
    assert (shown["job_id"], shown["correlation_id"], shown["nodes"]) == (job, request, None)
    assert {"created_at", "started_at", "completed_at", "error_message", "owner_id"} <= shown.keys()
    nodes = operator.get(f"/status/job/{job}?include_nodes=true").json()["nodes"]
    assert [node["node_id"] for node in nodes] == ["zz_inner_greeter", "zz_inner_echo"]
    assert operator.get(f"/status/job/{job}/nodes").json()["nodes"] == nodes
    events = operator.get(f"/status/job/{job}/events").json()["events"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert len(operator.get(f"/status/job/{job}/events?limit=2").json()["events"]) == 2
    assert operator.get(f"/status/lookup?correlation_id={request}").json()["job_id"] == job
    assert operator.get(f"/status/lookup?idempotency_key={key}").json()["job_id"] == job
    stats = operator.get("/status/stats").json()
    assert stats["completed"] >= 1
    assert stats["total"] >= stats["completed"]
    newest, *_ = operator.get("/status/jobs?limit=1").json()["jobs"]
    assert newest["job_id"] == job
    page = operator.get("/status/jobs?status=completed&workflow_id=greet&limit=1&offset=1").json()
    assert (page["limit"], page["offset"], len(page["jobs"])) == (1, 1, 1)
    assert page["jobs"][0]["job_id"] != job
    assert page["total"] >= 2


def test_operators_see_what_runs_what_failed_and_what_is_left_alone(
    site: Site, partner: Caller, operator: Caller
) -> None:
    partner.ended(partner.submit("doomed"))
    running = partner.submit("long")
    job = site.job_of(running)

    def runs() -> bool:
        return job in [node["job_id"] for node in operator.get("/admin/running-nodes").json()["nodes"]]

    until(runs)
    assert job in [active["job_id"] for active in operator.get("/admin/active-jobs").json()["jobs"]]
    failed = operator.get("/admin/failed-nodes?limit=3").json()["nodes"]
    assert failed[0]["error"]["message"]
    assert failed[0]["status"] == "failed"
    events = operator.get("/admin/recent-events?limit=5").json()
    assert events["count"] == 5
    assert events["events"][0]["created_at"] >= events["events"][-1]["created_at"]
    assert operator.get("/admin/orphans").json()["orphans"] == []
    operator.post(f"/proxy/orchestrator/api/v1/jobs/{job}/cancel")
    health = operator.get("/admin/health").json()
    assert (health["status"], health["processes"]) == ("healthy", {"orchestrator": 1, "worker": 1})
    assert operator.get("/gateway/health").json()["checks"] == {"database": "ok", "orchestrator": "ok"}
    config = operator.get("/admin/config").json()
    assert config["is_read_only"] is True
    assert config["config"]["gateway.api_url"] == site.api
    assert operator.get("/proxy/health").json()["orchestrator"] == {"status": "ok"}


def test_the_proxy_passes_on_what_stands_in_its_list_and_nothing_else(site: Site, operator: Caller) -> None:
    request = operator.submit("greet")
    operator.ended(request)
    job = site.job_of(request)
    assert operator.get("/proxy/orchestrator/livez").json()["alive"] is True
    assert operator.get(f"/proxy/orchestrator/api/v1/jobs/{job}").json()["job"]["job_id"] == job
    assert len(operator.get("/proxy/orchestrator/api/v1/jobs?limit=1").json()["jobs"]) == 1
    late = operator.post(f"/proxy/orchestrator/api/v1/jobs/{job}/cancel")
    assert late.status_code == 409
    assert late.json()["error"] == "the job has already ended"
    for path in ("rebuild", "api/v1/keys", "api/v1/submit", "api/v1/jobs/batch", "api/v1/jobs/x/../../keys"):
        assert operator.get(f"/proxy/orchestrator/{path}").status_code in (404, 405), path
    for path in (
        f"jobs/{job}%2fcancel",
        "jobs/..",
        "jobs/%2e%2e",
        "jobs/a%20b",
        "jobs/%0d%0ax",
        "jobs/a?b=%00",
    ):
        assert operator.get(f"/proxy/orchestrator/api/v1/{path}").status_code in (404, 405, 422), path
    assert operator.post("/proxy/orchestrator/api/v1/jobs", {"workflow_id": "greet"}).status_code == 405
    assert operator.call("DELETE", f"/proxy/orchestrator/api/v1/jobs/{job}").status_code == 405
    for target in ("mars", "orchestrator.evil.example", "127.0.0.1:22", "%6f"):
        assert operator.get(f"/proxy/{target}/livez").status_code == 400
    assert operator.get("/proxy/worker/livez").status_code == 503
