"""What is posted once, twice, changed, malformed, by others; and that each outcome is in the audit log."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.apps.captures.capture_api import GOLDEN, KEYS, SAMPLE, CaptureApi, now, sample
from tests.support.api_client import ApiResponse
from tests.support.harness import Harness

from cograil import fault_injection
from cograil.verbs.retention import delete_expired

LOGGED = """
select event, http_status, user_id::text, tenant_id, capture_id::text, source_ip, event_payload
from vault_secure.capture_audit_log order by at, seq"""


async def logged_entries(capture_api: CaptureApi) -> list[tuple[str, int]]:
    """Event and HTTP status of each entry of the audit log."""
    return [(event, status) for event, status, *_ in await capture_api.lab.rows(LOGGED)]


async def captures_in(lab: Harness) -> int:
    return int((await lab.rows("select count(*) from vault_secure.capture_events"))[0][0])


async def jobs_in(lab: Harness) -> int:
    return int((await lab.rows("select count(*) from cograil.jobs"))[0][0])


@pytest.mark.parametrize("path", ["/documents/capture", "/v1/captures"])
async def test_a_new_capture_is_202_and_its_replay_200(capture_api: CaptureApi, path: str) -> None:
    """TC-INV-06 A: an identical replay."""
    first = await capture_api.post(sample(), path)
    assert (first.status, first.body.keys()) == (202, KEYS)
    assert first.body["payload_canonical_sha256"] == GOLDEN
    assert (first.body["capture_id"], first.body["state"]) == (SAMPLE["capture_id"], "UPLOADED")
    again = await capture_api.post(sample(), path)
    assert (again.status, again.body) == (200, first.body)
    assert (await captures_in(capture_api.lab), await jobs_in(capture_api.lab)) == (1, 1)


async def test_an_id_in_capitals_is_the_same_id(capture_api: CaptureApi) -> None:
    """TC-NOM-15 and TC-INV-06 D: case does not matter in ids and hashes, whichever comes first."""
    shouted = sample(
        capture_id=str(SAMPLE["capture_id"]).upper(), hash_sha3_256=str(SAMPLE["hash_sha3_256"]).upper()
    )
    first = await capture_api.post(shouted)
    again = await capture_api.post(sample())
    assert (first.status, again.status) == (202, 200)
    assert first.body == again.body
    assert first.body["capture_id"] == SAMPLE["capture_id"]


CHANGES = {
    "hash_sha3_256": "0" * 64,
    "aes_gcm_nonce_b64": "dGVzdG5vbmNlMTI0",
    "aes_gcm_tag_b64": "dGVzdHRhZzEyMzQ1Njc5MA==",
    "dek_wrapped_b64": "ZGVrd3JhcHBlZGI2NQ==",
    "kek_id": "KEK-2026-04-01",
    "mime_type": "image/PNG",
    "size_bytes": 999999,
    "upload_object_key": "captures/other.enc",
}


@pytest.mark.parametrize("name", CHANGES)
async def test_another_payload_under_the_same_id_is_409(capture_api: CaptureApi, name: str) -> None:
    """TC-INV-06 B and TC-ERR-13, for each field that counts."""
    await capture_api.post(sample())
    refused = await capture_api.post(sample(**{name: CHANGES[name]}))
    message = "capture_id already used with different payload"
    assert (refused.status, refused.body) == (409, {"error": "CONFLICT", "message": message})
    assert (await capture_api.post(sample())).status == 200
    assert (await captures_in(capture_api.lab), await jobs_in(capture_api.lab)) == (1, 1)


async def test_ocr_text_and_time_do_not_change_a_replay(capture_api: CaptureApi) -> None:
    """TC-INV-06 C: only OCR changed."""
    await capture_api.post(sample(ocr_text="one", ocr_confidence=0.5, ocr_language="fr"))
    for ocr in ({}, {"ocr_text": "two"}, {"ocr_confidence": 1}, {"ocr_language": "en", "ocr_text": None}):
        later = now()
        assert (
            await capture_api.post(sample(timestamp_device=later, device_id=str(uuid4()), **ocr))
        ).status == 200
    (kept,) = await capture_api.lab.rows("select ocr_text, ocr_language from vault_secure.capture_events")
    assert kept == ("one", "fr")


async def test_camel_case_fields_are_accepted(capture_api: CaptureApi) -> None:
    def camel(name: str) -> str:
        first, *rest = name.split("_")
        return first + "".join(word.capitalize() for word in rest)

    names = {name: camel(name) for name in sample()} | {"hash_sha3_256": "hashSha3256"}
    first = await capture_api.post({names[name]: value for name, value in sample().items()})
    assert (first.status, first.body["payload_canonical_sha256"]) == (202, GOLDEN)
    assert (await capture_api.post(sample())).status == 200
    both = await capture_api.post(sample() | {"kekId": "another"})
    assert (both.status, both.body["field"]) == (400, "kekId")


MALFORMED: list[tuple[str, Any]] = [
    ("capture_id", "a1b2c3d4-e5f6-1a7b-8c9d-0e1f2a3b4c5d"),  # a UUID, of version 1
    ("capture_id", "a1b2c3d4e5f64a7b8c9d0e1f2a3b4c5d"),
    ("capture_id", "a1b2c3d4-e5f6-4a7b-cc9d-0e1f2a3b4c5d"),
    ("capture_id", f"{SAMPLE['capture_id']}\n"),
    ("capture_id", 7),
    ("hash_sha3_256", "ab" * 31),
    ("hash_sha3_256", "xy" * 32),
    ("aes_gcm_nonce_b64", "dGVzdG5vbmNlMTIzNA=="),
    ("aes_gcm_nonce_b64", "dGVzdG5vbmNlMTI"),
    ("aes_gcm_nonce_b64", "dGVzdG5vbmNlM!Iz"),
    ("aes_gcm_tag_b64", "dGVzdHRhZzEyMzQ1Njc4"),
    ("aes_gcm_tag_b64", "dGVzdHRhZzEyMzQ1Njc4OR=="),  # bits are left over
    ("dek_wrapped_b64", ""),
    ("dek_wrapped_b64", "not base64"),
    ("dek_wrapped_b64", "A" * 4096),
    ("kek_id", ""),
    ("kek_id", "k" * 129),
    ("kek_id", "a\nb"),
    ("mime_type", "png"),
    ("mime_type", "image/png; x"),
    ("size_bytes", -1),
    ("size_bytes", 1.5),
    ("size_bytes", "524288"),
    ("size_bytes", True),
    ("size_bytes", 2**40),
    ("upload_object_key", ""),
    ("upload_object_key", "/etc/passwd"),
    ("upload_object_key", "captures/../../etc/passwd"),
    ("upload_object_key", "a\x00b"),
    ("device_id", "device"),
    ("timestamp_device", "yesterday"),
    ("timestamp_device", "2026-04-03"),
    ("timestamp_device", "2026-04-03T09:30:00"),
    ("timestamp_device", "2026-04-03 09:30:00Z"),
    ("timestamp_device", "20260403T093000Z"),
    ("timestamp_device", "2026-W14-5T09:30:00Z"),
    ("timestamp_device", "2026-04-03T09:30Z"),
    ("timestamp_device", "2026-04-03T09:30:00+99:00"),
    ("timestamp_device", "2026-02-30T09:30:00Z"),
    ("timestamp_device", 1775208600),
    ("ocr_confidence", -0.1),
    ("ocr_text", 7),
    ("ocr_language", "x" * 36),
    ("color", "blue"),
]


async def test_each_malformed_field_is_400_and_named(capture_api: CaptureApi) -> None:
    for name, value in MALFORMED:
        refused = await capture_api.post(sample(**{name: value}))
        assert refused.status == 400, (name, value, refused.raw)
        if value != "a\x00b":
            assert (refused.body["error"], refused.body["field"]) == ("BAD_REQUEST", name), refused.raw
    for name in [*SAMPLE, "timestamp_device"]:
        body = sample()
        del body[name]
        refused = await capture_api.post(body)
        assert (refused.status, refused.body["field"]) == (400, name)
    not_objects: list[Any] = [[], "text", None, 7]
    for content in not_objects:
        assert (await capture_api.post(content)).status in (400, 415)
    assert await captures_in(capture_api.lab) == 0
    unheard = [entry for entry in await logged_entries(capture_api) if entry != ("CAPTURE_REFUSED", 400)]
    assert unheard == []
    assert len(await capture_api.lab.rows(LOGGED)) == len(MALFORMED) + len(SAMPLE) + 1 + 4


async def test_a_clock_that_is_wrong_by_more_than_300_s_is_422_for_what_is_new(
    capture_api: CaptureApi,
) -> None:
    def off(seconds: float) -> str:
        return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()

    for seconds in (-310, 310, -86400, 400_000_000):
        refused = await capture_api.post(sample(timestamp_device=off(seconds)))
        assert (refused.status, refused.body["error"]) == (422, "CLOCK_SKEW")
    assert await captures_in(capture_api.lab) == 0
    assert await logged_entries(capture_api) == [("CAPTURE_REFUSED", 422)] * 4
    assert (await capture_api.post(sample(timestamp_device=off(-290).lower()))).status == 202
    assert (await capture_api.post(sample(timestamp_device=off(-310)))).status == 200
    assert (await capture_api.post(sample(timestamp_device=off(9999), size_bytes=1))).status == 409
    ((skew,),) = await capture_api.lab.rows("select skew_ms from vault_secure.capture_events")
    assert -292_000 < skew <= -290_000


def _told(answer: ApiResponse) -> dict[str, str]:
    """All headers that are not each answer's own."""
    own = ("date", "x-request-id")
    return {name: value for name, value in answer.headers.items() if name not in own}


