"""The order in which artifacts run, before and after the container."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cograil.model.container_spec import JOB, Artifact, InvalidRequest


@dataclass(frozen=True, slots=True)
class ArtifactPlan:
    """The artifacts before and after the container, each after its dependency, otherwise in the given
    order.
    """

    before: tuple[Artifact, ...]
    after: tuple[Artifact, ...]


def make_plan(artifacts: Sequence[Artifact]) -> ArtifactPlan:
    """Return the plan of these artifacts. Raises InvalidRequest when they cannot be ordered.

    Artifacts that depend on the job, directly or through others, run after it; all others run before it.
    """
    known = {artifact.id: artifact for artifact in artifacts}
    if len(known) < len(artifacts):
        twice = next(artifact.id for artifact in artifacts if known[artifact.id] is not artifact)
        raise InvalidRequest(f"artifacts: the id {twice!r} is used twice")
    chains = {artifact.id: _chain(artifact, known) for artifact in artifacts}
    in_order = sorted(artifacts, key=lambda artifact: len(chains[artifact.id]))
    return ArtifactPlan(
        tuple(artifact for artifact in in_order if JOB not in chains[artifact.id]),
        tuple(artifact for artifact in in_order if JOB in chains[artifact.id]),
    )


def _chain(artifact: Artifact, known: dict[str, Artifact]) -> list[str]:
    """Return the dependencies of this artifact, the nearest first."""
    chain: list[str] = []
    step = artifact
    while step.depends is not None:
        if step.depends in chain or step.depends == artifact.id:
            raise InvalidRequest(f"artifacts: {artifact.id!r} depends on itself")
        chain.append(step.depends)
        if step.depends == JOB:
            break
        if step.depends not in known:
            raise InvalidRequest(f"artifacts: {step.id!r} depends on {step.depends!r}, which does not exist")
        step = known[step.depends]
    return chain
