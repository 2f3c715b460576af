"""What those outside see of a job: the request they made, and nothing of how it is done.

They know neither jobs nor nodes nor tasks nor workers. The names of nodes stand in one place only, as the
keys of a result: there they are what the workflow promises to deliver.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cograil.model.workflow import Json

PROVENANCE = "_provenance"
CANCELLED = "cancelled"
A_STEP, A_WORKER = "a step", "a worker"
# An id of a job, or one of a task, which has that of its job in it.
_ID = re.compile(r"(?:\b\d{1,19}\.)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Hidden:
    """What is ours: the ids of the job, of those inside it, and of their tasks; the names of their nodes."""

    job_id: str
    request_id: str
    inner_jobs: Collection[str] = ()
    task_ids: Collection[str] = ()
    nodes: Collection[str] = ()


def outside_status(status: str) -> str:
    """pending, running, completed or failed."""
    return "failed" if status == CANCELLED else status


def outside_result(result: Json, hidden: Hidden) -> Json:
    """The outputs, without where they came from and without ids of ours that a handler put into them.

    A node that is a job of its own says in its output which one; at every depth that is told by where its
    result came from.
    """
    inner = [*hidden.inner_jobs, *_jobs_in(result)]
    return _Eraser(replace(hidden, inner_jobs=inner)).cleared(result)


def outside_error(status: str, error: Json, hidden: Hidden) -> str | None:
    """One sentence; a node that it names becomes "a step", a worker "a worker"."""
    if status == CANCELLED:
        return CANCELLED
    if not isinstance(error, Mapping):
        return None
    told = str(error.get("message") or error.get("code") or "failed")
    told = told.replace("child job ", "job ")  # whose id becomes that of the request
    # What the error knows of itself counts too: the rows of a job inside may be gone before this one.
    reasons = list(_reasons(error))
    told = _without(told, _said(reasons, "worker"), A_WORKER, before="(?:worker )?")
    told = _without(told, {*hidden.nodes, *_named(reasons)}, A_STEP, after=r"(?:__\d+)?")
    inner = [*hidden.inner_jobs, *_said(reasons, "job_id")]
    return _Eraser(replace(hidden, inner_jobs=inner)).text(told)


def _reasons(error: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    """An error, what it says in detail, and the errors from which it came."""
    yield error
    for name in ("details", "error", "first"):
        if isinstance(inner := error.get(name), Mapping):
            yield from _reasons(inner)


def _said(reasons: Iterable[Mapping[str, Json]], name: str) -> list[str]:
    return [said for one in reasons if isinstance(said := one.get(name), str) and said]


def _named(reasons: Iterable[Mapping[str, Json]]) -> Iterator[str]:
    """The nodes that these say have failed."""
    for one in reasons:
        named = [one.get("node_id"), *(one.get("failed_nodes") or ()), *(one.get("children") or ())]
        yield from (name for name in named if isinstance(name, str) and name)


def _without(text: str, names: Collection[str], instead: str, before: str = "", after: str = "") -> str:
    """The text with another word for each of these names."""
    return _words(names, before, after).sub(instead, text) if names else text


def _words(names: Iterable[str], before: str = "", after: str = "") -> re.Pattern[str]:
    """These words, and none that only begins or ends like one. Longer ones first, so none is cut in two."""
    one = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![\w-]){before}(?:{one}){after}(?![\w-])")


def _jobs_in(result: Json) -> Iterator[str]:
    if isinstance(result, dict):
        if isinstance(origin := result.get(PROVENANCE), dict):
            yield str(origin.get("job_id") or "")
        for value in result.values():
            yield from _jobs_in(value)
    elif isinstance(result, list):
        for value in result:
            yield from _jobs_in(value)


class _Eraser:
    """Takes out of a value what is ours. Children of a fan-out have a number after the name of their node."""

    def __init__(self, hidden: Hidden) -> None:
        self._hidden = hidden
        self._job_ids = frozenset({hidden.job_id, *hidden.inner_jobs})
        self._task_ids, self._nodes = frozenset(hidden.task_ids), frozenset(hidden.nodes)
        self._children = _words(hidden.nodes, after=r"__\d+") if hidden.nodes else None

    def cleared(self, value: Any) -> Any:
        """The value without it, at every depth."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._cleared_object(value)
        return [self.cleared(item) for item in value] if isinstance(value, list) else value

    def _cleared_object(self, value: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, item in value.items():
            if not self._is_ours(key, item):
                name = self._jobless(key)
                made[name if name not in made else f"{name} ({len(made)})"] = self.cleared(item)
        return made

    def text(self, text: str) -> str:
        """The id of the request for that of a job, and "a step" for a child of a fan-out."""
        text = self._jobless(text)
        return self._children.sub(A_STEP, text) if self._children and "__" in text else text

    def _jobless(self, text: str) -> str:
        return _ID.sub(self._outside_id, text) if len(text) >= 36 else text

    def _outside_id(self, found: re.Match[str]) -> str:
        return self._hidden.request_id if found[1].lower() in self._job_ids else found[0]

    def _is_ours(self, key: str, value: Any) -> bool:
        """Whether this says nothing but how it was done."""
        match key:
            case "task_id":
                number, _, job_id = str(value).partition(".")
                return number in self._task_ids if not job_id else job_id in self._job_ids
            case "job_id":
                return isinstance(value, str) and value in self._job_ids
            case "node_id":
                return isinstance(value, str) and (value in self._nodes or self._is_child(value))
            case "child_node_ids":
                return isinstance(value, list) and all(map(self._is_child, value))
        return key == PROVENANCE

    def _is_child(self, value: Any) -> bool:
        return isinstance(value, str) and self._children is not None and bool(self._children.fullmatch(value))
