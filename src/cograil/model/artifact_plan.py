"""Which artifacts are fetched before the container runs and which after, and in what order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cograil.model.container_spec import JOB, Artifact, InvalidRequest


@dataclass(frozen=True, slots=True)
class ArtifactPlan:
    """Each after what it depends on, else in the order given."""

    before: tuple[Artifact, ...]
    after: tuple[Artifact, ...]


def make_plan(artifacts: Sequence[Artifact]) -> ArtifactPlan:
    """The plan of these artifacts. Raises InvalidRequest for one that could not be carried out.

    After the job comes what depends on it, directly or by another; all else comes before.
    """
    known = {artifact.id: artifact for artifact in artifacts}
    if len(known) < len(artifacts):
        twice = next(artifact.id for artifact in artifacts if known[artifact.id] is not artifact)
        raise InvalidRequest(f"artifacts: the id {twice!r} is given twice")
    chains = {artifact.id: _chain(artifact, known) for artifact in artifacts}
    in_order = sorted(artifacts, key=lambda artifact: len(chains[artifact.id]))
    return ArtifactPlan(
        tuple(artifact for artifact in in_order if JOB not in chains[artifact.id]),
        tuple(artifact for artifact in in_order if JOB in chains[artifact.id]),
    )


def _chain(artifact: Artifact, known: dict[str, Artifact]) -> list[str]:
    """What has to be done before it, the nearest first."""
    chain: list[str] = []
    step = artifact
    while step.depends is not None:
        if step.depends in chain or step.depends == artifact.id:
            raise InvalidRequest(f"artifacts: {artifact.id!r} waits for itself")
        chain.append(step.depends)
        if step.depends == JOB:
            break
        if step.depends not in known:
            raise InvalidRequest(f"artifacts: {step.id!r} depends on {step.depends!r}, which there is not")
        step = known[step.depends]
    return chain
