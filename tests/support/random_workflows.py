"""Random workflows with the fates of their handlers, and somebody who drives a job through them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import strategies as st
from tests.support.engine_model import Fates, Model
from tests.support.memory_job import Job

from cograil.model.job import Bounds, Input, Signalled, Started
from cograil.model.states import JOB_TERMINAL, NODE_TERMINAL

Json = Any
FATES = ["error", "fatal", "lost", "released", "timeout", "ok"]
SMALL = Bounds(chunk=2)  # so that fan-outs of three need two passes


@dataclass
class Case:
    """A workflow as a user writes it, what the job is given, and what its handlers will do."""

    document: Json
    inputs: dict[str, Json] = field(default_factory=dict)
    fates: Fates = field(default_factory=dict)


# -- making cases -----------------------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any workflow of up to seven nodes; node i only depends on those before it."""
    case = Case({"workflow_id": "w", "nodes": {}})
    for number in range(draw(st.integers(1, 7))):
        _add_node(draw, case, f"n{number}")
    for node in case.document["nodes"].values():
        for branch in node.get("branches", ()):
            branch["next"] = branch["next"] or ["END"]
    return case


def _add_node(draw: st.DrawFn, case: Case, name: str) -> None:
    nodes = case.document["nodes"]
    fan_outs = [node_id for node_id, node in nodes.items() if node.get("type") == "fan_out"]
    usual = ["task", "task", "task", "conditional", "fan_out", "wait", "approval", "subworkflow", "end"]
    kind = draw(st.sampled_from([*usual, *["fan_in"] * 3] if fan_outs else usual))
    node = _MAKERS[kind](draw, case, name)
    others = [node_id for node_id, other in nodes.items() if other.get("type") != "end"]
    sources: list[str] = draw(st.lists(st.sampled_from(others), max_size=3, unique=True)) if others else []
    if kind == "fan_in" and not set(sources) & set(fan_outs):
        sources.append(draw(st.sampled_from(fan_outs)))
    nodes[name] = node
    if draw(st.integers(0, 4)) == 0:
        node["required"] = False
    if kind != "end" and draw(st.integers(0, 4)) == 0:
        node["when"] = f"inputs.when_{name}"
        wanted: bool | None = draw(st.sampled_from([True, True, False, None]))
        case.inputs |= {} if wanted is None else {f"when_{name}": wanted}
    if bool(sources) and draw(st.booleans()):
        _depend(draw, node, sources, may_choose=kind != "fan_in")
        sources = [
            node_id
            for node_id in others
            if nodes[node_id].get("type") == "conditional" and draw(st.booleans())
        ]
    for source in sources:
        _point(draw, nodes[source], name)
    if kind == "task":
        _read(draw, nodes, name)


def _depend(draw: st.DrawFn, node: Json, sources: list[str], *, may_choose: bool) -> None:
    any_of = [source for source in sources if may_choose and draw(st.booleans())]
    parts = {"any_of": any_of, "all_of": [source for source in sources if source not in any_of]}
    node["depends_on"] = {key: names for key, names in parts.items() if names}


def _point(draw: st.DrawFn, source: Json, name: str) -> None:
    if source.get("type") != "conditional":
        source.setdefault("next", []).append(name)
        return
    for branch in draw(st.lists(st.sampled_from(source["branches"]), min_size=1, unique_by=id)):
        branch["next"].append(name)


def _read(draw: st.DrawFn, nodes: Json, name: str) -> None:
    """Let a task read the output of one that has ended before it in any case."""
    _, _, needs = Model({"nodes": nodes}, {}, {}).dependencies(name)
    tasks = [node_id for node_id in needs if nodes[node_id].get("type", "task") == "task"]
    if bool(tasks) and draw(st.booleans()):
        nodes[name]["params"] = {"x": f"{{{{ nodes.{draw(st.sampled_from(tasks))}.output.v }}}}"}


def _make_task(draw: st.DrawFn, case: Case, name: str) -> Json:
    case.fates[name] = draw(st.lists(st.sampled_from(FATES), max_size=4))
    return {"handler": "h", "retry": _make_retry(draw)}


def _make_retry(draw: st.DrawFn) -> Json:
    retry: Json = {
        "max_attempts": draw(st.integers(1, 4)),
        "backoff": draw(st.sampled_from(["fixed", "linear", "exponential"])),
        "initial_delay_seconds": draw(st.sampled_from([0, 1, 2.5])),
        "jitter": draw(st.sampled_from([0, 0.5])),
    }
    if draw(st.integers(0, 3)) == 0:
        retry["retry_on"] = draw(
            st.lists(st.sampled_from(["error", "fatal", "timeout"]), unique=True, min_size=1)
        )
    return retry


def _make_conditional(draw: st.DrawFn, case: Case, name: str) -> Json:
    names = ["a", "b"][: draw(st.integers(1, 2))]
    choice = draw(st.sampled_from([*names, "rest", "nothing like it", None]))
    if choice is not None:
        case.inputs[name] = choice
    tests = [{"name": branch, "condition": f"inputs.{name} == '{branch}'", "next": []} for branch in names]
    return {"type": "conditional", "branches": [*tests, {"name": "rest", "default": True, "next": []}]}


def _make_fan_out(draw: st.DrawFn, case: Case, name: str) -> Json:
    items = draw(
        st.one_of(st.just("no list"), st.lists(st.sampled_from([{"v": 1}, {"v": 2}, {}]), max_size=4))
    )
    case.inputs[name] = items
    for index in range(len(items) if isinstance(items, list) else 0):
        case.fates[f"{name}__{index}"] = draw(st.lists(st.sampled_from(FATES), max_size=3))
    task = {"handler": "h", "params": {"v": "{{ item.v }}"}}
    return {"type": "fan_out", "source": f"{{{{ inputs.{name} }}}}", "task": task, "retry": _make_retry(draw)}