async def test_another_user_of_the_tenant_learns_nothing(capture_api: CaptureApi) -> None:
    ada, bob = str(uuid4()), str(uuid4())
    mine = await capture_api.api.make_key("submitter", user_id=ada)
    theirs = await capture_api.api.make_key("submitter", user_id=bob)
    elsewhere = await capture_api.api.make_key("submitter", tenant="other", user_id=bob)
    first = await capture_api.post(sample(), key=mine)
    own_conflict = await capture_api.post(sample(size_bytes=1), key=mine)
    for body in (sample(), sample(size_bytes=1)):
        refused = await capture_api.post(body, key=theirs)
        assert (refused.status, refused.raw) == (409, own_conflict.raw)
        assert _told(refused) == _told(own_conflict)
    assert first.body["capture_event_id"].encode() not in refused.raw
    for path in ("", "/audit", "/proof"):
        for id in (SAMPLE["capture_id"], first.body["capture_event_id"]):
            hidden = await capture_api.get(f"{id}{path}", key=theirs)
            unknown = await capture_api.get(f"{uuid4()}{path}", key=theirs)
            assert (hidden.status, hidden.raw) == (404, unknown.raw)
            assert _told(hidden) == _told(unknown)
    assert (await capture_api.get(str(SAMPLE["capture_id"]).upper(), key=mine)).status == 200
    other = await capture_api.post(sample(), key=elsewhere)
    assert other.status == 202
    assert other.body["capture_event_id"] != first.body["capture_event_id"]
    trail = (await capture_api.get(f"{SAMPLE['capture_id']}/audit", key=mine)).body["entries"]
    assert [(entry["http_status"], entry["user_id"]) for entry in trail] == [(202, ada), (409, ada)]
    logged = await capture_api.lab.rows(LOGGED)
    conflicts = [capture for _, status, user, _, capture, *_ in logged if (status, user) == (409, bob)]
    assert conflicts == [SAMPLE["capture_id"]] * 2


