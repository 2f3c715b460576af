"""Recognition of errors that mean an unreachable database."""

from __future__ import annotations

import psycopg

from cograil.errors import DatabaseUnavailable

# PostgreSQL's answer while it accepts no sessions. During a shutdown sessions may still exist.
SAYS_IT_STARTS = ("is starting up", "in recovery mode", "not yet accepting connections")


def is_out_of_reach(error: Exception) -> bool:
    """Return whether the error says that the database was unreachable, or ended the session."""
    if isinstance(error, DatabaseUnavailable | psycopg.InterfaceError):
        return True
    state = getattr(error, "sqlstate", None)
    return isinstance(error, psycopg.OperationalError) and (state is None or state[:2] in ("08", "57"))


def says_it_starts(error: Exception) -> bool:
    """Return whether PostgreSQL answered that it starts or recovers and accepts no sessions yet."""
    return any(words in str(error) for words in SAYS_IT_STARTS)
