"""The condition of the database, described for people."""

from __future__ import annotations

from cograil.cli.display.formatting import ago, duration
from cograil.cli.display.output import out, plain, table
from cograil.store.table_bloat import Health, megabytes


def show_health(health: Health, *, is_complete: bool = False) -> None:
    """The tables with rows in them, the largest first, and whoever holds a snapshot."""
    sizes = [one for one in health.sizes if is_complete or not one.is_empty]
    if sizes:
        out().print()
        rows = table(
            "table", "rows", "dead", "size", "last vacuum", right=("rows", "dead", "size", "last vacuum")
        )
        for one in sizes:
            style = "yellow" if one.is_mostly_dead else ""
            dead = plain(f"{one.dead_rows:,}", style=style)
            rows.add_row(one.table, f"{one.rows:,}", dead, megabytes(one.total_bytes), ago(one.vacuumed_at))
        out().print(rows)
    if hidden := len(health.sizes) - len(sizes):
        out().print(plain(f"{hidden} empty tables are not shown; --all shows them", style="dim"))
    if health.snapshots:
        out().print()
        rows = table(
            "snapshot of", "application", "state", "for", "transactions", right=("for", "transactions")
        )
        for held in health.snapshots:
            since = "" if held.seconds is None else duration(held.seconds)
            rows.add_row(
                plain(f"{held.kind} {held.name}", style="yellow" if held.is_old else ""),
                plain(held.application),
                plain(held.state),
                since,
                f"{held.transactions:,}",
            )
        out().print(rows)
