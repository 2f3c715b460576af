"""Check the integrity of the database: every chain of the audit log, and every capture against its chain.

`proof_verifier` is for the recipient of a proof, this is for the operator: refused requests are in no proof, and a
removed chain or proof is not missed by anyone who never received it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from cograil.apps.captures import audit, manifest
from cograil.apps.captures.audit import NOTHING, ChainEntry
from cograil.apps.captures.fingerprint import Fields, canonical_fingerprint
from cograil.apps.captures.proof_verifier import verify
from cograil.store.database import Database
from cograil.store.statements import statement

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

LIST_LOG = statement("list_log", package="cograil.apps.captures")
LIST_VAULT = statement("list_vault", package="cograil.apps.captures")
AT_ONCE = 1_000
FIRST_ID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class IntegrityProblem:
    """A problem in a chain; the chain of a capture is its event id."""

    chain: str
    problem: str


@dataclass(slots=True)
class IntegrityReport:
    """The counts of checked rows, and the problems."""

    chains: int = 0
    entries: int = 0
    captures: int = 0
    proofs: int = 0
    problems: list[IntegrityProblem] = field(default_factory=list)


async def check_vault(
    db: Database, trusted: Collection[bytes] = (), authorities: Sequence[Certificate] = ()
) -> IntegrityReport:
    """Check everything; with `trusted` keys, one of them must have signed each proof.

    With `authorities`, one of these CAs must have issued the certificate that signed each time stamp.
    """
    report = IntegrityReport()
    await _check_log(db, report)
    await _check_captures(db, report, trusted, authorities)
    return report


async def _check_log(db: Database, report: IntegrityReport) -> None:
    """Check each chain from its first entry on; only the first broken entry of a chain is reported."""
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


async def _pages(db: Database) -> AsyncIterator[list[ChainEntry]]:
    chain, seq = "", 0
    while True:
        async with db.single("check_log") as tx:
            page = audit.entries_of(await tx.fetch(LIST_LOG, chain=chain, seq=seq, limit=AT_ONCE))
        if not page:
            return
        yield page
        chain, seq = page[-1].chain, page[-1].seq


async def _check_captures(
    db: Database, report: IntegrityReport, trusted: Collection[bytes], authorities: Sequence[Certificate]
) -> None:
    after = FIRST_ID
    while True:
        async with db.single("check_captures") as tx:
            rows = await tx.fetch(LIST_VAULT, after=after, limit=AT_ONCE)
        if not rows:
            return
        for id, fingerprint, proof, received, seq, hash_, *fingerprint_fields in rows:
            report.captures += 1
            report.proofs += proof is not None
            problems = (
                [] if received == fingerprint else ["its first entry is missing, or is of another payload"]
            )
            if canonical_fingerprint(Fields(*fingerprint_fields)) != fingerprint:
                problems.append("its fields are not those of its fingerprint")
            problems += _problems_of(id, fingerprint, proof, (seq, hash_), trusted, authorities)
            report.problems += [IntegrityProblem(id, problem) for problem in problems]
        after = rows[-1][0]


def _problems_of(
    id: str,
    fingerprint: str,
    proof: str | None,
    sealed: tuple[Any, Any],
    trusted: Collection[bytes],
    authorities: Sequence[Certificate],
) -> list[str]:
    """The problems of a proof: invalid, of another capture, or not ending at the sealing entry of the log."""
    if proof is None:
        return [] if sealed == (None, None) else ["the log has a sealing entry, but the capture has no proof"]
    checked = verify(proof.encode(), trusted=trusted, authorities=authorities)
    problems = [f"its proof: {result.claim}: {result.problem}" for result in checked if not result.holds]
    if problems:
        return problems
    sealed_manifest = manifest.read(proof)["manifest"]
    if (sealed_manifest["capture_event_id"], sealed_manifest["payload_canonical_sha256"]) != (
        id,
        fingerprint,
    ):
        problems.append("its proof is that of another capture")
    if (sealed_manifest["audit"]["seq"], sealed_manifest["audit"]["head"]) != sealed:
        problems.append("its proof was signed over another chain than the one in the log")
    return problems
