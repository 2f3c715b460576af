"""A job and its nodes, described for people."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from cograil.intake.cli.outcome import result_of
from cograil.intake.cli.output import error_line, out, plain, show_result, show_value, state, table
from cograil.intake.cli.words import SKIPPED, WAITING_FOR, ago, duration, moment, printable, took
from cograil.model.job import shown_node_status
from cograil.model.workflow import Workflow
from cograil.store.reading import Traceback, shown_status

View = dict[str, Any]
SHOWN_FAILURES = 10


def show_job(job: View, workflow: Workflow, nodes: list[View], failures: list[View]) -> None:
    """The job's own facts, a line for each node, and its result."""
    for name, value in _facts(job):
        out().print(Text.assemble((f"{name:16}", "bold"), value), soft_wrap=True)
    out().print()
    rows = table("node", "status", "attempt", "took", "", right=("attempt", "took"))
    for node in nodes:
        if node["type"] not in ("start", "end"):
            rows.add_row(
                plain(node["node_id"]),
                state(node["status"]),
                str(node["attempt"] or ""),
                took(node["started_at"], node["completed_at"]),
                plain(_remark(node), style="dim"),
            )
    out().print(rows)
    _show_failed_children(nodes, failures)
    if job["status"] == "completed":
        out().print()
        show_result(job["job_id"], result_of(job, workflow), is_cut=True)


def job_state(job: View) -> Text:
    """The state of a job as people see it, and what it waits for."""
    shown = state(shown_status(job))
    return (
        shown
        if job["waiting_for"] is None
        else Text.assemble(shown, f" for {WAITING_FOR[job['waiting_for']]}")
    )


def _facts(job: View) -> list[tuple[str, str | Text]]:
    facts: list[tuple[str, str | Text]] = [
        ("job", job["job_id"]),
        ("workflow", printable(f"{job['workflow_id']} version {job['workflow_version']}")),
        ("status", job_state(job)),
        ("created", f"{moment(job['created_at'])}, {ago(job['created_at'])}"),
    ]
    if job["started_at"]:
        facts.append(("took", took(job["started_at"], job["completed_at"])))
    for name in ("not_before", "deadline"):
        if job[name]:
            facts.append((name.replace("_", " "), moment(job[name])))
    if job["owner_id"] and not job["completed_at"]:
        heard_at = job.get("owner_heartbeat_at")
        heartbeat = f", heartbeat {ago(heard_at)}" if heard_at else ""
        facts.append(("orchestrator", printable(f"{job['owner_id']}{heartbeat}")))
    for name in ("submitted_by", "correlation_id", "retry_of"):
        if job[name]:
            facts.append((name.replace("_", " "), printable(job[name])))
    if job["labels"]:
        facts.append(
            ("labels", printable(", ".join(f"{key}={value}" for key, value in job["labels"].items())))
        )
    if job["error"]:
        facts.append(("error", Text(error_line(job["error"]), style="red")))
    return facts


def _remark(node: View) -> str:
    if node["error"] and node["status"] in ("failed", "ready"):
        return error_line(node["error"])
    children, progress = node["children"], node["progress"]
    if children:
        failed = f", {children['failed']} failed" if children["failed"] else ""
        return f"{children['ended']} of {children['total']} children ended{failed}"
    if progress and node["status"] == "running":
        return _progress(progress)
    if node["skip_reason"]:
        return SKIPPED[node["skip_reason"]]
    if node["child_job"]:
        return f"job {node['child_job']['job_id']}, {node['child_job']['status']}"
    if node["not_before"] and node["status"] == "waiting":
        return f"until {moment(node['not_before'])}"
    return f"on {node['worker']}" if node["worker"] else ""


def _progress(progress: View) -> str:
    current, total = progress["current"], progress["total"]
    count = "" if current is None else f"{current:g}/{total:g}" if total else f"{current:g}"
    return f"{count} {progress['message'] or ''}".strip()


def _show_failed_children(nodes: list[View], failures: list[View]) -> None:
    known = {node["node_id"] for node in nodes}
    children = [one for one in failures if one["node_id"] not in known]
    for child in children[:SHOWN_FAILURES]:
        line = f"  {child['node_id']} failed after {child['attempt']} attempts: {error_line(child['error'])}"
        out().print(Text(printable(line), style="red"), soft_wrap=True)
    if len(children) > SHOWN_FAILURES:
        out().print(Text(f"  and {len(children) - SHOWN_FAILURES} more", style="red"))


def show_node(node: View, job_id: str, traceback: Traceback | None) -> None:
    """All there is about one node, and where its last failed attempt broke."""
    facts = [
        ("node", printable(node["node_id"])),
        ("type", node["type"]),
        ("status", shown_node_status(node["status"])),
    ]
    facts += [
        (name.replace("_", " "), printable(node[name]))
        for name in ("handler", "queue", "worker", "attempt", "skip_reason", "parent_node_id", "not_before")
        if node[name]
    ]
    if node["child_job"]:
        facts.append(("child job", f"{node['child_job']['job_id']}, {node['child_job']['status']}"))
    if node["started_at"] and node["completed_at"]:
        seconds = (node["completed_at"] - node["started_at"]).total_seconds()
        facts.append(("took", duration(seconds)))
    for name, value in facts:
        out().print(Text.assemble((f"{name:16}", "bold"), str(value)), soft_wrap=True)
    for name in ("error", "input", "output"):
        if node[name] is not None:
            out().print(Text(name, style="bold"))
            show_value(node[name])
    if traceback is not None:
        is_own = traceback.job_id == job_id
        of_child = "" if is_own else f" of node {traceback.node_id} of child job {traceback.job_id}"
        heading = f"traceback of the last failed attempt{of_child}"
        out().print(Text(printable(heading), style="bold"), soft_wrap=True)
        for line in traceback.text.rstrip().splitlines():
            out().print(Text(f"  {printable(line)}"), soft_wrap=True)
