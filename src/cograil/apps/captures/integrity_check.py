"""Checking all that the vault holds: every chain of the audit log, and every capture against its own.

`verifying` is for whoever was given a proof. This is for whoever runs the place: refusals are in no proof,
and a chain or a proof that was removed is missed by nobody who was not given it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from cograil.apps.captures import audit, manifest
from cograil.apps.captures.audit import NOTHING, Entry
from cograil.apps.captures.fingerprint import Fields, canonical_fingerprint
from cograil.apps.captures.proof_verifier import verify
from cograil.store.database import Database
from cograil.store.statements import statement

LIST_LOG = statement("list_log", package="cograil.apps.captures")
LIST_VAULT = statement("list_vault", package="cograil.apps.captures")
AT_ONCE = 1_000
FIRST_ID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class IntegrityProblem:
    """What is not as it was written; a capture is called by its event id, which is its chain."""

    chain: str
    problem: str


@dataclass(slots=True)
class IntegrityReport:
    """How much was looked at, and what was found."""

    chains: int = 0
    entries: int = 0
    captures: int = 0
    proofs: int = 0
    problems: list[IntegrityProblem] = field(default_factory=list)


async def check_vault(db: Database, trusted: Collection[bytes] = ()) -> IntegrityReport:
    """Look at everything; with `trusted` keys, one of them must have signed each proof."""
    report = IntegrityReport()
    await _check_log(db, report)
    await _check_captures(db, report, trusted)
    return report


async def _check_log(db: Database, report: IntegrityReport) -> None:
    """Each chain from its first entry on; of one that is broken only the first place is told."""
    current, seq, previous, is_broken = "", 0, NOTHING, False
    async for page in _pages(db):
        for chain, group in groupby(page, key=lambda entry: entry.chain):
            entries = [asdict(entry) for entry in group]
            if chain != current:
                current, seq, previous, is_broken = chain, 0, NOTHING, False
                report.chains += 1
            report.entries += len(entries)
            broken = None if is_broken else audit.first_broken(entries, previous, seq + 1)
            if broken is not None:
                is_broken = True
                report.problems.append(
                    IntegrityProblem(chain, f"entry {broken} is not as it was written, or is missing")
                )
            seq, previous = entries[-1]["seq"], entries[-1]["hash"]


async def _pages(db: Database) -> AsyncIterator[list[Entry]]:
    chain, seq = "", 0
    while True:
        async with db.single("check_log") as tx:
            page = audit.entries_of(await tx.fetch(LIST_LOG, chain=chain, seq=seq, limit=AT_ONCE))
        if not page:
            return
        yield page
        chain, seq = page[-1].chain, page[-1].seq


async def _check_captures(db: Database, report: IntegrityReport, trusted: Collection[bytes]) -> None:
    after = FIRST_ID
    while True:
        async with db.single("check_captures") as tx:
            rows = await tx.fetch(LIST_VAULT, after=after, limit=AT_ONCE)
        if not rows:
            return
        for id, fingerprint, proof, received, seq, hash_, *nine in rows:
            report.captures += 1
            report.proofs += proof is not None
            told = [] if received == fingerprint else ["its first entry is missing, or is of another payload"]
            if canonical_fingerprint(Fields(*nine)) != fingerprint:
                told.append("its fields are not those of its fingerprint")
            told += _problems_of(id, fingerprint, proof, (seq, hash_), trusted)
            report.problems += [IntegrityProblem(id, one) for one in told]
        after = rows[-1][0]


def _problems_of(
    id: str, fingerprint: str, proof: str | None, sealed: tuple[Any, Any], trusted: Collection[bytes]
) -> list[str]:
    """Of a capture and its proof: whether it holds, is its own, and ends where the log tells of the seal."""
    if proof is None:
        return [] if sealed == (None, None) else ["the log tells of a seal, but there is no proof"]
    checked = verify(proof.encode(), trusted=trusted)
    found = [f"its proof: {one.claim}: {one.problem}" for one in checked if not one.holds]
    if found:
        return found
    made = manifest.read(proof)["manifest"]
    if (made["capture_event_id"], made["payload_canonical_sha256"]) != (id, fingerprint):
        found.append("its proof is that of another capture")
    if (made["audit"]["seq"], made["audit"]["head"]) != sealed:
        found.append("its proof was signed over another chain than the one in the log")
    return found
