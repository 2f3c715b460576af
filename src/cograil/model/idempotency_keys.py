"""Idempotency keys of nodes: a root and the node's name. The root outlives the job when it is retried.

A job that was never retried is its own root. Of a retry, and of the job of a subworkflow node, the roots are
kept with the job as JSON: `{"roots": [...], "of": {node: place}}`. A node that is not named has the first
root; the children of a fan-out may be named together, as `split__*`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

ALL_CHILDREN = "__*"


@dataclass(slots=True)
class KeyRoots:
    """The roots of one job and which node has which."""

    roots: list[str]
    of: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, text: bytes | None, job_id: str) -> KeyRoots:
        """Those of a job, from what is kept with it."""
        if text is None:
            return cls([job_id])
        kept = orjson.loads(text)
        return cls(kept["roots"], kept.get("of", {}))

    def write(self) -> bytes:
        """As they are kept with the job."""
        return orjson.dumps({"roots": self.roots, "of": self.of})

    def place_of(self, node_id: str, parent: str | None = None) -> int:
        """Which of the roots a node has."""
        if node_id in self.of:
            return self.of[node_id]
        return 0 if parent is None else self.of.get(parent + ALL_CHILDREN, 0)

    def root_of(self, node_id: str, parent: str | None = None) -> str:
        """The root of a node; its fan-out is its parent."""
        return self.roots[self.place_of(node_id, parent)]

    def renew(self, root: str, nodes: Iterable[str]) -> None:
        """Give these nodes another root."""
        place = self._place(root)
        self.of.update(dict.fromkeys(nodes, place))

    def renew_children(self, root: str, parent: str, total: int, completed: Iterable[str]) -> None:
        """Give these children of a fan-out another root; whichever are fewer are named one by one."""
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
    """The root of a node's key, None if that is its own job: so it is for most, and costs nothing."""
    if text is None:
        return None
    root = KeyRoots.read(text, job_id).root_of(node_id, parent)
    return None if root == job_id else root


def child_roots(text: bytes | None, job_id: str, node_id: str) -> bytes:
    """The roots of the job that a subworkflow node begins: the key of the node, in each of its attempts."""
    return KeyRoots([f"{key_root(text, job_id, node_id) or job_id}/{node_id}"]).write()
