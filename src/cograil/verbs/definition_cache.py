"""Cache of compiled workflows by the id of their stored definition. Definitions never change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from cograil.definitions import load_workflow
from cograil.model.workflow import Json, Workflow
from cograil.store import workflow_queries
from cograil.store.database import Transaction

MAX_INLINE_NODES = 20


class DefinitionCache:
    """The definitions that jobs of this process are pinned to, at most `size` of them."""

    def __init__(self, size: int = 1000) -> None:
        self._known: dict[int, Workflow] = {}
        self._size = size

    @property
    def known(self) -> Mapping[int, Workflow]:
        """The workflows that are loaded."""
        return self._known

    async def get(self, tx: Transaction, definition_id: int) -> Workflow:
        """Return one workflow, loaded if necessary."""
        known = self._known.get(definition_id)
        return known or (await self.load(tx, [definition_id]))[definition_id]

    async def load(self, tx: Transaction, ids: Iterable[int]) -> dict[int, Workflow]:
        """Return the workflows of these definitions, loaded if necessary.

        The least recently loaded workflow is evicted first. A pass that needs one more workflow, for a
        child job, therefore keeps those of its own jobs.
        """
        known, ids = self._known, set(ids)
        if absent := list(ids - known.keys()):
            documents = await workflow_queries.load_definitions(tx, absent)
            for definition_id, (document, app) in documents.items():
                known[definition_id] = await _compile(document, app)
        workflows = {definition_id: known.pop(definition_id) for definition_id in ids}
        known.update(workflows)
        while len(known) > max(self._size, len(workflows)):
            del known[next(iter(known))]
        return workflows


async def _compile(document: Mapping[str, Json], app: str | None) -> Workflow:
    """Compile a definition. A large one may take half a second and is compiled in a thread."""
    if len(document.get("nodes") or ()) <= MAX_INLINE_NODES:
        return load_workflow(document, app)
    return await asyncio.to_thread(load_workflow, document, app)
