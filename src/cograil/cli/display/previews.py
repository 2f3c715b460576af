"""What would happen, told to people before it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from cograil.cli.display.formatting import printable
from cograil.cli.display.output import out, plain, say, table, warn, write_json
from cograil.verbs.bulk import BulkPreview, Operation
from cograil.verbs.retry import RetryPreview

MAX_NAMES = 10


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
        what = f"children that did not complete run again{_with_key(preview, name)}"
        rows.add_row(plain(name), what, plain(_warning(preview, name), style="yellow"))
    shown = {*preview.again, *preview.reopened}
    children = [name for name in (*preview.same_keys, *preview.new_keys) if name not in shown]
    for name in (*preview.again, *children):
        note = "other systems will do the work once more" if name in preview.new_keys else ""
        rows.add_row(plain(name), f"runs again{_with_key(preview, name)}", plain(note, style="yellow"))
    for name in preview.skipped:
        rows.add_row(plain(name), "skipped", "behind a branch that was not taken")
    out().print(rows)


def _warning(preview: RetryPreview, name: str) -> str:
    names = preview.outdated.get(name)
    if not names:
        return ""
    inputs = "input" if len(names) == 1 else "inputs"
    return f"its output was made with the old {inputs} {', '.join(names)}"


def _with_key(preview: RetryPreview, name: str) -> str:
    if name in preview.new_keys:
        return " with a new key"
    return " with the same key" if name in preview.same_keys else ""


def tell_keys(preview: RetryPreview) -> None:
    """With which idempotency keys the nodes run again."""
    if preview.same_keys:
        say(f"same idempotency key as before: {_names(preview.same_keys)}")
    if preview.new_keys:
        names = _names(preview.new_keys)
        warn(f"new idempotency key: {names}; other systems will not recognise what was done before")


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return printable(", ".join(names[:MAX_NAMES]) + more)


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


def warn_of_changed_inputs(preview: RetryPreview) -> None:
    """With another input under the same key, another system may answer with what it did before."""
    if preview.same_keys:
        warn(
            f"other inputs with the same idempotency key ({_names(preview.same_keys)}): another system may "
            "answer with what it did before; --new-keys gives new ones"
        )
