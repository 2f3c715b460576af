"""What should become of a job: the rules of the language read once more, by somebody else.

This model never sees an edge, a board or an event. It reads the *document* of a workflow (what a user
writes) and the fates of its handlers, and answers how everything ends. It has no time and no order: if
the engine agrees with it whatever the order of the news, then order does not matter.

    Fates: node or child -> what each attempt comes to: ok, error, fatal, lost, released or timeout; then ok
    for ever.
    Of a conditional its choice is in the inputs (`inputs.<id>` is the name of the branch), and of a
    fan-out its list (`inputs.<id>`, a list or something that is none). The fate of an approval is one of
    approve, reject, silence; of a subworkflow, what each of its jobs comes to: ok, failed, cancelled; or
    it is refused. Whether a node with `when` is wanted is `inputs.when_<id>`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Json = Any
Fates = dict[str, list[str]]

POISON = 3  # workers a node may kill


@dataclass
class Prediction:
    """How a job ends: `attempts` has every node and child that a worker was given."""

    status: str
    nodes: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    gathered: dict[str, list[int]] = field(default_factory=dict)  # fan-in -> indexes of the children in it
    failures: set[str] = field(default_factory=set)  # what failed and was required, children included
    jobs: dict[str, int] = field(default_factory=dict)  # subworkflow -> how many jobs were made for it
    bad: dict[str, int] = field(default_factory=dict)  # how many attempts, or jobs, did not end well
    alone: set[tuple[str, int]] = field(default_factory=set)  # attempts that had a worker for themselves


class Model:
    """The end of everything, by asking each node what became of those before it."""

    def __init__(self, document: Json, inputs: Json, fates: Fates) -> None:
        self.nodes: dict[str, Json] = document["nodes"]
        self.inputs = inputs
        self.fates = fates
        self.attempts: dict[str, int] = {}
        self.gathered: dict[str, list[int]] = {}
        self.jobs: dict[str, int] = {}
        self.bad: Counter[str] = Counter()
        self.alone: set[tuple[str, int]] = set()
        self._ends: dict[str, str] = {}

    def predict(self) -> Prediction:
        ends = {name: self.end(name) for name in self.nodes}
        failures = {name for name, end in self._ends.items() if end == "failed" and self.is_required(name)}
        shown = {name: "skipped" if end in ("unwanted", "given up") else end for name, end in ends.items()}
        status = "failed" if failures else "completed"
        return Prediction(
            status, shown, self.attempts, self.gathered, failures, self.jobs, dict(self.bad), self.alone
        )

    # -- one node ------------------------------------------------------------------------------------

    def end(self, name: str) -> str:
        """completed, failed, unwanted (only an untaken branch leads here) or given up (needs a failure)."""
        if name not in self._ends:
            self._ends[name] = self._why_not(name) or self._unless_unwanted(name)
        return self._ends[name]

    def _unless_unwanted(self, name: str) -> str:
        wanted = self.inputs.get(f"when_{name}") if "when" in self.nodes[name] else True
        return ("unwanted" if wanted is False else "failed") if wanted is not True else self._run(name)

    def is_required(self, name: str) -> bool:
        """Whether the node is, or the fan-out that a child belongs to."""
        node = self.nodes.get(name) or self.nodes[name.rsplit("__", 1)[0]]
        return bool(node.get("required", True))

    def _why_not(self, name: str) -> str | None:
        """Why the node does not run; None when it does."""
        if self.nodes[name].get("type") == "end":
            return None
        gates, alternatives, needs = self.dependencies(name)
        if any(self.says(source, name) == "no" for source in gates):
            return "unwanted"
        answers = {self.says(source, name) for source in alternatives}
        if alternatives and "yes" not in answers:
            return "given up" if "broken" in answers else "unwanted"
        answers = {self.says(source, name) for source in [*gates, *needs]}
        if "broken" in answers:
            return "given up"
        return "unwanted" if answers == {"no"} and not alternatives else None

    def dependencies(self, name: str) -> tuple[list[str], list[str], list[str]]:
        """Gates, any_of and all_of, from the pointers as they are written."""
        before = [source for source in self.nodes if name in self.pointers[source]]
        written = self.nodes[name].get("depends_on")
        if written is None:
            return [], [], before
        alternatives, needs = written.get("any_of", []), written.get("all_of", [])
        choosers = [source for source in before if self.nodes[source].get("type") == "conditional"]
        return [s for s in choosers if s not in (*alternatives, *needs)], alternatives, needs

    @cached_property
    def pointers(self) -> dict[str, set[str]]:
        """Where every node leads to, by any branch."""
        return {name: {t for _, t in self.ways(name)} for name in self.nodes}

    def ways(self, name: str) -> list[tuple[str | None, str]]:
        """(branch, target) for all that the node leads to."""
        node = self.nodes[name]
        if node.get("type") == "conditional":
            return [(branch["name"], target) for branch in node["branches"] for target in branch["next"]]
        return [(None, target) for target in node.get("next", [])]

    def says(self, source: str, target: str) -> str:
        """What a node that ended says to one behind it: yes, no, or broken."""
        end = self.end(source)
        by = {branch for branch, way in self.ways(source) if way == target and branch is not None}
        if end == "completed":
            if by and self.choice(source) not in by:
                return "no"
            is_fan_in = self.nodes[target].get("type") == "fan_in"
            hurts = self.failed_children(source) and self.is_required(source) and not is_fan_in
            return "broken" if hurts else "yes"
        if end == "failed":
            return "broken" if self.is_required(source) else ("no" if by else "yes")
        return "broken" if end == "given up" else "no"

    def choice(self, name: str) -> str:
        branches = self.nodes[name]["branches"]
        wanted = self.inputs[name]
        return next((b["name"] for b in branches if b["name"] == wanted and not b.get("default")), "rest")

    # -- running it ----------------------------------------------------------------------------------

    def _run(self, name: str) -> str:
        node = self.nodes[name]
        match node.get("type", "task"):
            case "task":
                return self._run_task(name)
            case "conditional":
                return "completed" if name in self.inputs else "failed"
            case "fan_out":
                return self._run_fan_out(name)
            case "fan_in":
                return self._run_fan_in(name)
            case "approval":
                is_silent = self.fates[name] == ["silence"]
                return "failed" if is_silent and node["approval"]["on_timeout"] == "fail" else "completed"
            case "subworkflow":
                return self._run_jobs(name)
        return "completed"

    def _run_jobs(self, name: str) -> str:
        """Jobs until one is done, or no other is allowed; a cancelled one is not tried again."""
        if self.fates[name] == ["refused"]:
            return "failed"
        most = self.nodes[name]["retry"]["max_attempts"]
        for number, fate in enumerate([*self.fates[name], *["ok"] * most], 1):
            self.jobs[name] = number
            if fate == "ok":
                return "completed"
            self.bad[name] += 1
            if fate == "cancelled" or number == most:
                return "failed"
        raise AssertionError("there is always an end")

    def _run_task(self, name: str) -> str:
        reads = re.search(r"nodes\.(\w+)\.output", str(self.nodes[name].get("params")))
        if reads is not None and self.end(reads[1]) != "completed":
            return "failed"
        return self._work(name, self.nodes[name]["retry"])

    def _work(self, name: str, retry: Json) -> str:
        """Attempts until one is done, or no other is allowed."""
        lost = free = 0
        fates = [*self.fates.get(name, []), *["ok"] * 10]
        for number, fate in enumerate(fates, 1):
            self.attempts[name] = number
            if lost == POISON - 1:
                self.alone.add((name, number))
            lost += fate == "lost"
            if fate == "ok":
                return "completed"
            if fate == "released":
                free += 1
                continue
            self.bad[name] += 1
            may_retry = fate == "lost" or self._retries(fate, retry.get("retry_on"))
            if not may_retry or number - free >= retry["max_attempts"] or lost == POISON:
                return "failed"
        raise AssertionError("there is always an end")

    @staticmethod
    def _retries(fate: str, retry_on: list[str] | None) -> bool:
        return fate != "fatal" if retry_on is None else fate in retry_on

    def _run_fan_out(self, name: str) -> str:
        items = self.inputs[name]
        if not isinstance(items, list):
            return "failed"
        for index, item in enumerate(items):
            child = f"{name}__{index}"
            can_render = "v" in item  # what the params of every child ask for
            self._ends[child] = self._work(child, self.nodes[name]["retry"]) if can_render else "failed"
        return "completed"

    def children(self, name: str) -> list[str]:
        """How each child of a fan-out ended; none of anything else."""
        if self.nodes[name].get("type") != "fan_out" or self.end(name) != "completed":
            return []
        return [self._ends[f"{name}__{index}"] for index in range(len(self.inputs[name]))]

    def failed_children(self, name: str) -> int:
        return self.children(name).count("failed")

    def _run_fan_in(self, name: str) -> str:
        gates, alternatives, needs = self.dependencies(name)
        sources = [*needs, *gates, *alternatives]
        if any(self.failed_children(source) and self.is_required(source) for source in sources):
            return "failed"
        lists = [self.children(source) for source in sources]
        self.gathered[name] = [i for ends in lists for i, end in enumerate(ends) if end == "completed"]
        return "completed"
