"""Display of table sizes and old snapshots."""

from __future__ import annotations

from cograil.cli.display.formatting import ago, duration
from cograil.cli.display.output import out, plain, table
from cograil.store.table_bloat import TableHealth, megabytes


def show_health(health: TableHealth, *, is_complete: bool = False) -> None:
    """Print the tables that have rows, largest first, and the sessions that hold a snapshot."""
    sizes = [size for size in health.sizes if is_complete or not size.is_empty]
    if sizes:
        out().print()
        rows = table(
            "table", "rows", "dead", "size", "last vacuum", right=("rows", "dead", "size", "last vacuum")
        )
        for size in sizes:
            style = "yellow" if size.is_mostly_dead else ""
            dead = plain(f"{size.dead_rows:,}", style=style)
            rows.add_row(
                size.table, f"{size.rows:,}", dead, megabytes(size.total_bytes), ago(size.vacuumed_at)
            )
        out().print(rows)
    if hidden := len(health.sizes) - len(sizes):
        out().print(plain(f"{hidden} empty tables are not shown; --all shows them", style="dim"))
    if health.snapshots:
        out().print()
        rows = table(
            "snapshot of", "application", "state", "for", "transactions", right=("for", "transactions")
        )
        for snapshot in health.snapshots:
            since = "" if snapshot.seconds is None else duration(snapshot.seconds)
            rows.add_row(
                plain(f"{snapshot.kind} {snapshot.name}", style="yellow" if snapshot.is_old else ""),
                plain(snapshot.application),
                plain(snapshot.state),
                since,
                f"{snapshot.transactions:,}",
            )
        out().print(rows)
