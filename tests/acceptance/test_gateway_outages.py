"""The gateway while the API or the database is broken, slow, gone or not there yet."""

from __future__ import annotations

import pytest
from tests.acceptance.gateway_site import SUBMIT, Caller, Scripted, Site, answers, cograil, free_port, until

from cograil.embedded.data_directory import read_instance


def test_an_api_that_is_broken_slow_or_gone_is_a_bad_gateway(site: Site) -> None:
    script = Scripted()
    with script.serving() as api, site.gateway_before(api, COGRAIL_GATEWAY__TIMEOUT_SECONDS="0.5") as caller:
        broken = caller.post("/platform/submit", SUBMIT)
        assert (broken.status_code, broken.json()["code"]) == (502, "bad_gateway")
        assert "zz_inner" not in broken.text
        (method, path, headers, _) = script.seen[-1]
        assert (method, path) == ("POST", "/api/v1/submit")
        assert {name.lower(): value for name, value in headers.items()}[
            "authorization"
        ] == f"Bearer {caller.key}"
        script.answer = (
            422,
            {"code": "invalid_input", "detail": "name is missing", "pointer": "/input_params"},
        )
        relayed = caller.post("/platform/submit", SUBMIT)
        assert relayed.status_code == 422
        assert relayed.json() == {
            "error": "name is missing",
            "code": "invalid_input",
            "details": {"pointer": "/input_params"},
        }
        script.answer = None
        before = len(script.seen)
        assert caller.post("/platform/submit", SUBMIT).status_code == 502
        sent = [body for *_, body in script.seen[before:]]
        assert len(sent) == 2
        assert sent[0] == sent[1]
        script.waits.clear()
        slow = caller.post("/platform/submit", SUBMIT)
        assert (slow.status_code, slow.json()["code"]) == (504, "gateway_timeout")
        assert caller.get("/proxy/orchestrator/api/v1/jobs").status_code == 504
        batch = caller.post("/gateway/submit/batch", {"jobs": [{"workflow_id": "greet"}] * 3})
        assert batch.status_code == 504
        script.waits.set()
        script.answer = (500, {})
        assert caller.get("/proxy/orchestrator/api/v1/jobs").status_code == 502
    with site.gateway_before(site.api) as caller:
        assert caller.get("/status/jobs").status_code == 200


def test_a_gateway_whose_api_has_gone_answers_what_it_reads_itself(site: Site, partner: Caller) -> None:
    request = partner.submit("greet")
    partner.ended(request)
    script = Scripted()
    with script.serving() as api:
        gateway = site.gateway_before(api, WORKER_URL=site.api)
        caller = gateway.__enter__()
    try:
        gone = caller.post("/platform/submit", SUBMIT)
        assert (gone.status_code, gone.json()["code"]) == (502, "bad_gateway")
        assert caller.get("/proxy/orchestrator/livez").status_code == 503
        assert caller.status(request)["status"] == "completed"
        assert caller.get("/gateway/health").json()["status"] == "degraded"
        assert caller.get("/readyz").status_code == 200
        assert caller.get("/proxy/worker/livez").json()["alive"] is True
        assert caller.get("/proxy/worker/api/v1/jobs").status_code == 404
        health = caller.get("/proxy/health").json()
        assert health["orchestrator"] == {"status": "unreachable"}
        assert health["worker"] == {"status": "ok"}
    finally:
        gateway.__exit__(None, None, None)


def test_a_gateway_starts_before_the_database_and_opens_when_all_is_there(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("alone")
    port, inner = free_port(), free_port()
    caller = Caller(f"http://127.0.0.1:{port}")
    with cograil(directory, "gateway", "--port", str(port)):
        until(lambda: answers(f"{caller.url}/livez"))
        assert (caller.get("/livez").status_code, caller.get("/livez").json()) == (200, {"alive": True})
        until(lambda: "not checked yet" not in caller.get("/readyz").text)
        answer = caller.get("/readyz")
        assert (answer.status_code, answer.json()["ready"]) == (503, False)
        assert answer.json()["details"].keys() == {"env_vars", "database", "orchestrator"}
        for path in ("/status/jobs", "/platform/status/x", "/nothing"):
            assert (caller.get(path).status_code, caller.get(path).json()["code"]) == (503, "not_ready")
        # `up` with a gateway of its own, on the same data directory.
        with cograil(directory, "up", "--port", "0", "--gateway-port", str(inner)):
            until(lambda: answers(f"{caller.url}/readyz") == 200)
            until(lambda: answers(f"http://127.0.0.1:{inner}/readyz") == 200)
            until(lambda: read_instance(directory / "data"))
            for url in (caller.url, f"http://127.0.0.1:{inner}"):
                assert Caller(url).get("/status/stats").json()["total"] == 0  # no keys: loopback is trusted
                assert Caller(url).post("/platform/submit", SUBMIT).status_code == 404
        until(lambda: caller.get("/readyz").status_code == 503)
        assert caller.get("/readyz").json()["details"] == {"database": "unreachable"}


def test_a_gateway_finds_an_instance_that_listens_everywhere(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Its file says 0.0.0.0, an address that nobody can connect to."""
    directory = tmp_path_factory.mktemp("everywhere")
    (directory / "key").write_text("a-key-in-a-file\n")
    port, secret = free_port(), {"API_KEY_FILE": str(directory / "key")}
    with (
        cograil(directory, "up", "--port", "0", "--host", "0.0.0.0", **secret),
        cograil(directory, "gateway", "--port", str(port), **secret),
    ):
        caller = Caller(f"http://127.0.0.1:{port}", "a-key-in-a-file")
        until(lambda: answers(f"{caller.url}/readyz") == 200)
        assert caller.get("/readyz").json()["checks"]["orchestrator"] == "ok"
        assert caller.post("/platform/submit", SUBMIT).status_code == 404


def test_a_database_or_an_api_that_nobody_has_is_named_in_the_checks(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    port = free_port()
    named = {"DATABASE_URL": "postgresql://127.0.0.1:1/none", "ORCHESTRATOR_URL": "http://127.0.0.1:1"}
    with cograil(tmp_path_factory.mktemp("none"), "gateway", "--port", str(port), **named):
        url = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{url}/readyz") == 503 and "unreachable" in Caller(url).get("/readyz").text)
        details = Caller(url).get("/readyz").json()["details"]
        assert details == {"database": "unreachable", "orchestrator": "unreachable"}
        assert "127.0.0.1:1" not in Caller(url).get("/readyz").text


def test_a_gateway_without_keys_listens_on_loopback_only(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("open")
    with cograil(directory, "up", "--port", "0"):
        until(lambda: read_instance(directory / "data"))
        with cograil(directory, "gateway", "--host", "0.0.0.0", "--port", "0") as process:
            assert process.wait(60) == 2
