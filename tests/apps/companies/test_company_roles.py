"""Who may do what, and what others never see."""

from __future__ import annotations

from uuid import uuid4

from tests.apps.companies.company_site import CompanySite, envelope
from tests.apps.companies.registers import DANONE

CREATE, READ, REFRESH = "create", "read", "refresh"
MAY = {
    "admin": {CREATE, READ, REFRESH},
    "operator": {CREATE, READ, REFRESH},
    "submitter": {CREATE, READ},
    "viewer": {READ},
    "worker": set(),
    "gateway": set(),
    "platform": set(),
}


async def test_each_role_may_do_what_the_contract_says(site: CompanySite) -> None:
    admin = await site.api.make_key("admin")
    for number, (role, may) in enumerate(MAY.items()):
        siren, key = str(100_000_000 + number), await site.api.make_key(role)
        mine = await site.ask(siren, key=key)
        assert mine.status == (201 if CREATE in may else 403), role
        id = (
            mine.body["request"]["id"] if mine.status == 201 else await site.request_company(siren, key=admin)
        )
        seen = await site.api.get(f"/v1/requests/{id}", key=key)
        assert seen.status == (200 if READ in may else 403), role
        refreshed = await site.refresh(id, key=key)
        assert refreshed.status == (202 if REFRESH in may else 403), role
        for answer in (mine, seen, refreshed):
            if answer.status == 403:
                assert (envelope(answer)["error"], envelope(answer)["code"]) == ("forbidden", "FORBIDDEN")
        await site.over(id)


async def test_once_a_key_exists_requests_without_a_key_are_refused(site: CompanySite) -> None:
    await site.api.make_key("admin")
    answer = await site.ask()
    assert (answer.status, envelope(answer)["code"]) == (401, "AUTH_ERROR")


async def test_another_tenant_sees_nothing_and_has_a_company_of_its_own(site: CompanySite) -> None:
    ours, theirs = await site.api.make_key("admin"), await site.api.make_key("admin", "acme")
    id = await site.request_company(key=ours)
    for answer in (
        await site.api.get(f"/v1/requests/{id}", key=theirs),
        await site.refresh(id, key=theirs),
        await site.api.get(f"/v1/requests/{uuid4()}", key=ours),
        await site.api.get("/v1/requests/nobody", key=ours),
    ):
        assert (answer.status, envelope(answer)["code"], envelope(answer)["request_id"]) == (
            404,
            "NOT_FOUND",
            None,
        )
    calls = site.registers.count("API_RECHERCHE_ENTREPRISES")
    assert (await site.ask(key=theirs)).status == 201
    assert site.registers.count("API_RECHERCHE_ENTREPRISES") == calls + 1
    rows = await site.lab.rows("select tenant_id from cograil_companies.companies order by 1")
    assert rows == [("acme",), ("default",)]


async def test_a_submitter_sees_what_is_his_and_a_viewer_less_of_it(site: CompanySite) -> None:
    ann, bob = str(uuid4()), str(uuid4())
    first = await site.api.make_key("submitter", user_id=ann)
    again = await site.api.make_key("submitter", user_id=ann)
    other = await site.api.make_key("submitter", user_id=bob)
    viewer = await site.api.make_key("viewer")
    id = await site.request_company(key=first, metadata={"note": "private"})
    assert (await site.look(id, key=again))["request"]["metadata"] == {"note": "private"}
    assert (await site.api.get(f"/v1/requests/{id}", key=other)).status == 404
    limited = await site.look(id, key=viewer)
    assert (limited["documents"], limited["request"]["metadata"]) == ([], None)
    assert limited["company"]["siren"] == DANONE


async def test_other_routes_are_refused_in_the_same_words(idle_site: CompanySite) -> None:
    for method, path, status in (
        ("GET", "/v1/requests", 405),
        ("POST", "/v1/requests/x/y", 404),
        ("DELETE", "/v1/requests/x", 405),
    ):
        answer = await idle_site.api.call(method, path)
        assert answer.status == status
        assert envelope(answer)["code"] == {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}[status]


async def test_an_unreadable_body_is_400(idle_site: CompanySite) -> None:
    for raw in (b"{", b'{"siren": "1', b"\xff", b'{"siren": "552032534", "siren": "732829320"}'):
        head = (
            "POST /v1/requests HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
        )
        answer = await idle_site.api.raw(head.encode() + raw)
        assert (answer.status, envelope(answer)["error"]) == (400, "validation_error"), raw


async def test_a_number_that_looks_mistyped_is_taken_with_a_warning(site: CompanySite) -> None:
    answer = await site.ask("123456789")
    assert answer.status == 201
    assert [warning["code"] for warning in answer.body["warnings"]] == ["LUHN_CHECK_FAILED"]
    assert (await site.ask()).body["warnings"] == []
