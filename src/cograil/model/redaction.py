"""Redaction of jobs for callers of the gateway: they see their request, and not how it is processed.

These callers know neither jobs nor nodes nor tasks nor workers. Names of nodes remain in one place only, as
the keys of a result, because there the workflow defines them as its output.
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
# The id of a job, or of a task, which contains that of its job.
_ID = re.compile(r"(?:\b\d{1,19}\.)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Hidden:
    """What redaction removes: the ids of the job, of related jobs, and of their tasks; the names of their
    nodes.
    """

    job_id: str
    request_id: str
    inner_jobs: Collection[str] = ()
    task_ids: Collection[str] = ()
    nodes: Collection[str] = ()


def outside_status(status: str) -> str:
    """Return pending, running, completed or failed."""
    return "failed" if status == CANCELLED else status


def outside_result(result: Json, hidden: Hidden) -> Json:
    """Return the outputs without their provenance and without internal ids that a handler put into them.

    The output of a subworkflow node names its child job; the provenance of the result identifies such nodes
    at every depth.
    """
    inner = [*hidden.inner_jobs, *_jobs_in(result)]
    return _Eraser(replace(hidden, inner_jobs=inner)).cleared(result)


def outside_error(status: str, error: Json, hidden: Hidden) -> str | None:
    """Return one sentence in which a node's name becomes "a step" and a worker's name "a worker"."""
    if status == CANCELLED:
        return CANCELLED
    if not isinstance(error, Mapping):
        return None
    message = str(error.get("message") or error.get("code") or "failed")
    message = message.replace("child job ", "job ")  # its id becomes that of the request
    # The names in the error itself count too: the rows of a child job may be deleted before this one.
    reasons = list(_reasons(error))
    message = _without(message, _said(reasons, "worker"), A_WORKER, before="(?:worker )?")
    message = _without(message, {*hidden.nodes, *_named(reasons)}, A_STEP, after=r"(?:__\d+)?")
    inner = [*hidden.inner_jobs, *_said(reasons, "job_id")]
    return _Eraser(replace(hidden, inner_jobs=inner)).text(message)


def _reasons(error: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    """Yield an error, its details, and the errors that caused it."""
    yield error
    for name in ("details", "error", "first"):
        if isinstance(inner := error.get(name), Mapping):
            yield from _reasons(inner)


def _said(reasons: Iterable[Mapping[str, Json]], name: str) -> list[str]:
    return [value for reason in reasons if isinstance(value := reason.get(name), str) and value]


def _named(reasons: Iterable[Mapping[str, Json]]) -> Iterator[str]:
    """Yield the nodes that failed according to these."""
    for reason in reasons:
        named = [reason.get("node_id"), *(reason.get("failed_nodes") or ()), *(reason.get("children") or ())]
        yield from (name for name in named if isinstance(name, str) and name)


def _without(text: str, names: Collection[str], instead: str, before: str = "", after: str = "") -> str:
    """Return the text with each of these names replaced."""
    return _words(names, before, after).sub(instead, text) if names else text


def _words(names: Iterable[str], before: str = "", after: str = "") -> re.Pattern[str]:
    """Return a pattern for these whole words. Longer ones come first, so that none is split."""
    alternatives = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![\w-]){before}(?:{alternatives}){after}(?![\w-])")


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
    """Removes internal ids and names from a value. Children of a fan-out have a number after the name of
    their node.
    """

    def __init__(self, hidden: Hidden) -> None:
        self._hidden = hidden
        self._job_ids = frozenset({hidden.job_id, *hidden.inner_jobs})
        self._task_ids, self._nodes = frozenset(hidden.task_ids), frozenset(hidden.nodes)
        self._children = _words(hidden.nodes, after=r"__\d+") if hidden.nodes else None

    def cleared(self, value: Any) -> Any:
        """Return the value without them, at every depth."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._cleared_object(value)
        return [self.cleared(item) for item in value] if isinstance(value, list) else value

    def _cleared_object(self, value: dict[str, Any]) -> dict[str, Any]:
        cleaned: dict[str, Any] = {}
        for key, item in value.items():
            if not self._is_ours(key, item):
                name = self._jobless(key)
                cleaned[name if name not in cleaned else f"{name} ({len(cleaned)})"] = self.cleared(item)
        return cleaned

    def text(self, text: str) -> str:
        """Return the text with the request's id in place of a job's id, and "a step" in place of a child of
        a fan-out.
        """
        text = self._jobless(text)
        return self._children.sub(A_STEP, text) if self._children and "__" in text else text

    def _jobless(self, text: str) -> str:
        return _ID.sub(self._outside_id, text) if len(text) >= 36 else text

    def _outside_id(self, match: re.Match[str]) -> str:
        return self._hidden.request_id if match[1].lower() in self._job_ids else match[0]

    def _is_ours(self, key: str, value: Any) -> bool:
        """Return whether this entry only describes the processing."""
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
