"""Many post one id at once, over several server processes: one row, whatever the bodies and the callers."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import psycopg
import pytest
from tests.apps.captures.capture_api import SAMPLE, CaptureApi, sample, settings_with_captures
from tests.apps.captures.capture_processes import open_fork_server
from tests.support.harness import Harness

from cograil import fault_injection
from cograil.apps.captures.audit import first_broken
from cograil.apps.captures.keyed_lock import MAX_TRIES
from cograil.http.server.dispatcher import DATABASE_UNAVAILABLE, OVERLOADED
from cograil.settings import Settings
from cograil.store import database

SERVERS = 3
MADE = """
select (select count(*) from vault_secure.capture_events where capture_id::text = %(id)s),
       (select count(*) from cograil.jobs where labels->>'capture_id' = %(id)s),
       (select count(*) from cograil.idempotency where scope = 'captures' and key = %(id)s)"""
LOGGED = (202, 200, 409)
ENTRIES = """
select count(*) filter (where http_status = 202), count(*) filter (where http_status = 200),
       count(*) filter (where http_status = 409)
from vault_secure.capture_audit_log where capture_id = %(id)s"""
CHAINS = """
select chain, json_agg(json_build_object(
  'chain', chain, 'seq', seq, 'event', event, 'tenant_id', tenant_id, 'user_id', user_id,
  'capture_id', capture_id, 'http_status', http_status, 'source_ip', source_ip,
  'event_payload', event_payload, 'previous_hash', previous_hash, 'hash', hash,
  'at', to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) order by seq)::text
