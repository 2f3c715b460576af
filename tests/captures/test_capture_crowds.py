"""Many post one id at once, over several server processes: one row, whatever they send, whoever they are."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson
import pytest
from lab import Lab
from nest import open_nest
from vault import Vault, sample

from cograil.apps.captures.audit import first_broken
from cograil.settings import Settings

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
Post = tuple[str, dict[str, Any]]  # a key, and what is posted with it


@dataclass
class Crowd:
    """Lines to several servers, and two users."""

    lab: Lab
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
                status, told = await _answer(reader)
            finally:
                writer.close()
                await writer.wait_closed()
            if status != 503:
                return post, status, told
            self.turned_away += 1
            return await send(port, post)

        ports = itertools.cycle(self.ports)
        return await asyncio.gather(*(send(next(ports), post) for post in posts))

    async def check(self, id: str, counted: Counter[int]) -> None:
        """One of everything, every outcome in the log, and every chain holds."""
        assert await self.lab.rows(MADE, id=id) == [(1, 1, 1)]
        (logged,) = await self.lab.rows(ENTRIES, id=id)
        more = [found - told for found, told in zip(logged, (counted[one] for one in LOGGED), strict=True)]
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
    told = await reader.readuntil(b"\r\n\r\n")
    length = int(told.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return int(told.split(b" ", 2)[1]), orjson.loads(await reader.readexactly(length))


@pytest.fixture
async def crowd(vault: Vault, dsn: str, settings: Settings) -> AsyncIterator[Crowd]:
    ada = await vault.api.make_key("submitter", user_id=str(uuid4()))
    bob = await vault.api.make_key("submitter", user_id=str(uuid4()))
    async with open_nest() as nest:
        given = settings.model_dump(mode="json")
        servers = [await nest.fork("server", dsn, given) for _ in range(SERVERS)]
        yield Crowd(vault.lab, [one["port"] for one in servers], ada, bob)


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
    posts = [(key, body | {"capture_id": id}) for key, body in (make(crowd, one) for one in range(count))]
    answers = await crowd.post(posts)
    ((winner, _, made),) = [one for one in answers if one[1] == 202]
    for (key, body), status, told in answers:
        is_same = key == winner[0] and body["size_bytes"] == winner[1]["size_bytes"]
        if status != 202:
            assert status == (200 if is_same else 409)
        if status == 409:
            assert told == {
                "error": "CONFLICT",
                "message": "capture_id already used with different payload",
            }
        else:
            assert told == made
    await crowd.check(id, Counter(status for _, status, _ in answers))


async def test_each_crowd_makes_one_row(crowd: Crowd) -> None:
    for make in CROWDS:
        await _one_row(crowd, make, 100)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("make", CROWDS)
async def test_a_crowd_of_10_000_makes_one_row(crowd: Crowd, make: Callable[[Crowd, int], Post]) -> None:
    await _one_row(crowd, make, 10_000)
