"""Rules that the database enforces on captures for every writer: moves, received fields, times."""

from __future__ import annotations

import asyncio
import re
from importlib import resources
from typing import Any

import psycopg
import pytest
from tests.apps.captures.capture_api import SAMPLE, CaptureApi, sample
from tests.support.harness import Harness

from cograil.apps.captures import queries, states
from cograil.apps.captures.failure import append_entry
from cograil.apps.captures.object_check import ObjectCheck
from cograil.apps.captures.queries import Capture
from cograil.apps.captures.sealer import _write_proof
from cograil.apps.captures.signing import load_signer

MOVE = """
update vault_secure.capture_events set state = %(state)s,
  proof = case when %(state)s in ('SEALED', 'ANCHORED') then '{}' end,
  error_code = case when %(state)s = 'FAILED' then 'x' end"""
PUT = "alter table vault_secure.capture_events {} trigger moves_on"
RECEIVED = {
    "capture_id": "'00000000-0000-4000-8000-000000000000'",
    "user_id": "'00000000-0000-4000-8000-000000000000'",
    "tenant_id": "'other'",
    "payload_canonical_sha256": f"'{'0' * 64}'",
    "content_hash": "'0'",
    "dek_wrapped_b64": "''",
    "size_bytes": "1",
    "upload_object_key": "'x'",
    "ocr_text": "'x'",
    "timestamp_device": "now()",
    "created_at": "now() - interval '1 day'",
}


async def _posted(capture_api: CaptureApi) -> Capture:
    assert (await capture_api.post(sample())).status == 202
    async with capture_api.lab.db.transaction("test") as tx:
        capture = await queries.find_capture(tx, "default", str(SAMPLE["capture_id"]))
    assert capture is not None
    return capture


async def _put(lab: Harness, state: str) -> None:
    """There at once, past what checks moves."""
    await lab.rows(PUT.format("disable"))
    await lab.rows(MOVE, state=state)
    await lab.rows(PUT.format("enable"))


async def test_the_database_knows_the_moves_of_the_list_and_no_others(capture_api: CaptureApi) -> None:
    await _posted(capture_api)
    allowed = set()
    for source in states.MOVES:
        for target in states.MOVES:
            await _put(capture_api.lab, source)
            try:
                await capture_api.lab.rows(MOVE, state=target)
            except psycopg.errors.CheckViolation as error:
                assert f"a capture that is {source} does not become {target}" in str(error)  # noqa: PT017
            else:
                allowed.add((source, target))
    listed = {(source, target) for source, targets in states.MOVES.items() for target in targets}
    assert allowed == listed | {(state, state) for state in states.MOVES}


def test_each_statement_makes_moves_of_the_list() -> None:
    """The header says which; that the text agrees with it is seen by the states in it."""
    seen = set()
    for file in resources.files("cograil.apps.captures").joinpath("sql").iterdir():
        text = file.read_text()
        header = re.search(r"^-- moves: capture ([A-Z |]+) -> (\w+)$", text, re.MULTILINE)
        is_move = re.search(r"set [^;]*?\bstate = '(\w+)'", text.partition("where")[0])
        assert (header is None) == (is_move is None or "insert" in text), file.name
        if header is not None:
            assert is_move is not None
            assert header[2] == is_move[1], file.name
            for source in header[1].split(" | "):
                assert header[2] in states.MOVES[source], file.name
                assert f"'{source}'" in text.partition("where")[2], file.name
            seen.add(header[2])
    assert seen == {"SEALING", "SEALED", "FAILED"}


@pytest.mark.parametrize("column", RECEIVED)
async def test_received_fields_of_a_capture_never_change(capture_api: CaptureApi, column: str) -> None:
    await _posted(capture_api)
    with pytest.raises(psycopg.errors.CheckViolation, match="stays as it came"):
        await capture_api.lab.rows(f"update vault_secure.capture_events set {column} = {RECEIVED[column]}")


async def test_times_of_captures_are_those_of_the_database(capture_api: CaptureApi) -> None:
    """Of a changed row, and of entries: the clock of the writer may be wrong."""
    await _posted(capture_api)
    await capture_api.post(sample())
    await capture_api.post(sample(size_bytes=1))
    entries = "select at from vault_secure.capture_audit_log order by seq"
    times = [at for (at,) in await capture_api.lab.rows(entries)]
    ((created, updated),) = await capture_api.lab.rows(
        "select created_at, updated_at from vault_secure.capture_events"
    )
    assert times[0] == created == updated, "the transaction that made it has one time"
    assert times == sorted(set(times))
    await capture_api.lab.rows(
        "update vault_secure.capture_events set skew_ms = skew_ms, updated_at = 'epoch'"
    )
    ((now_updated,),) = await capture_api.lab.rows("select updated_at from vault_secure.capture_events")
    assert now_updated > updated


async def test_two_workers_that_seal_one_capture_do_not_deadlock(
    capture_api: CaptureApi, eventually: Any, tmp_path: Any
) -> None:
    """One begins anew (the row, then the chain) while another one, thought dead, writes its proof."""
    capture = await _posted(capture_api)
    signer, db = load_signer(tmp_path / "signing.pem"), capture_api.lab.db
    async with db.transaction("test") as tx:
        assert await queries.begin_sealing(tx, capture)

    async def write() -> str:
        async with db.transaction("test") as tx:
            return await _write_proof(tx, capture, ObjectCheck(1, "0" * 64, "0" * 64), signer)

    async def waits() -> bool:
        return bool((await capture_api.lab.rows("select count(*) from pg_locks where not granted"))[0][0])

    async with db.transaction("test") as tx:
        assert await queries.begin_sealing(tx, capture)
        writing = asyncio.create_task(write())
        await eventually(waits)
        await append_entry(tx, capture, "SEALING_STARTED", {})
    assert await writing == "SEALED"
