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
ENTRIES = """
select count(*), count(*) filter (where http_status = 202), count(*) filter (where http_status = 200),
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

    async def post(self, posts: list[Post]) -> list[tuple[Post, int, dict[str, Any]]]:
        """All of these at once, each on a line of its own; what each was answered."""
        are_open = asyncio.Barrier(len(posts))

        async def send(port: int, key: str, body: dict[str, Any]) -> tuple[Post, int, dict[str, Any]]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await are_open.wait()
                return (key, body), *await _ask(reader, writer, key, body)
            finally:
                writer.close()
                await writer.wait_closed()

        ports = itertools.cycle(self.ports)
        return await asyncio.gather(*(send(next(ports), *post) for post in posts))

    async def check(self, id: str, counted: Counter[int]) -> None:
        """One of everything, every outcome in the log, and every chain holds."""
        rows = await self.lab.rows("select count(*) from vault_secure.capture_events")
        jobs = await self.lab.rows("select count(*) from cograil.jobs")
        records = await self.lab.rows("select count(*) from cograil.idempotency where scope = 'captures'")
        assert (rows, jobs, records) == ([(1,)], [(1,)], [(1,)])
        logged = await self.lab.rows(ENTRIES, id=id)
        assert logged == [(counted.total(), counted[202], counted[200], counted[409])]
        for chain, entries in await self.lab.rows(CHAINS):
            assert first_broken(orjson.loads(entries)) is None, chain


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str, body: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/captures HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    writer.write(head.encode() + content)
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


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("make", CROWDS)
@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.torture)])
async def test_a_crowd_makes_one_row(crowd: Crowd, make: Callable[[Crowd, int], Post], count: int) -> None:
    answers = await crowd.post([make(crowd, number) for number in range(count)])
    statuses = Counter(status for _, status, _ in answers)
    ((winner, _, made),) = [one for one in answers if one[1] == 202]
    for (key, body), status, told in answers:
        is_same = key == winner[0] and body["size_bytes"] == winner[1]["size_bytes"]
        if (key, body) is not winner and status != 202:
            assert status == (200 if is_same else 409)
        if status == 409:
            assert told == {
                "error": "CONFLICT",
                "message": "capture_id already used with different payload",
            }
        else:
            assert told == made
    await crowd.check(sample()["capture_id"], statuses)