from vault_secure.capture_audit_log group by chain"""
IDLE = """
select count(*) from pg_stat_activity
where datname = current_database() and state like 'idle in transaction%' and pid <> pg_backend_pid()"""
LOCK = "select pg_advisory_xact_lock(hashtext(%s || '/' || %s))"
NOBODY = "00000000-0000-0000-0000-000000000000"  # who posts without a key
Post = tuple[str, dict[str, Any]]  # a key, and what is posted with it


@dataclass
class Crowd:
    """Lines to several servers, and two users."""

    lab: Harness
    ports: Sequence[int]
    ada: str
    bob: str
    turned_away: int = 0

    async def post(self, posts: list[Post]) -> list[tuple[Post, int, dict[str, Any]]]:
        """All of these at once, each on a line of its own; what each was answered.

        Who is told 503, by a server that has far too much to do, asks again: that is what it means.
        """
        begin = asyncio.Semaphore(20)  # a server hangs up on who is here for long and says nothing

        async def send(port: int, post: Post) -> tuple[Post, int, dict[str, Any]]:
            async with begin:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(_request(*post))
            try:
                status, reply = await _answer(reader)
            finally:
                writer.close()
                await writer.wait_closed()
            if status != 503:
                return post, status, reply
            assert reply["message"] != DATABASE_UNAVAILABLE.detail, "the database was there all the time"
            self.turned_away += 1
            return await send(port, post)

        ports = itertools.cycle(self.ports)
        return await asyncio.gather(*(send(next(ports), post) for post in posts))

    async def check(self, id: str, counted: Counter[int]) -> None:
        """One of everything, every outcome in the log, and every chain holds."""
        assert await self.lab.rows(MADE, id=id) == [(1, 1, 1)]
        (logged,) = await self.lab.rows(ENTRIES, id=id)
        answered = [counted[event] for event in LOGGED]
        more = [entries - answers for entries, answers in zip(logged, answered, strict=True)]
        assert min(more) >= 0
        assert sum(more) <= self.turned_away, "who was turned away at the commit may have been heard"
        for chain, entries in await self.lab.rows(CHAINS):
            assert first_broken(orjson.loads(entries)) is None, chain


def _request(key: str, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/captures HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def _answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return int(head.split(b" ", 2)[1]), orjson.loads(await reader.readexactly(length))


@pytest.fixture
async def crowd(capture_api: CaptureApi, dsn: str, settings: Settings) -> AsyncIterator[Crowd]:
    ada = await capture_api.api.make_key("submitter", user_id=str(uuid4()))
    bob = await capture_api.api.make_key("submitter", user_id=str(uuid4()))
    async with open_fork_server() as fork_server:
        dumped = settings.model_dump(mode="json")
        servers = [await fork_server.fork("server", dsn, dumped) for _ in range(SERVERS)]
        yield Crowd(capture_api.lab, [server["port"] for server in servers], ada, bob)


def _identical(crowd: Crowd, number: int) -> Post:
    return crowd.ada, sample(ocr_text=f"read for the {number}th time")


def _different(crowd: Crowd, number: int) -> Post:
    return crowd.ada, sample(size_bytes=number)


def _mixed(crowd: Crowd, number: int) -> Post:
    return crowd.ada, sample(size_bytes=number % 3)


def _of_two(crowd: Crowd, number: int) -> Post:
    return (crowd.ada, crowd.bob)[number % 2], sample()


def _mixed_of_two(crowd: Crowd, number: int) -> Post:
    return (crowd.ada, crowd.bob)[number % 2], sample(size_bytes=number % 3)


CROWDS = [_identical, _different, _mixed, _of_two, _mixed_of_two]


async def _one_row(crowd: Crowd, make: Callable[[Crowd, int], Post], count: int) -> None:
    id = str(uuid4())
    posts = [
        (key, body | {"capture_id": id}) for key, body in (make(crowd, number) for number in range(count))
    ]
    answers = await crowd.post(posts)
    ((winner, _, made),) = [answer for answer in answers if answer[1] == 202]
    for (key, body), status, reply in answers:
        is_same = key == winner[0] and body["size_bytes"] == winner[1]["size_bytes"]
        if status != 202:
            assert status == (200 if is_same else 409)
        if status == 409:
            assert reply == {
                "error": "CONFLICT",
                "message": "capture_id already used with different payload",
            }
        else:
            assert reply == made
    await crowd.check(id, Counter(status for _, status, _ in answers))


async def test_each_crowd_makes_one_row(crowd: Crowd) -> None:
    for make in CROWDS:
        await _one_row(crowd, make, 100)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("make", CROWDS)
async def test_a_crowd_of_10_000_makes_one_row(crowd: Crowd, make: Callable[[Crowd, int], Post]) -> None:
    await _one_row(crowd, make, 10_000)


class TestStalls:
    """A server that is kept from its transaction for too long, as in a crowd, loses its session."""

    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        hasty = {"allow_unsafe": True, "idle_in_transaction_seconds": 0.1}
        return settings_with_captures(tmp_path).model_copy(
            update={"database": Settings(database=hasty).database}
        )

    @pytest.fixture
    def stall(self, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], None]]:
        """Arm a point at which `count` transactions are held up until the database has ended them."""

        def arm(point: str, times: int) -> None:
            left = itertools.count(times - 1, -1)

            def hold_up(_: str) -> None:
                with psycopg.connect(dsn, autocommit=True) as looking:
                    while looking.execute(IDLE).fetchone() != (0,):
                        pass
                if next(left) > 0:
                    fault_injection.arm(f"{point}:1:stall")

            monkeypatch.setitem(fault_injection.modes, "stall", hold_up)
            fault_injection.arm(f"{point}:1:stall")

        yield arm
        fault_injection.arm(None)

    @pytest.mark.parametrize("point", ["capture.lock_capture", "capture.add_entry", "capture.commit.before"])
    async def test_a_session_of_a_crowd_has_its_turn_again(
        self, capture_api: CaptureApi, stall: Callable[[str, int], None], point: str
    ) -> None:
        stall(point, MAX_TRIES - 1)
        assert (await capture_api.post(sample())).status == 202
        stall("refuse_capture.add_entry", MAX_TRIES - 1)
        assert (await capture_api.post(sample(size_bytes=1))).status == 409
        trail = (await capture_api.get(f"{SAMPLE['capture_id']}/audit")).body
        assert [entry["http_status"] for entry in trail["entries"]] == [202, 409]
        assert trail["broken_at"] is None

    @pytest.mark.parametrize("changed", [{}, {"size_bytes": -1}])
    async def test_a_server_that_is_too_busy_says_so_and_has_done_nothing(
        self, capture_api: CaptureApi, stall: Callable[[str, int], None], changed: dict[str, Any]
    ) -> None:
        stall("refuse_capture.add_entry" if changed else "capture.add_entry", MAX_TRIES)
        refused = await capture_api.post(sample(**changed))
        error = {"error": "SERVICE_UNAVAILABLE", "message": OVERLOADED.detail}
        assert (refused.status, refused.body, refused.headers["retry-after"]) == (503, error, "1")
        assert (await capture_api.get(str(SAMPLE["capture_id"]))).status == 404
        assert (await capture_api.post(sample())).status == 202


@pytest.mark.parametrize("point", ["capture.add_entry", "publish.publish_workflow", "capture.commit.before"])
async def test_a_session_that_was_ended_before_its_commit_is_begun_again(
    capture_api: CaptureApi, dsn: str, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def end(_: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as looking:
            looking.execute(IDLE.replace("count(*)", "pg_terminate_backend(pid, 5000)"))

    monkeypatch.setitem(fault_injection.modes, "end", end)
    fault_injection.arm(f"{point}:1:end")
    try:
        answer = await capture_api.post(sample())
    finally:
        fault_injection.arm(None)
    is_unknown = point == "capture.commit.before"  # the next word was to commit: perhaps it was heard
    assert answer.status == (503 if is_unknown else 202)
    assert (await capture_api.post(sample())).status == (202 if is_unknown else 200)


async def test_the_first_capture_of_a_tenant_publishes_its_workflow_once(
    capture_api: CaptureApi, tmp_path: Path
) -> None:
    passed = tmp_path / "points"
    fault_injection.record(str(passed))
    try:
        answers = await asyncio.gather(
            *(capture_api.post(sample(capture_id=str(uuid4()))) for _ in range(20))
        )
    finally:
        fault_injection.record(None)
    assert [answer.status for answer in answers] == [202] * 20
    assert passed.read_text().splitlines().count("publish.commit.before") == 1


class TestNoConnection:
    """Nobody can be served: all who wait for one turn are told so at once, not one after the other."""

    @pytest.fixture
    def settings(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
        monkeypatch.setattr(database, "POOL_SECONDS", 1.0)
        database_settings = {"allow_unsafe": True, "pool_size": 1}
        return settings_with_captures(tmp_path).model_copy(
            update={"database": Settings(database=database_settings).database}
        )

    async def test_all_waiting_posts_get_503_with_the_first(
        self, capture_api: CaptureApi, dsn: str, eventually: Any
    ) -> None:
        other = sample(capture_id=str(uuid4()))
        assert (await capture_api.post(other)).status == 202

        async def is_waiting() -> bool:
            return bool((await capture_api.lab.rows("select count(*) from pg_locks where not granted"))[0][0])

        async with await psycopg.AsyncConnection.connect(dsn) as elsewhere:
            await elsewhere.execute(LOCK, [NOBODY, SAMPLE["capture_id"]])
            first = asyncio.create_task(capture_api.post(sample()))
            await eventually(is_waiting)
            async with asyncio.timeout(10):  # one after the other it would be 20 s, and 20 more for the log
                answers = await asyncio.gather(*(capture_api.post(other) for _ in range(20)))
            error = {"error": "SERVICE_UNAVAILABLE", "message": OVERLOADED.detail}
            assert [(answer.status, answer.body) for answer in answers] == [(503, error)] * 20
        assert (await first).status == 202
        assert (await capture_api.post(other)).status == 200
