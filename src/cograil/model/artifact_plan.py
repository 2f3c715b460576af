"""Which artifacts are fetched before the container runs and which after, and in what order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cograil.model.container_spec import JOB, Artifact, InvalidRequest


@dataclass(frozen=True, slots=True)
class Plan:
    """Each after what it depends on, else in the order given."""

    before: tuple[Artifact, ...]
    after: tuple[Artifact, ...]


def make_plan(artifacts: Sequence[Artifact]) -> Plan:
    """The plan of these artifacts. Raises InvalidRequest for one that could not be carried out.

    After the job comes what depends on it, directly or by another; all else comes before.
    """
    known = {artifact.id: artifact for artifact in artifacts}
    if len(known) < len(artifacts):
        twice = next(one.id for one in artifacts if known[one.id] is not one)
        raise InvalidRequest(f"artifacts: the id {twice!r} is given twice")
    chains = {artifact.id: _chain(artifact, known) for artifact in artifacts}
    in_order = sorted(artifacts, key=lambda artifact: len(chains[artifact.id]))
    return Plan(
        tuple(one for one in in_order if JOB not in chains[one.id]),
        tuple(one for one in in_order if JOB in chains[one.id]),
    )


def _chain(artifact: Artifact, known: dict[str, Artifact]) -> list[str]:
    """What has to be done before it, the nearest first."""
    chain: list[str] = []
    one = artifact
    while one.depends is not None:
        if one.depends in chain or one.depends == artifact.id:
            raise InvalidRequest(f"artifacts: {artifact.id!r} waits for itself")
        chain.append(one.depends)
        if one.depends == JOB:
            break
        if one.depends not in known:
            raise InvalidRequest(f"artifacts: {one.id!r} depends on {one.depends!r}, which there is not")
        one = known[one.depends]
    return chain
