"""Idempotency keys of nodes: a root and the node's name. A retried job passes its root on.

A job that is not a retry is its own root. The roots of a retry, and of the job of a subworkflow node, are
stored with the job as JSON: `{"roots": [...], "of": {node: index}}`. Other nodes have the first root; the
children of a fan-out may be listed together, as `split__*`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

ALL_CHILDREN = "__*"


@dataclass(slots=True)
class KeyRoots:
    """The roots of one job, and the root of each node."""

    roots: list[str]
    of: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, text: bytes | None, job_id: str) -> KeyRoots:
        """Parse the stored roots of a job."""
        if text is None:
            return cls([job_id])
        kept = orjson.loads(text)
        return cls(kept["roots"], kept.get("of", {}))

    def write(self) -> bytes:
        """Return the stored form."""
        return orjson.dumps({"roots": self.roots, "of": self.of})

    def place_of(self, node_id: str, parent: str | None = None) -> int:
        """Return the index of a node's root."""
        if node_id in self.of:
            return self.of[node_id]
        return 0 if parent is None else self.of.get(parent + ALL_CHILDREN, 0)

    def root_of(self, node_id: str, parent: str | None = None) -> str:
        """Return the root of a node; the parent of a child is its fan-out."""
        return self.roots[self.place_of(node_id, parent)]

    def renew(self, root: str, nodes: Iterable[str]) -> None:
        """Give these nodes another root."""
        place = self._place(root)
        self.of.update(dict.fromkeys(nodes, place))

    def renew_children(self, root: str, parent: str, total: int, completed: Iterable[str]) -> None:
        """Give these children of a fan-out another root; the smaller group is listed one by one."""
        chosen = set(completed)
        others = [name for name in (f"{parent}__{index}" for index in range(total)) if name not in chosen]
        if len(others) >= len(chosen):
            self.renew(root, chosen)
            return
        kept = {name: self.place_of(name, parent) for name in others}
        for name in chosen:
            self.of.pop(name, None)
        self.of |= kept
        self.of[parent + ALL_CHILDREN] = self._place(root)

    def _place(self, root: str) -> int:
        if root not in self.roots:
            self.roots.append(root)
        return self.roots.index(root)


def key_root(text: bytes | None, job_id: str, node_id: str, parent: str | None = None) -> str | None:
    """Return the root of a node's key; None if that is its own job, which is the common and cheapest case."""
    if text is None:
        return None
    root = KeyRoots.read(text, job_id).root_of(node_id, parent)
    return None if root == job_id else root


def child_roots(text: bytes | None, job_id: str, node_id: str) -> bytes:
    """Return the roots of the child job of a subworkflow node: the key of the node, in each of its
    attempts.
    """
    return KeyRoots([f"{key_root(text, job_id, node_id) or job_id}/{node_id}"]).write()