async def test_the_owner_is_checked_where_no_row_is_hidden(capture_api: CaptureApi) -> None:
    await capture_api.lab.rows("alter table vault_secure.capture_events disable row level security")
    ada, bob = str(uuid4()), str(uuid4())
    mine = await capture_api.api.make_key("submitter", user_id=ada)
    theirs = await capture_api.api.make_key("submitter", user_id=bob)
    first = await capture_api.post(sample(), key=mine)
    refused = await capture_api.post(sample(), key=theirs)
    assert (refused.status, refused.body["error"]) == (409, "CONFLICT")
    assert (await capture_api.get(str(SAMPLE["capture_id"]), key=theirs)).status == 404
    trail = (await capture_api.get(f"{SAMPLE['capture_id']}/audit", key=mine)).body
    assert [entry["user_id"] for entry in trail["entries"]] == [ada], "it tells of its owner only"
    assert trail["chain"] == first.body["capture_event_id"]


async def test_an_unknown_caller_gets_401_and_is_logged_without_a_user(capture_api: CaptureApi) -> None:
    key = await capture_api.api.make_key("viewer", user_id=str(uuid4()))
    for answer in (await capture_api.post(sample()), await capture_api.post(sample(), key="cog_wrong")):
        assert (answer.status, answer.body["error"]) == (401, "UNAUTHORIZED")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert (await capture_api.post(sample(), key=key)).status == 403
    logged = await capture_api.lab.rows(LOGGED)
    assert [(status, user is None, tenant, ip) for _, status, user, tenant, _, ip, _ in logged] == [
        (401, True, None, "127.0.0.1"),
        (401, True, None, "127.0.0.1"),
        (403, False, "default", "127.0.0.1"),
    ]


