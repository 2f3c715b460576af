"""Previews of retries and bulk operations, and the progress of bulk operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from cograil.cli.display.formatting import printable
from cograil.cli.display.output import out, plain, render, say, table, warn
from cograil.store.job_queries import View
from cograil.verbs.bulk import BulkForecast
from cograil.verbs.retry import RetryForecast

MAX_NAMES = 10


def show_retry(preview: RetryForecast, as_json: bool) -> None:
    """Show which nodes are kept, run again or are skipped, and which kept nodes have read a changed input."""
    render(asdict(preview), lambda: _print_retry(preview), as_json)


def _print_retry(preview: RetryForecast) -> None:
    target = "in place" if preview.is_in_place else "in a new job"
    say(f"a retry of job {preview.job_id} would run {target}; nothing was changed")
    rows = table("node", "what would happen", "")
    for name in preview.kept:
        rows.add_row(plain(name), "kept", plain(_warning(preview, name), style="yellow"))
    for name in preview.reopened:
        action = f"children that did not complete run again{_with_key(preview, name)}"
        rows.add_row(plain(name), action, plain(_warning(preview, name), style="yellow"))
    listed = {*preview.again, *preview.reopened}
    children = [name for name in (*preview.same_keys, *preview.new_keys) if name not in listed]
    for name in (*preview.again, *children):
        note = "other systems will repeat the work" if name in preview.new_keys else ""
        rows.add_row(plain(name), f"runs again{_with_key(preview, name)}", plain(note, style="yellow"))
    for name in preview.skipped:
        rows.add_row(plain(name), "skipped", "on a branch that was not taken")
    out().print(rows)


def _warning(preview: RetryForecast, name: str) -> str:
    names = preview.outdated.get(name)
    if not names:
        return ""
    inputs = "input" if len(names) == 1 else "inputs"
    return f"its output is based on the old {inputs} {', '.join(names)}"


def _with_key(preview: RetryForecast, name: str) -> str:
    if name in preview.new_keys:
        return " with a new key"
    return " with the same key" if name in preview.same_keys else ""


def show_keys(preview: RetryForecast) -> None:
    """Print the idempotency keys with which nodes run again."""
    if preview.same_keys:
        say(f"same idempotency key as before: {_names(preview.same_keys)}")
    if preview.new_keys:
        names = _names(preview.new_keys)
        warn(f"new idempotency key: {names}; other systems will not recognise earlier work")


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return printable(", ".join(names[:MAX_NAMES]) + more)


def show_bulk(preview: BulkForecast, as_json: bool) -> None:
    """Show how many jobs match, and the first of them."""
    render(asdict(preview), lambda: _print_bulk(preview), as_json)


def _print_bulk(preview: BulkForecast) -> None:
    say(f"{preview.verb} would be applied to {preview.count} jobs; nothing was changed")
    for job_id in preview.ids:
        click.echo(job_id)
    if preview.count > len(preview.ids):
        say(f"and {preview.count - len(preview.ids)} more")


def show_operation(operation: View) -> None:
    """Print the progress of an operation, and why jobs were skipped or failed."""
    processed = operation["done"] + operation["failed"] + operation["skipped"]
    progress = "finished" if operation["is_finished"] else f"{processed} of {operation['total']} processed"
    say(f"{operation['verb']} of {operation['total']} jobs, {progress}")
    rows = table("outcome", "jobs", "reason", "example", right=("jobs",))
    rows.add_row("done", str(operation["done"]), "", "")
    for code, reason in operation["reasons"].items():
        rows.add_row(reason["outcome"], str(reason["count"]), plain(code), printable(reason["example"]))
    out().print(rows)


def warn_of_changed_inputs(preview: RetryForecast) -> None:
    """Warn that another system may return an earlier result for a changed input with the same key."""
    if preview.same_keys:
        warn(
            f"changed inputs with the same idempotency key ({_names(preview.same_keys)}): another system may "
            "return its earlier result; use --new-keys for new keys"
        )
