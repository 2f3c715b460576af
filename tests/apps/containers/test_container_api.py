"""The wire of /v1/jobs: what existing callers send, and what they are answered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.apps.containers.container_site import IMAGE, ContainerSite, settled, working

from cograil.apps.containers.settings import ContainerSettings
from cograil.processes.app_plugins import app_checks
from cograil.processes.process_readiness import ProcessHealth
from cograil.settings import Settings


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"image": IMAGE}, "id"),
        ({"id": "a"}, "image"),
        ({"id": "a/b", "image": IMAGE}, "id"),
        ({"id": "a", "image": IMAGE, "colour": "red"}, "colour"),
        ({"id": "a", "image": IMAGE, "cpu": 65}, "cpu"),
        ({"id": "a", "image": IMAGE, "memory": "64"}, "memory"),
        ({"id": "a", "image": IMAGE, "callback": {"url": "ftp://x"}}, "callback.url"),
        ({"id": "a", "image": IMAGE, "callback": {"url": "http://169.254.169.254/"}}, "169.254.169.254"),
        ([], "object"),
    ],
)
async def test_what_cannot_be_understood_is_400_and_says_why(
    site: ContainerSite, body: Any, named: str
) -> None:
    answer = await site.call("POST", body=body)
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
    assert answer.body.keys() == {"error"}
    assert named in answer.body["error"]


@pytest.mark.parametrize(
    ("artifacts", "named"),
    [
        ([{"id": "a", "depends": "b"}, {"id": "b", "depends": "a"}], "depends on itself"),
        ([{"id": "a"}, {"id": "a"}], "used twice"),
        ([{"id": "job"}], "job"),
        ([{"id": "a", "depends": "nobody"}], "nobody"),
        ([{"id": "a", "in": "../x"}], "artifacts[0].in"),
        ([{"id": "a"}, {"id": "b", "in": "/etc/passwd"}], "artifacts[1].in"),
        ([{"id": "a", "in": "a\0b"}], "U+0000 at /artifacts/0/in"),
        ([{"id": "a", "in": "a\nb"}], "artifacts[0].in"),
        ([{"id": "a", "in": "d/" * 33}], "artifacts[0].in"),
        ([{"id": "a", "in": ".cograil-x"}], "artifacts[0].in"),
        ([{"id": "a", "type": "write", "out": "x", "sha256": "0"}], "artifacts[0].sha256"),
        ([{"id": "a", "type": "dance"}], "artifacts[0]"),
    ],
)
async def test_artifacts_that_could_not_be_carried_out_are_400(
    site: ContainerSite, artifacts: list[dict[str, Any]], named: str
) -> None:
    with_type = [{"type": "list", "in": "x"} | artifact for artifact in artifacts]
    answer = await site.post("wrong", artifacts=with_type)
    assert (answer.status, answer.body.keys()) == (400, {"error"})
    assert named in answer.body["error"]
    assert (await site.call("GET")).body == {"jobs": []}


# Two bytes for a dot, in a body that is fine but for them.
OVERLONG = b'{"id": "a", "image": "b", "artifacts": [{"id": "c", "type": "read", "in": "x\xc0\xaey"}]}'


async def test_bodies_that_are_no_json_or_too_large(site: ContainerSite) -> None:
    head = "POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    for kind, content, status in (
        ("text/plain", b"{}", 415),
        ("application/json", b"{", 400),
        ("application/json", b'{"id": "a", "id": "b"}', 400),
        ("application/json", OVERLONG, 400),
        ("application/json", b'"' + b"x" * 1024 * 1024 + b'"', 400),
    ):
        sent = f"{head}content-type: {kind}\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content
        answer = await site.api.raw(sent)
        assert (answer.status, answer.body.keys()) == (status, {"error"})


async def test_a_body_without_a_content_type_is_json(site: ContainerSite) -> None:
    """As clients of the original send it."""
    content = b'{"id": "plain", "image": "x"}'
    head = f"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n"
    answer = await site.api.raw(f"{head}connection: close\r\n\r\n".encode() + content)
    assert (answer.status, answer.body) == (202, {"id": "plain", "status": "accepted"})


async def test_one_that_was_deleted_is_shown_as_cancelled(site: ContainerSite) -> None:
    await site.start("gone", "sleep 60")
    for _ in range(2):
        assert (await site.call("DELETE", "/gone")).status == 204
        answer = await site.call("GET", "/gone")
        assert (answer.status, answer.body["status"]) == (200, "cancelled")


async def test_an_id_is_taken_until_its_job_is_forgotten(site: ContainerSite) -> None:
    async with working(site.lab):
        await site.start("once", "exit 0")
        answer = await site.post("once", "exit 0")
        assert (answer.status, answer.body) == (409, {"error": "Job already exists"})
        await site.until("once", "completed")
        assert (await site.post("once")).status == 409
        await settled(site, "once")
        await site.lab.rows(
            "update cograil_containers.container_jobs set settled_at = now() - interval '1 hour'"
        )
        assert (await site.call("GET", "/once")).status == 404
        assert (await site.call("GET")).body == {"jobs": []}
        await site.start("once", "exit 1")
        assert (await site.until("once", "failed"))["exitCode"] == 1


async def test_only_one_of_many_gets_the_id(site: ContainerSite) -> None:
    answers = await asyncio.gather(*(site.post("same", "exit 0") for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [202] + [409] * 7
    assert len(await site.lab.rows("select 1 from cograil.jobs")) == 1


async def test_who_may_do_what_and_tenants_see_their_own(site: ContainerSite) -> None:
    keys = {role: await site.api.make_key(role) for role in ("viewer", "submitter")}
    other = await site.api.make_key("admin", tenant="other")
    site.api.key = keys["submitter"]
    await site.start("mine")
    unknown = await site.call("GET", "/mine", key="")
    assert (unknown.status, unknown.body.keys()) == (401, {"error"})
    refused = await site.call("DELETE", "/mine", key=keys["viewer"])
    assert (refused.status, refused.body.keys()) == (403, {"error"})
    seen = await site.call("GET", "/mine", key=keys["viewer"])
    assert seen.body == {"id": "mine", "status": "accepted"}
    assert seen.headers["access-control-allow-origin"] == "*"
    assert (await site.call("GET", "/mine", key=other)).status == 404
    assert (await site.call("DELETE", "/mine", key=other)).status == 404
    site.api.key = other
    await site.start("mine")
    assert (await site.call("GET")).body == {"jobs": [{"id": "mine", "status": "accepted"}]}
    for key in (keys["submitter"], other):
        assert (await site.call("DELETE", "/mine", key=key)).status == 204


async def test_pages_of_other_sites_may_ask_only_where_keys_are_needed(site: ContainerSite) -> None:
    assert "access-control-allow-origin" not in (await site.call("GET")).headers
    site.api.key = await site.api.make_key("viewer")
    answer = await site.call("OPTIONS", key="")
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "*")


async def test_what_there_is_not_is_404(site: ContainerSite) -> None:
    for method in ("GET", "DELETE"):
        answer = await site.call(method, "/nothing")
        assert (answer.status, answer.body) == (404, {"error": "Job not found"})
    assert (await site.call("GET", "/a/b")).body.keys() == {"error"}


async def test_a_job_that_nobody_runs_yet_is_cancelled_and_stays_so(
    site: ContainerSite, eventually: Any
) -> None:
    await site.start("waiting", meta={"a": "b"})
    assert (await site.call("DELETE", "/waiting")).status == 204
    gone = {"id": "waiting", "status": "cancelled", "exitCode": 137, "error": "cancelled"}
    assert await site.show("waiting") == gone
    assert (await site.call("DELETE", "/waiting")).status == 204
    assert (await site.call("GET")).body == {"jobs": [gone]}
    event = await site.heard("waiting", "exit")
    assert event == {"jobId": "waiting", "exitCode": 137, "error": "cancelled", "meta": {"a": "b"}}
    assert site.kinds("waiting") == ["exit"]


async def test_a_filter_of_events_is_heeded_and_complete_comes_only_if_asked_for(site: ContainerSite) -> None:
    async with working(site.lab):
        callback = {
            "url": site.receiver.url,
            "events": ["orchestrator.job.exit", "orchestrator.job.complete"],
        }
        await site.start("some", "echo x", callback=callback)
        await site.start("all", "echo x")
        await site.heard("some", "complete")
        await site.until("all", "completed")
        await settled(site, "all")
        assert site.kinds("some") == ["exit", "complete"]
        assert "x-signature-256" not in site.requests("some")[0].headers
        await site.heard("all", "exit")
    assert site.kinds("all") == ["start", "log", "exit"]


async def test_numbers_and_letters_survive(site: ContainerSite) -> None:
    meta = {"big": "123456789012345678901234567890", "name": "žluťoučký 🐴"}
    content = {"n": 9007199254740993, "t": "ž"}
    artifacts = [
        {"id": "in", "type": "write", "in": json.dumps(content), "out": "x.json"},
        {"id": "out", "type": "read", "in": "x.json", "depends": "job"},
    ]
    async with working(site.lab):
        await site.start("letters", "echo ž🐴", meta=meta, artifacts=artifacts)
        await site.until("letters", "completed")
        await settled(site, "letters")
        await site.heard("letters", "artifact", count=2)  # the second comes behind the exit
    assert site.lines("letters") == ["ž🐴"]
    assert all(event["meta"] == meta for event in site.events_of("letters"))
    assert site.events_of("letters", "artifact")[-1]["content"] == content
    assert b"9007199254740993" in site.requests("letters")[-1].body


async def test_readiness_says_how_the_engine_is(site: ContainerSite, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask_readiness(settings: Settings) -> str:
        checks = app_checks(settings, has_worker=True)
        return (await ProcessHealth(site.lab.db, {}, checks).checks())["containers"]

    engine_only = site.lab.settings.section(ContainerSettings).model_copy(update={"runtime": "docker"})
    settings = site.lab.settings.model_copy(update={"containers": engine_only})
    assert await ask_readiness(settings) == "ok"
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    assert await ask_readiness(settings) == "degraded: no container engine answers"
    required = settings.section(ContainerSettings).model_copy(update={"required": True})
    assert (
        await ask_readiness(settings.model_copy(update={"containers": required}))
        == "no container engine answers"
    )
    other = app_checks(settings, has_worker=False)["containers"]
    assert await other(site.lab.db) == "degraded: no worker runs containers"


async def test_a_worker_that_finds_its_engine_later_says_so(
    site: ContainerSite, engine_url: str, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """To `explain`, and to the readiness of a server elsewhere."""
    lab = site.lab
    engine_only = lab.settings.section(ContainerSettings).model_copy(update={"runtime": "docker"})
    lab.settings = lab.settings.model_copy(update={"containers": engine_only})
    monkeypatch.setattr("cograil.apps.containers.worker_lifespan.LOOK_SECONDS", 0.05)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    is_there = app_checks(lab.settings, has_worker=False)["containers"]
    async with working(lab):
        await site.start("early", "true")
        assert await is_there(lab.db) == "degraded: no worker runs containers"
        ((job_id,),) = await lab.rows("select job_id::text from cograil_containers.container_jobs")
        assert [blocker.kind for blocker in (await lab.explain(job_id)).blockers] == ["no_worker"]
        monkeypatch.setenv("DOCKER_HOST", engine_url)

        async def is_told() -> bool:
            return await is_there(lab.db) == "ok"

        await eventually(is_told)
        await site.until("early", "completed")
        await settled(site, "early")


async def test_a_container_and_its_callbacks_know_the_trace_of_their_caller(site: ContainerSite) -> None:
    trace_parent = f"00-{'1' * 32}-{'2' * 16}-01"
    command = 'echo "$TRACEPARENT"'
    body = {
        "id": "traced",
        "image": IMAGE,
        "command": command,
        "memory": 64,
        "callback": site.callback("log"),
    }
    async with working(site.lab):
        answer = await site.call("POST", body=body, headers={"traceparent": trace_parent})
        assert answer.status == 202, answer.raw
        await site.heard("traced", "log")
    assert site.lines("traced") == [trace_parent]
    assert {request.headers["traceparent"] for request in site.requests("traced")} == {trace_parent}