def _make_approval(draw: st.DrawFn, case: Case, name: str) -> Json:
    case.fates[name] = [draw(st.sampled_from(["approve", "reject", "silence"]))]
    approval = {"message": "m", "on_timeout": draw(st.sampled_from(["reject", "fail"])), "timeout_seconds": 5}
    if case.fates[name] != ["silence"]:
        approval = {"message": "m"}
    return {"type": "approval", "approval": approval}


def _make_subworkflow(draw: st.DrawFn, case: Case, name: str) -> Json:
    fates = st.lists(st.sampled_from(["failed", "cancelled", "ok"]), max_size=3)
    case.fates[name] = draw(st.one_of(st.just(["refused"]), fates, fates))
    inner = {"workflow_id": f"child_of_{name}", "inputs": {}}
    return {"type": "subworkflow", "subworkflow": inner, "retry": _make_plain_retry(draw)}


def _make_plain_retry(draw: st.DrawFn) -> Json:
    return {"max_attempts": draw(st.integers(1, 3)), "initial_delay_seconds": draw(st.sampled_from([0, 2]))}


_MAKERS: dict[str, Callable[[st.DrawFn, Case, str], Json]] = {
    "task": _make_task,
    "conditional": _make_conditional,
    "fan_out": _make_fan_out,
    "fan_in": lambda draw, case, name: {"type": "fan_in"},
    "wait": lambda draw, case, name: {"type": "wait", "wait": {"seconds": draw(st.sampled_from([0, 3]))}},
    "approval": _make_approval,
    "subworkflow": _make_subworkflow,
    "end": lambda draw, case, name: {"type": "end"},
}


# -- driving them -----------------------------------------------------------------------------------


class Driver:
    """Ends attempts in any order and any batches, and lets time pass, until the job is over."""

    def __init__(self, case: Case, random: Random) -> None:
        self.case = case
        self.random = random
        self.model = Model(case.document, case.inputs, case.fates)
        refused = {f"child_of_{name}" for name, fates in case.fates.items() if fates == ["refused"]}
        self.job = Job(case.document, case.inputs, bounds=SMALL, random=random.random, refuses=refused)
        self.told: list[Input] = []
        self.seen = 0
        self.check()

    def run(self) -> Job:
        """To the end; a job that nothing can move any more has failed the test."""
        while self.job.status not in JOB_TERMINAL:
            self.step()
        return self.job

    def step(self) -> None:
        """Let something happen: some attempts end, or the time comes that the job waits for."""
        job, random = self.job, self.random
        wait = job.wakes_in()
        waiting = self.waiting()
        has_other = job.tasks or job.to_expand or wait is not None
        if waiting and (not has_other or random.random() < 0.5):
            job.advance(self.answer_of(random.choice(waiting)))
        elif job.tasks and (wait is None or random.random() < 0.8):
            names = random.sample(sorted(job.tasks), random.randint(1, len(job.tasks)))
            job.advance(*[news for name in names for news in self.news_of(name)])
        elif job.to_expand:
            job.advance()
        else:
            assert wait is not None, f"nothing can move this job any more: {job.statuses}"
            job.sleep(max(wait, 0))
        self.check()

    def waiting(self) -> list[str]:
        """The nodes that wait for a person who will answer, or for a job."""
        rows, fates = self.job.rows.nodes.items(), self.case.fates
        return [
            name
            for name, row in rows
            if row.status == "waiting" and name in fates and fates[name] != ["silence"]
        ]

    def answer_of(self, name: str) -> Input:
        """What becomes of this approval, or of the job that this node waits for."""
        if name not in self.job.children:
            return Signalled(self.case.fates[name][0], name, "ann")
        fates, attempt = self.case.fates[name], self.job.row(name).attempt
        fate = fates[attempt - 1] if attempt <= len(fates) else "ok"
        news = self.job.child_ended(name, "completed" if fate == "ok" else fate)
        self.told.append(news)
        return news

    def news_of(self, name: str) -> list[Input]:
        """What becomes of this attempt, by the fates of its node."""
        job, attempt = self.job, self.job.tasks[name].attempt
        fates = self.case.fates.get(name, [])
        fate = fates[attempt - 1] if attempt <= len(fates) else "ok"
        started = [Started(name, attempt, 7, "w", job.now)] if self.random.random() < 0.3 else []
        match fate:
            case "ok":
                ended: Input = job.completed(name, {"v": int(name.rsplit("__", 1)[-1].strip("n"))})
            case "lost":
                ended = job.lost(name)
            case "released":
                ended = job.lost(name, "released")
            case "timeout" if self.random.random() < 0.5:
                ended = job.lost(name, "timeout")
            case _:
                ended = job.failed(name, fate, retryable=fate != "fatal")
        self.told.append(ended)
        return [*started, ended]

    def check(self) -> None:
        """What was handed out since the last look was due, and nothing succeeded is out again."""
        for name, attempt in self.job.dispatched[self.seen :]:
            assert attempt == 1 + self.job.dispatched[: self.seen].count((name, attempt - 1)) * (attempt - 1)
            self.check_due(name.rsplit("__", 1)[0])
            self.seen += 1
        for name in self.job.tasks:
            assert self.job[name] == "dispatched"

    def check_due(self, name: str) -> None:
        gates, alternatives, needs = self.model.dependencies(name)
        for source in (*gates, *needs):
            assert self.job[source] in NODE_TERMINAL, f"{name} was handed out before {source} ended"
        assert not alternatives or any(self.job[source] in ("completed", "failed") for source in alternatives)
