"""What would happen, told to people before it does."""

from __future__ import annotations

from dataclasses import asdict

import click

from cograil.intake.cli.output import out, plain, say, table, write_json
from cograil.intake.cli.words import printable
from cograil.verbs.bulk import BulkPreview, Operation
from cograil.verbs.retry import RetryPreview


def show_retry(preview: RetryPreview, as_json: bool) -> None:
    """Which nodes are kept, run again or are skipped, and which of the kept have read a changed input."""
    if as_json:
        write_json(asdict(preview))
        return
    where = "in place" if preview.is_in_place else "in a new job"
    say(f"a retry of job {preview.job_id} would run {where}; nothing was changed")
    rows = table("node", "what would happen", "")
    for name in preview.kept:
        rows.add_row(plain(name), "kept", plain(_warning(preview, name), style="yellow"))
    for name in preview.reopened:
        what = "children that did not complete run again"
        rows.add_row(plain(name), what, plain(_warning(preview, name), style="yellow"))
    for name in preview.again:
        rows.add_row(plain(name), "runs again", "")
    for name in preview.skipped:
        rows.add_row(plain(name), "skipped", "behind a branch that was not taken")
    out().print(rows)


def _warning(preview: RetryPreview, name: str) -> str:
    names = preview.outdated.get(name)
    return f"has read the old {', '.join(names)}" if names else ""


def show_bulk(preview: BulkPreview, as_json: bool) -> None:
    """How many jobs fit, and the first of them."""
    if as_json:
        write_json(asdict(preview))
        return
    say(f"{preview.verb} would be tried on {preview.count} jobs; nothing was changed")
    for job_id in preview.ids:
        click.echo(job_id)
    if preview.count > len(preview.ids):
        say(f"and {preview.count - len(preview.ids)} more")


def show_operation(operation: Operation) -> None:
    """How far an operation is, and why jobs were skipped or failed."""
    where = "finished" if operation.finished_at else f"through with {operation.ended} of {operation.total}"
    say(f"{operation.verb} of {operation.total} jobs, {where}")
    rows = table("outcome", "jobs", "why", "such as", right=("jobs",))
    rows.add_row("done", str(operation.done), "", "")
    for code, noted in operation.reasons.items():
        rows.add_row(noted["outcome"], str(noted["count"]), plain(code), printable(noted["example"]))
    out().print(rows)
