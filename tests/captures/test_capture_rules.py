"""What the database itself holds captures to, whoever writes: moves, what was received, times."""

from __future__ import annotations

import asyncio
import re
from importlib import resources
from typing import Any

import psycopg
import pytest
from tests.support.harness import Harness
from vault import SAMPLE, Vault, sample

from cograil.apps.captures import queries, states
from cograil.apps.captures.failure import note
from cograil.apps.captures.object_check import Examined
from cograil.apps.captures.queries import Capture
from cograil.apps.captures.sealing import _write_proof
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


async def _posted(vault: Vault) -> Capture:
    assert (await vault.post(sample())).status == 202
    async with vault.lab.db.transaction("test") as tx:
        found = await queries.find_capture(tx, "default", str(SAMPLE["capture_id"]))
    assert found is not None
    return found


async def _put(lab: Harness, state: str) -> None:
    """There at once, past what checks moves."""
    await lab.rows(PUT.format("disable"))
    await lab.rows(MOVE, state=state)
    await lab.rows(PUT.format("enable"))


async def test_the_database_knows_the_moves_of_the_list_and_no_others(vault: Vault) -> None:
    await _posted(vault)
    allowed = set()
    for source in states.MOVES:
        for target in states.MOVES:
            await _put(vault.lab, source)
            try:
                await vault.lab.rows(MOVE, state=target)
            except psycopg.errors.CheckViolation as error:
                assert f"a capture that is {source} does not become {target}" in str(error)  # noqa: PT017
            else:
                allowed.add((source, target))
    listed = {(source, target) for source, targets in states.MOVES.items() for target in targets}
    assert allowed == listed | {(one, one) for one in states.MOVES}


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
async def test_what_was_received_stays_as_it_came(vault: Vault, column: str) -> None:
    await _posted(vault)
    with pytest.raises(psycopg.errors.CheckViolation, match="stays as it came"):
        await vault.lab.rows(f"update vault_secure.capture_events set {column} = {RECEIVED[column]}")


async def test_times_are_those_of_the_database(vault: Vault) -> None:
    """Of a row that is changed, and of entries: whoever writes may have a clock that is wrong."""
    await _posted(vault)
    await vault.post(sample())
    await vault.post(sample(size_bytes=1))
    entries = "select at from vault_secure.capture_audit_log order by seq"
    times = [at for (at,) in await vault.lab.rows(entries)]
    ((created, updated),) = await vault.lab.rows(
        "select created_at, updated_at from vault_secure.capture_events"
    )
    assert times[0] == created == updated, "the transaction that made it has one time"
    assert times == sorted(set(times))
    await vault.lab.rows("update vault_secure.capture_events set skew_ms = skew_ms, updated_at = 'epoch'")
    ((now_updated,),) = await vault.lab.rows("select updated_at from vault_secure.capture_events")
    assert now_updated > updated


async def test_two_who_seal_one_capture_do_not_wait_in_a_circle(
    vault: Vault, eventually: Any, tmp_path: Any
) -> None:
    """One begins anew (the row, then the chain) while another one, thought dead, writes its proof."""
    capture = await _posted(vault)
    signer, db = load_signer(tmp_path / "signing.pem"), vault.lab.db
    async with db.transaction("test") as tx:
        assert await queries.begin_sealing(tx, capture)

    async def write() -> str:
        async with db.transaction("test") as tx:
            return await _write_proof(tx, capture, Examined(1, "0" * 64, "0" * 64), signer)

    async def waits() -> bool:
        return bool((await vault.lab.rows("select count(*) from pg_locks where not granted"))[0][0])

    async with db.transaction("test") as tx:
        assert await queries.begin_sealing(tx, capture)
        writing = asyncio.create_task(write())
        await eventually(waits)
        await note(tx, capture, "SEALING_STARTED", {})
    assert await writing == "SEALED"
