"""Whatever was changed is found: any byte of object, manifest or audit trail; also by the command."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.apps.captures.capture_api import SealingSite

import cograil
from cograil.apps.captures import audit, manifest
from cograil.apps.captures.proof_verifier import verify
from cograil.apps.captures.settings import CaptureSettings
from cograil.apps.captures.signing import BadKey, load_configured_signer, load_public, load_signer
from cograil.canonical_json import canonical

CONTENT = b"what was on the screen"
TREE = str(Path(cograil.__file__).parents[1])  # a command is that of the tree that is tested


@dataclass
class Sealed:
    """A capture with all that is needed to verify it."""

    id: str
    object: bytes
    proof: bytes
    trail: bytes
    key: Path

    def problems(self, **changed: Any) -> list[str]:
        evidence = {"proof": self.proof, "object": self.object, "trail": self.trail} | changed
        claims = verify(
            evidence["proof"],
            object=None if evidence["object"] is None else io.BytesIO(evidence["object"]),
            trail=evidence["trail"],
            trusted=[load_public(self.key)],
        )
        return [claim.problem for claim in claims if not claim.holds]


@pytest.fixture
async def sealed(sealing_site: SealingSite) -> Sealed:
    body = sealing_site.capture_api.capture(CONTENT)
    await sealing_site.sealed(body)
    id = body["capture_id"]
    await sealing_site.capture_api.post(body)
    key = sealing_site.capture_api.data_dir / "captures" / "signing.pem"
    object = sealing_site.capture_api.object_of(body).read_bytes()
    return Sealed(id, object, await sealing_site.proof(id), await sealing_site.trail(id), key)


async def test_an_untouched_proof_holds_and_so_does_the_plaintext(sealed: Sealed) -> None:
    assert sealed.problems() == []
    assert sealed.problems(object=CONTENT) == []
    assert sealed.problems(object=None, trail=None) == []


@pytest.mark.parametrize("what", ["proof", "object", "trail"])
async def test_any_byte_that_was_changed_is_found(sealed: Sealed, what: str) -> None:
    whole = getattr(sealed, what)
    aside = {"object": None, "trail": None}  # they are checked elsewhere: this is about one of the three
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= (0x01, 0x20, 0x80)[place % 3]
        assert sealed.problems(**aside | {what: bytes(changed)}), (what, place)
    for other in (whole[:-1], whole[1:], whole + b"\n", b" " + whole, b""):
        assert sealed.problems(**aside | {what: other})


async def test_a_changed_manifest_signed_again_is_found_by_the_key(sealed: Sealed, tmp_path: Path) -> None:
    made = orjson.loads(sealed.proof)["manifest"]
    made["timestamp_device"] = "2020-01-01T00:00:00.000000Z"
    forger = load_signer(tmp_path / "forger.pem")
    forged = manifest.signed(made | {"signer": forger.facts}, forger)
    assert verify(forged)[0].holds, "it is a proof, of somebody's"
    assert any("we trust the key" in problem for problem in sealed.problems(proof=forged))


@pytest.mark.parametrize(
    "name", ["audit", "payload", "object", "payload_canonical_sha256", "signer", "format"]
)
async def test_a_signed_document_that_is_not_a_proof_is_refused(
    sealed: Sealed, tmp_path: Path, name: str
) -> None:
    made = orjson.loads(sealed.proof)["manifest"]
    signer = load_signer(tmp_path / "other.pem")
    values: list[Any] = [None, 7, "x", [], {}, {"entries": []}, {"entries": ["x"], "seq": 1}]
    for value in values:
        proof = manifest.signed(made | {"signer": signer.facts} | {name: value}, signer)
        assert sealed.problems(proof=proof)
    proof = manifest.signed({"signer": signer.facts}, signer)
    assert sealed.problems(proof=proof)


async def test_an_entry_that_is_removed_moved_or_hashed_anew_is_found(sealed: Sealed) -> None:
    trail = orjson.loads(sealed.trail)
    entries = trail["entries"]
    assert len(entries) == 4
    for other in (entries[1:], entries[:1] + entries[2:], [*reversed(entries)], entries[:2]):
        assert sealed.problems(trail=canonical(trail | {"entries": other}))
    lied = [dict(entry) for entry in entries]
    lied[0]["http_status"] = 200
    previous = audit.NOTHING
    for entry in lied:
        facts = {name: value for name, value in entry.items() if name != "hash"} | {"previous_hash": previous}
        entry["previous_hash"], entry["hash"] = previous, audit.hash_of(facts)
        previous = entry["hash"]
    assert audit.first_broken(lied) is None, "a whole chain can be made anew"
    problems = sealed.problems(trail=canonical(trail | {"entries": lied}))
    assert problems == ["entry 3 is not the one that was signed"]


async def test_a_row_that_is_changed_in_the_database_is_found(
    sealing_site: SealingSite, sealed: Sealed
) -> None:
    lab = sealing_site.capture_api.lab
    trigger = "alter table vault_secure.capture_audit_log {} trigger append_only"
    change = "update vault_secure.capture_audit_log set {} where capture_id = %(id)s and seq = 2"
    await lab.rows(trigger.format("disable"))
    for what in (
        "at = at + interval '1 microsecond'",
        "event = 'X'",
        "event_payload = '{}'",
        "source_ip = 'x'",
        "http_status = 200",
        "tenant_id = 'other'",
        "user_id = null",
        "capture_id = null",
        "previous_hash = repeat('0', 64)",
        "hash = repeat('0', 64)",
        "chain = 'x'",
        "seq = 99",
    ):
        await lab.rows("create table kept as select * from vault_secure.capture_audit_log")
        await lab.rows(change.format(what), id=sealed.id)
        trail = await sealing_site.trail(sealed.id)
        assert orjson.loads(trail)["broken_at"] == 2, what
        assert sealed.problems(trail=trail), what
        await lab.rows("delete from vault_secure.capture_audit_log")
        await lab.rows("insert into vault_secure.capture_audit_log select * from kept")
        await lab.rows("drop table kept")
    assert sealed.problems(trail=await sealing_site.trail(sealed.id)) == []


async def test_a_long_trail_comes_in_pages_and_all_of_them_are_held_against_the_proof(
    sealing_site: SealingSite, sealed: Sealed
) -> None:
    async def page(query: str) -> bytes:
        answer = await sealing_site.capture_api.get(f"{sealed.id}/audit?{query}")
        assert answer.status == 200, answer.raw
        return answer.raw

    first, second, rest = await page("limit=2"), await page("after=2&limit=1"), await page("after=3")
    shown = [orjson.loads(raw) for raw in (first, second, rest)]
    assert [[entry["seq"] for entry in page["entries"]] for page in shown] == [[1, 2], [3], [4]]
    assert [page["next_after"] for page in shown] == [2, 3, None]
    assert [page["broken_at"] for page in shown] == [None, None, None]
    assert orjson.loads(await page("after=9"))["entries"] == []
    assert sealed.problems(trail=[first, second, rest]) == []
    for pages in (
        [first],
        [first, second],
        [first, rest],
        [second, rest],
        [second, first, rest],
        [first] * 2,
    ):
        assert sealed.problems(trail=pages), "some of it is missing, or in another order"
    for place in range(0, len(first), 10):  # each byte of a trail is changed above
        changed = bytearray(first)
        changed[place] ^= (0x01, 0x20, 0x80)[place % 3]
        assert sealed.problems(object=None, trail=[bytes(changed), second, rest]), place


@pytest.mark.parametrize(
    "query", ["after=-1", "limit=0", "limit=10001", "limit=x", "page=1", "after=1&after=2"]
)
async def test_a_page_that_there_is_not_is_refused(
    sealing_site: SealingSite, sealed: Sealed, query: str
) -> None:
    answer = await sealing_site.capture_api.get(f"{sealed.id}/audit?{query}")
    assert (answer.status, answer.body["error"]) == (400, "BAD_REQUEST")


async def test_a_page_tells_that_the_entry_before_it_was_changed(
    sealing_site: SealingSite, sealed: Sealed
) -> None:
    lab = sealing_site.capture_api.lab
    await lab.rows("alter table vault_secure.capture_audit_log disable trigger append_only")
    await lab.rows(
        "delete from vault_secure.capture_audit_log where capture_id = %(id)s and seq = 2", id=sealed.id
    )
    page = (await sealing_site.capture_api.get(f"{sealed.id}/audit?after=2")).body
    assert ([entry["seq"] for entry in page["entries"]], page["broken_at"]) == ([3, 4], 3)


async def test_the_verify_command_agrees_without_an_instance(sealed: Sealed, tmp_path: Path) -> None:
    names = {"proof.json": sealed.proof, "object": sealed.object, "audit.json": sealed.trail}
    for name, content in names.items():
        (tmp_path / name).write_bytes(content)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "cograil", "captures", *words],
            cwd=tmp_path,
            env={"PATH": "", "COGRAIL_DATA_DIR": str(tmp_path), "PYTHONPATH": TREE},
            capture_output=True,
            text=True,
            check=False,
        )

    public = run("key")
    assert public.returncode == 0, public.stderr
    (tmp_path / "signer.pem").write_text(public.stdout)
    words = ("verify", "proof.json", "--object", "object", "--audit", "audit.json", "--key", "signer.pem")
    good = run(*words)
    assert (good.returncode, good.stdout.count("yes  "), good.stdout.count("NO ")) == (0, 6, 0), good.stderr
    (tmp_path / "object").write_bytes(sealed.object[:-1] + b"!")
    bad = run(*words, "--json")
    report = json.loads(bad.stdout)
    assert (bad.returncode, report["is_proven"]) == (1, False)
    assert [claim["claim"] for claim in report["claims"] if not claim["holds"]] == [
        "the object is the one that was sealed"
    ]
    assert run("verify", "nowhere.json").returncode == 2
    nowhere = run("key", "--data-dir", "mistyped")
    assert (nowhere.returncode, nowhere.stdout, (tmp_path / "mistyped").exists()) == (3, "", False)
    assert run("verify", "audit.json").returncode == 1


def test_a_signing_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "signing.pem"
    first = load_signer(path)
    assert load_signer(path).public == first.public == load_public(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["signing.pem"]
    public = tmp_path / "public.pem"
    public.write_bytes(first.public_pem())
    assert load_public(public) == first.public
    public.write_bytes(b"no key")
    with pytest.raises(BadKey, match="holds no public key"):
        load_public(public)
    path.write_bytes(b"no key")
    with pytest.raises(BadKey, match="holds no private key"):
        load_signer(path)


def test_a_configured_signing_key_is_never_made(tmp_path: Path) -> None:
    """A file that is not there yet, or mistyped: what another key signs nobody trusts."""
    named = CaptureSettings(signing_key=tmp_path / "named.pem")
    with pytest.raises(BadKey, match=r"COGRAIL_CAPTURES__SIGNING_KEY: the file .* does not exist.*genpkey"):
        load_configured_signer(named, tmp_path)
    assert list(tmp_path.iterdir()) == []
    own = load_configured_signer(CaptureSettings(), tmp_path)
    (tmp_path / "captures" / "signing.pem").rename(tmp_path / "named.pem")
    assert load_configured_signer(named, tmp_path).public == own.public
