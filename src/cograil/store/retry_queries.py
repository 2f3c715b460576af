"""What a new job takes over from a finished one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import orjson

from cograil.model.job import NodeState
from cograil.store.database import Row, Transaction
from cograil.store.statements import statement

LOAD_FOR_RETRY = statement("load_for_retry")
LOAD_CHILD = statement("load_child")
LOAD_JOB_WORDS = statement("load_job_words")
COPY_NODES = statement("copy_nodes")
KEEP_KEY_ROOTS = statement("keep_key_roots")
COMPLETED_CHILDREN = statement("completed_children")


def _node(row: Row) -> NodeState:
    error = None if row[14] is None else orjson.loads(row[14])
    return NodeState(*(*row[:14], error, *row[15:]))


async def load_nodes(tx: Transaction, job_id: str) -> dict[str, NodeState]:
    """The nodes of the workflow as they ended."""
    return {row[0]: _node(row) for row in await tx.fetch(LOAD_FOR_RETRY, job=job_id)}


async def load_node(tx: Transaction, job_id: str, node_id: str) -> NodeState | None:
    """One node, a child included."""
    rows = await tx.fetch(LOAD_CHILD, job=job_id, node=node_id)
    return _node(rows[0]) if rows else None


async def load_words(tx: Transaction, job_id: str) -> dict[str, Any]:
    """What the submitter said of the job."""
    row = (await tx.fetch(LOAD_JOB_WORDS, job=job_id))[0]
    labels, callback = (None if text is None else orjson.loads(text) for text in row)
    return {"labels": labels, "callback": callback}


async def copy_nodes(
    tx: Transaction, old: str, new: str, kept: Collection[str], reopened: Collection[str], again: str
) -> dict[str, int]:
    """Take these over; how many children of each fan-out count as ended there."""
    params = {"old": old, "new": new, "kept": list(kept), "reopened": list(reopened), "again": again}
    return {row[0]: row[1] for row in await tx.fetch(COPY_NODES, **params) if row[2] is None}


async def keep_key_roots(tx: Transaction, job_id: str, roots: bytes) -> None:
    """Keep from which jobs a new job has its idempotency keys."""
    await tx.execute(KEEP_KEY_ROOTS, job=job_id, roots=roots.decode())


async def completed_children(tx: Transaction, job_id: str, parents: Collection[str]) -> dict[str, list[str]]:
    """The children of these fan-outs that completed, by fan-out."""
    found: dict[str, list[str]] = {}
    for parent, name in await tx.fetch(COMPLETED_CHILDREN, job=job_id, parents=list(parents)):
        found.setdefault(parent, []).append(name)
    return found
