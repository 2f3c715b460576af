"""All that is in the vault is checked at once: chains that no proof is about, proofs that nobody fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.apps.captures.capture_api import SAMPLE, SealingSite, sample

import cograil
from cograil.apps.captures import integrity_check, manifest
from cograil.apps.captures.integrity_check import IntegrityReport, check_vault
from cograil.apps.captures.signing import load_public, load_signer

TREE = str(Path(cograil.__file__).parents[1])
LOG, EVENTS = "vault_secure.capture_audit_log", "vault_secure.capture_events"


@pytest.fixture
async def full(sealing_site: SealingSite, monkeypatch: pytest.MonkeyPatch) -> SealingSite:
    """One that is sealed, one that failed, one that was refused by payload, one by nobody's key."""
    monkeypatch.setattr(integrity_check, "AT_ONCE", 3)
    body = sealing_site.capture_api.capture(b"evidence")
    await sealing_site.sealed(body)
    await sealing_site.sealed(sample())
    for _ in range(3):
        await sealing_site.capture_api.post(sample(capture_id=str(uuid4()), size_bytes=-1))
    await sealing_site.capture_api.post(sample(), key="cog_wrong")
    for table, trigger in ((LOG, "append_only"), (EVENTS, "moves_on")):
        await sealing_site.capture_api.lab.rows(f"alter table {table} disable trigger {trigger}")
    return sealing_site


async def _checked(sealing_site: SealingSite, *trusted: bytes) -> IntegrityReport:
    return await check_vault(sealing_site.capture_api.lab.db, trusted)


def _own(sealing_site: SealingSite) -> bytes:
    return load_public(sealing_site.capture_api.data_dir / "captures" / "signing.pem")


async def test_integrity_check_passes_untouched_captures(full: SealingSite) -> None:
    report = await _checked(full, _own(full))
    assert report.problems == []
    assert (report.captures, report.proofs, report.chains) == (2, 1, 4)
    assert report.entries == (await full.capture_api.lab.rows(f"select count(*) from {LOG}"))[0][0]


OWN = "where state = 'SEALED'"
CHANGES = {
    "a refusal that was changed": f"update {LOG} set http_status = 200 where chain ~ '^user/' and seq = 2",
    "a refusal that was removed": f"delete from {LOG} where chain ~ '^user/' and seq = 1",
    "an address that was changed": f"update {LOG} set source_ip = 'x' where chain ~ '^address/'",
    "a chain that was removed": f"delete from {LOG} where capture_id = '{SAMPLE['capture_id']}'",
    "a chain cut off before the seal": f"delete from {LOG} where event = 'CAPTURE_SEALED'",
    "a proof that was removed": f"update {EVENTS} set state = 'SEALING', proof = null {OWN}",
    "a byte of a proof": f"update {EVENTS} set proof = replace(proof, 'image/png', 'image/pnG') {OWN}",
    "a proof that is none": f"update {EVENTS} set proof = '{{}}' {OWN}",
    "a field of a row": f"update {EVENTS} set upload_object_key = 'other' {OWN}",
    "a row of another payload": f"update {EVENTS} set payload_canonical_sha256 = repeat('0', 64) {OWN}",
}


@pytest.mark.parametrize("what", CHANGES)
async def test_integrity_check_finds_every_change(full: SealingSite, what: str) -> None:
    await full.capture_api.lab.rows(CHANGES[what])
    assert (await _checked(full)).problems != []


async def test_integrity_check_finds_a_proof_signed_with_another_key(
    full: SealingSite, tmp_path: Path
) -> None:
    ((id, proof),) = await full.capture_api.lab.rows(
        f"select id::text, proof from {EVENTS} where state = 'SEALED'"
    )
    forger = load_signer(tmp_path / "forger.pem")
    made: dict[str, Any] = manifest.read(proof)["manifest"] | {"signer": forger.facts}
    await full.capture_api.lab.rows(
        f"update {EVENTS} set proof = %(proof)s where id = %(id)s",
        proof=manifest.signed(made, forger).decode(),
        id=id,
    )
    assert (await _checked(full)).problems == []
    assert [
        "we trust the key" in problem.problem for problem in (await _checked(full, _own(full))).problems
    ] == [True]
    assert (await _checked(full, _own(full), forger.public)).problems == []


async def test_the_check_command_reports_problems_and_exits_1(full: SealingSite, dsn: str) -> None:
    data_dir = full.capture_api.data_dir

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {name: text for name, text in os.environ.items() if not name.startswith("COGRAIL_")}
        return subprocess.run(
            [sys.executable, "-P", "-m", "cograil", "captures", "check", *words],
            env=environment
            | {"COGRAIL_DATA_DIR": str(data_dir), "COGRAIL_DATABASE_URL": dsn, "PYTHONPATH": TREE},
            capture_output=True,
            text=True,
            check=False,
        )

    good = run("--key", str(data_dir / "captures" / "signing.pem"))
    assert (good.returncode, good.stderr) == (0, ""), good.stderr
    assert "1 proofs of 2 captures: all hold" in good.stdout
    await full.capture_api.lab.rows(CHANGES["a refusal that was changed"])
    bad = run("--json")
    (problem,) = json.loads(bad.stdout)["problems"]
    assert (bad.returncode, problem["problem"]) == (1, "entry 2 is not as it was written, or is missing")
