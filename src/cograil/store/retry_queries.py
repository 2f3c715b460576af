"""What a manual retry copies from the finished job."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import orjson

from cograil.model.job import NodeState
from cograil.store.database import Transaction
from cograil.store.locked_jobs import node_state
from cograil.store.statements import statement

LOAD_FOR_RETRY = statement("load_for_retry")
LOAD_CHILD = statement("load_child")
LOAD_JOB_ATTRIBUTES = statement("load_job_attributes")
COPY_NODES = statement("copy_nodes")
KEEP_KEY_ROOTS = statement("keep_key_roots")
COMPLETED_CHILDREN = statement("completed_children")


async def load_nodes(tx: Transaction, job_id: str) -> dict[str, NodeState]:
    """Return the nodes of the finished job, by node id."""
    nodes = [node_state(*row) for row in await tx.fetch(LOAD_FOR_RETRY, job=job_id)]
    return {node.node_id: node for node in nodes}


async def load_node(tx: Transaction, job_id: str, node_id: str) -> NodeState | None:
    """Return one node or child; None when it has no row."""
    rows = await tx.fetch(LOAD_CHILD, job=job_id, node=node_id)
    return next((node_state(*row) for row in rows), None)


async def load_attributes(tx: Transaction, job_id: str) -> dict[str, Any]:
    """Return the labels and the callback of the job."""
    (row,) = await tx.fetch(LOAD_JOB_ATTRIBUTES, job=job_id)
    labels, callback = (None if text is None else orjson.loads(text) for text in row)
    return {"labels": labels, "callback": callback}


async def copy_nodes(
    tx: Transaction, old: str, new: str, kept: Collection[str], reopened: Collection[str], again: str
) -> dict[str, int]:
    """Copy these nodes to the new job; return the number of ended children of each fan-out."""
    params = {"old": old, "new": new, "kept": list(kept), "reopened": list(reopened), "again": again}
    rows = await tx.fetch(COPY_NODES, **params)
    return {node_id: ended for node_id, ended, parent in rows if parent is None}


async def keep_key_roots(tx: Transaction, job_id: str, roots: bytes) -> None:
    """Store the jobs from which a new job takes its idempotency keys."""
    await tx.execute(KEEP_KEY_ROOTS, job=job_id, roots=roots.decode())


async def completed_children(tx: Transaction, job_id: str, parents: Collection[str]) -> dict[str, list[str]]:
    """Return the completed children of these fan-outs, by fan-out."""
    children: dict[str, list[str]] = {}
    for parent, name in await tx.fetch(COMPLETED_CHILDREN, job=job_id, parents=list(parents)):
        children.setdefault(parent, []).append(name)
    return children
