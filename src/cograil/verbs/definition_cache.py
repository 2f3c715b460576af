"""Workflows by the id of their stored definition; immutable, so kept once loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from cograil.definitions import load_workflow
from cograil.model.workflow import Json, Workflow
from cograil.store import workflow_queries
from cograil.store.database import Transaction

MAX_INLINE_NODES = 20


async def _load(document: Mapping[str, Json], app: str | None) -> Workflow:
    """A large definition is compiled in a thread: it may take half a second."""
    if len(document.get("nodes") or ()) <= MAX_INLINE_NODES:
        return load_workflow(document, app)
    return await asyncio.to_thread(load_workflow, document, app)


class Catalog:
    """A process's copy of the definitions its jobs are pinned to."""

    def __init__(self, size: int = 1000) -> None:
        self._known: dict[int, Workflow] = {}
        self._size = size

    @property
    def known(self) -> Mapping[int, Workflow]:
        """What is loaded."""
        return self._known

    async def get(self, tx: Transaction, definition_id: int) -> Workflow:
        """One workflow."""
        known = self._known.get(definition_id)
        return known or (await self.load(tx, [definition_id]))[definition_id]

    async def load(self, tx: Transaction, ids: Iterable[int]) -> dict[int, Workflow]:
        """The workflows of these definitions.

        The least recently loaded are forgotten first: a pass that needs one more, for a child job, still
        knows those of its own jobs.
        """
        known, wanted = self._known, set(ids)
        if absent := list(wanted - known.keys()):
            for definition_id, (document, app) in (
                await workflow_queries.load_definitions(tx, absent)
            ).items():
                known[definition_id] = await _load(document, app)
        found = {definition_id: known.pop(definition_id) for definition_id in wanted}
        known.update(found)
        while len(known) > max(self._size, len(found)):
            del known[next(iter(known))]
        return found
