"""Two matrices from the gateway's own table of routes: roles x routes, and tenants x routes.

All cells, and both spellings of each route.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.acceptance.gateway_endpoints import ENDPOINTS, UNKNOWN
from tests.acceptance.gateway_site import SUBMIT, Caller, Site, until
from tests.support.access_matrix import MaskedReply, fill_path, mask_reply, query_string

from cograil.http.server.routing import Endpoint
from cograil.model.roles import ROLES, Role
from cograil.model.roles import Caller as Somebody


def body_of(endpoint: Endpoint, things: dict[str, str]) -> dict[str, Any] | None:
    """A body that gets as far as asking for these things."""
    job = {"workflow_id": things["workflow_id"], "submitted_by": "me"}
    bodies: dict[str, dict[str, Any]] = {
        "PlatformSubmit": job,
        "DirectSubmit": job,
        "BatchSubmit": {"jobs": [job]},
    }
    if endpoint.body is not None:
        return bodies[endpoint.body.__name__]
    return {"name": "approve"} if endpoint.path.endswith("/signals") else None


def reply_to(caller: Caller, endpoint: Endpoint, things: dict[str, str], query: str = "") -> MaskedReply:
    path, body = fill_path(endpoint, things) + (f"?{query}" if query else ""), body_of(endpoint, things)
    answer = caller.call(endpoint.method, path, body)
    sent = [thing for thing in things.values() if thing in f"{path}{body}"]
    return mask_reply(answer.status_code, answer.text, sent)


def test_every_route_has_its_twin() -> None:
    paths = {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    assert {(method, path) for method, path in paths if not path.startswith("/api/")} == {
        (method, path.removeprefix("/api")) for method, path in paths if path.startswith("/api/")
    }
    assert len(paths) > 80


@pytest.mark.parametrize("role", ROLES)
def test_each_route_is_for_the_roles_it_names(site: Site, role: Role) -> None:
    caller, somebody = site.caller(role), Somebody("default", role)
    for endpoint in ENDPOINTS:
        reply = reply_to(caller, endpoint, UNKNOWN)
        assert (reply.status != 403) == somebody.may(*endpoint.requires), (endpoint, reply)
        is_away = "/proxy/worker/" in endpoint.path and reply.status == 503  # there is none here
        assert reply.status < 500 or is_away, (endpoint, reply)


def test_without_a_key_only_the_probes_are_open(site: Site) -> None:
    for key in ("", "cog_aaaaaaaaaaaaaaaa_" + "x" * 43):
        for endpoint in ENDPOINTS[:: 1 if not key else 40]:  # of wrong keys one address has a few only
            assert reply_to(Caller(site.gateway, key), endpoint, UNKNOWN).status == 401, endpoint.path
    for probe in ("/livez", "/readyz", "/metrics", "/api/livez", "/api/readyz"):
        assert Caller(site.gateway).get(probe).status_code == 200


def test_another_tenant_gets_the_answers_for_unknown_ids(site: Site, partner: Caller) -> None:
    """B151: byte by byte but for the ids, through the proxy too; and nothing of theirs is changed."""
    request = partner.submit("asking", idempotency_key="mine")
    job = site.job_of(request)
    until(lambda: partner.status(request)["status"] == "running")
    theirs = UNKNOWN | {
        "request_id": request,
        "job_id": job,
        "node_id": "zz_inner_question",
        "workflow_id": "asking",
        "correlation_id": request,
        "idempotency_key": "mine",
        "name": "zz_queue",
    }
    nobodys = UNKNOWN | {"node_id": "zz_inner_question"}
    stranger = site.caller("admin", "other")
    for endpoint in ENDPOINTS:
        for query in ("", *one_by_one(endpoint)):
            replies = [
                reply_to(stranger, endpoint, things, query and f"{query}={things[query]}")
                for things in (theirs, nobodys)
            ]
            assert replies[0] == replies[1], (endpoint.path, query)
            assert not [word for word in (job, request, "zz_inner") if word in replies[0].original], (
                endpoint.path
            )
            if "{job_id}" in endpoint.path or "{request_id}" in endpoint.path:
                assert replies[0].status == 404, (endpoint.path, replies[0])
    shown = site.caller("operator").get(f"/status/job/{job}?include_nodes=true").json()
    assert (shown["status"], [node["status"] for node in shown["nodes"]]) == ("running", ["waiting"] * 2)
    site.caller("operator").post(f"/proxy/orchestrator/api/v1/jobs/{job}/cancel")


def one_by_one(endpoint: Endpoint) -> list[str]:
    """Every parameter of a route that names something."""
    return [pair.partition("=")[0] for pair in query_string(endpoint, UNKNOWN).split("&") if pair]


def test_the_lists_of_a_tenant_that_has_nothing_are_empty(site: Site, partner: Caller) -> None:
    partner.ended(partner.submit("doomed"))
    foreign = site.caller("operator", "other")
    assert foreign.get("/status/jobs").json()["jobs"] == []
    assert foreign.get("/status/stats").json()["total"] == 0
    for name in ("active-jobs", "recent-events", "orphans", "running-nodes", "failed-nodes"):
        assert foreign.get(f"/admin/{name}").json()["count"] == 0, name
    # A workflow of another tenant is not published for this one.
    assert site.caller("gateway", "other").post("/platform/submit", SUBMIT).status_code == 404