async def test_the_audit_log_refuses_what_is_not_an_insert(capture_api: CaptureApi) -> None:
    await capture_api.post(sample())
    table = "vault_secure.capture_audit_log"
    for change in (f"update {table} set event = 'x'", f"delete from {table}", f"truncate {table}"):
        with pytest.raises(Exception, match="it only grows"):
            await capture_api.lab.rows(change)


async def test_row_level_security_shows_a_door_nothing_before_it_says_for_whom(
    capture_api: CaptureApi,
) -> None:
    await capture_api.post(sample())
    db = capture_api.api.context.db
    query = b"select count(*) from vault_secure.capture_events"
    user = b"select set_config('app.current_user_id', '00000000-0000-0000-0000-000000000000', true)"
    async with db.transaction("test") as tx:
        assert await (await tx.connection.execute(query)).fetchone() == (0,)
    async with db.transaction("test", tenant="default") as tx:
        assert await (await tx.connection.execute(query)).fetchone() == (0,)
        await tx.connection.execute(user)
        assert await (await tx.connection.execute(query)).fetchone() == (1,)
    async with db.transaction("test", tenant="other") as tx:
        await tx.connection.execute(user)
        assert await (await tx.connection.execute(query)).fetchone() == (0,)


async def test_a_database_that_is_gone_is_503(capture_api: CaptureApi) -> None:
    await capture_api.post(sample(capture_id=str(uuid4())))
    try:
        fault_injection.arm("capture.lock_capture:1:raise")
        gone = await capture_api.post(sample())
        assert (gone.status, gone.body["error"]) == (503, "SERVICE_UNAVAILABLE")
        fault_injection.arm("capture.take_tokens:1:raise")
        assert (await capture_api.post(sample())).status == 503
        fault_injection.arm("refuse_capture.add_entry:1:raise")
        assert (await capture_api.post(sample(size_bytes=-1))).status == 503, (
            "what cannot be logged is not told"
        )
    finally:
        fault_injection.arm(None)
    assert await captures_in(capture_api.lab) == 1
    assert (await capture_api.post(sample())).status == 202


class TestRate:
    """The number of new captures per user is limited; replays cost nothing."""

    @pytest.fixture
    def capture_settings(self) -> dict[str, Any]:
        return {"rate_per_minute": 3}

    async def test_a_user_over_the_rate_limit_gets_429_and_others_do_not(
        self, capture_api: CaptureApi
    ) -> None:
        mine = await capture_api.api.make_key("submitter", user_id=str(uuid4()))
        theirs = await capture_api.api.make_key("submitter", user_id=str(uuid4()))
        bodies = [sample(capture_id=str(uuid4())) for _ in range(4)]
        assert [(await capture_api.post(body, key=mine)).status for body in bodies[:3]] == [202] * 3
        refused = await capture_api.post(bodies[3], key=mine)
        assert (refused.status, refused.body["error"]) == (429, "RATE_LIMITED")
        assert 1 <= int(refused.headers["retry-after"]) <= 20
        assert [(await capture_api.post(body, key=mine)).status for body in bodies[:3]] == [200] * 3
        assert (await capture_api.post(bodies[0] | {"size_bytes": 1}, key=mine)).status == 409
        assert (await capture_api.post(bodies[3], key=theirs)).status == 202
        logged = [status for _, status in await logged_entries(capture_api)]
        assert sorted(logged) == [200] * 3 + [202] * 4 + [409, 429]


