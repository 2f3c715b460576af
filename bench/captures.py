"""Captures over HTTP: first posts, and replays of them, by users of their own. No worker seals meanwhile.

`python -m bench.captures` measures only this.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from bench.engine import Bench, open_bench
from bench.figures import Figures
from bench.http import Line, free_port, served
from bench.server import durable_postgres, fresh_database
from cograil.verbs.key_management import create_key

USERS = 8
SAID = {
    "hash_sha3_256": "abcdef0123456789" * 4,
    "aes_gcm_nonce_b64": "dGVzdG5vbmNlMTIz",
    "aes_gcm_tag_b64": "dGVzdHRhZzEyMzQ1Njc4OQ==",
    "dek_wrapped_b64": "ZGVrd3JhcHBlZGI2NA==",
    "kek_id": "kek-2026-04-01",
    "mime_type": "image/png",
    "size_bytes": 524288,
    "device_id": "0f0e0d0c-0b0a-4908-8706-050403020100",
}
Post = tuple[str, bytes]


async def measure(bench: Bench, count: int) -> Figures:
    """Posts a second that make a capture, and that find one."""
    keys = [await _key(bench) for _ in range(USERS)]
    posts = [(keys[number % USERS], _body()) for number in range(count)]
    port = free_port()
    arguments = ["cograil", "server", "--port", str(port), "--log-level", "warning"]
    variables = {"COGRAIL_DATABASE_URL": bench.conninfo, "COGRAIL_CAPTURES__RATE_PER_MINUTE": "1e9"}
    async with served(arguments, port, **variables) as lines:
        await _per_second(lines, [(keys[0], _body()) for _ in range(100)], 202)
        first = await _per_second(lines, posts, 202)
        again = await _per_second(lines, posts, 200)
    return {"capture_first_per_s": round(first), "capture_replay_per_s": round(again)}


async def _key(bench: Bench) -> str:
    async with bench.db.transaction("keys") as tx:
        return (await create_key(tx, role="submitter", tenant="default", user_id=str(uuid4()))).key


def _body() -> bytes:
    id = str(uuid4())
    own: dict[str, Any] = {"capture_id": id, "upload_object_key": f"captures/{id}.enc"}
    return json.dumps(SAID | own | {"timestamp_device": datetime.now(UTC).isoformat()}).encode()


async def _per_second(lines: Sequence[Line], posts: list[Post], expected: int) -> float:
    left = iter(posts)

    async def work(line: Line) -> None:
        for key, body in left:
            head = (
                f"POST /v1/captures HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            line.writer.write(head.encode() + body)
            answer = await line.reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body_text = await line.reader.readexactly(length)
            assert int(answer.split(b" ", 2)[1]) == expected, body_text

    began = time.perf_counter()
    await asyncio.gather(*(work(line) for line in lines))
    return len(posts) / (time.perf_counter() - began)


async def _alone(conninfo: str, count: int) -> Figures:
    async with open_bench(conninfo) as bench:
        return await measure(bench, count)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.captures", description=__doc__)
    parser.add_argument("--count", type=int, default=4_000)
    with durable_postgres() as postgres:
        figures = asyncio.run(_alone(fresh_database(postgres), parser.parse_args().count))
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