async def test_the_unique_index_stops_what_passes_lock_and_record(capture_api: CaptureApi) -> None:
    """A request that passes lock and record makes neither a second row nor anything else."""
    await capture_api.post(sample())
    await capture_api.lab.rows("delete from cograil.idempotency")
    assert (await capture_api.post(sample())).status == 409
    assert (await captures_in(capture_api.lab), await jobs_in(capture_api.lab)) == (1, 1)


async def test_a_capture_outlives_its_job(capture_api: CaptureApi) -> None:
    """Retention deletes the job; what was posted is known for ever."""
    first = await capture_api.post(sample())
    await capture_api.lab.cancel(str((await capture_api.get(str(SAMPLE["capture_id"]))).body["job_id"]))
    async with capture_api.lab.db.transaction("test") as tx:
        deleted = await delete_expired(tx, datetime.now(UTC) + timedelta(days=1))
    assert deleted is not None
    assert deleted.jobs == 1
    again = await capture_api.post(sample())
    assert (again.status, again.body) == (200, first.body)
    assert (await capture_api.post(sample(size_bytes=1))).status == 409


async def test_the_engine_owns_the_vault_and_a_door_only_adds(capture_api: CaptureApi) -> None:
    tables = """
        select c.relname, pg_get_userbyid(c.relowner), c.relrowsecurity,
               has_table_privilege('cograil_server', c.oid, 'insert'),
               has_table_privilege('cograil_server', c.oid, 'update, delete, truncate')
        from pg_class c where c.relnamespace = 'vault_secure'::regnamespace and c.relkind = 'r' order by 1"""
    owned = ("cograil_engine", True, True, False)
    assert await capture_api.lab.rows(tables) == [("capture_audit_log", *owned), ("capture_events", *owned)]


async def test_posts_that_wait_for_one_id_do_not_delay_others(capture_api: CaptureApi, dsn: str) -> None:
    """A request that waits for the lock of an id elsewhere holds one connection of this server, not all."""
    user = "00000000-0000-0000-0000-000000000000"
    lock = "select pg_advisory_xact_lock(hashtext(%s || '/' || %s))"
    async with await psycopg.AsyncConnection.connect(dsn) as elsewhere:
        await elsewhere.execute(lock, [user, SAMPLE["capture_id"]])
        crowd = [asyncio.create_task(capture_api.post(sample())) for _ in range(20)]
        async with asyncio.timeout(10):
            for _ in range(5):
                assert (await capture_api.post(sample(capture_id=str(uuid4())))).status == 202
        assert not any(task.done() for task in crowd)
    answers = await asyncio.gather(*crowd)
    assert sorted(answer.status for answer in answers) == [200] * 19 + [202]


async def test_a_crowd_that_is_refused_does_not_keep_others_waiting(
    capture_api: CaptureApi, dsn: str
) -> None:
    """Each refusal of a user, or of an address without a key, waits for the one before it: in memory."""
    chains = ("user/default/00000000-0000-0000-0000-000000000000", "address/127.0.0.1")
    lock = "select pg_advisory_xact_lock(hashtextextended('capture_audit_log/' || %s, 0))"
    async with await psycopg.AsyncConnection.connect(dsn) as elsewhere:
        for chain in chains:
            await elsewhere.execute(lock, [chain])
        crowd = [asyncio.create_task(capture_api.post(sample(size_bytes=-1))) for _ in range(20)]
        crowd += [asyncio.create_task(capture_api.post(sample(), key="cog_wrong")) for _ in range(20)]
        async with asyncio.timeout(10):
            for _ in range(5):
                assert (await capture_api.post(sample(capture_id=str(uuid4())))).status == 202
        assert not any(task.done() for task in crowd)
    answers = await asyncio.gather(*crowd)
    assert sorted(answer.status for answer in answers) == [400] * 20 + [401] * 20
