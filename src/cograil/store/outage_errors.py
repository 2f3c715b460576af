"""What errors say about a database that is not there."""

from __future__ import annotations

import psycopg

from cograil.errors import DatabaseUnavailable

# PostgreSQL to everybody, while no session exists. One that shuts down may still have sessions.
SAYS_IT_STARTS = ("is starting up", "in recovery mode", "not yet accepting connections")


def is_out_of_reach(error: Exception) -> bool:
    """Whether this says that the database could not be reached, or ended the session."""
    if isinstance(error, DatabaseUnavailable | psycopg.InterfaceError):
        return True
    state = getattr(error, "sqlstate", None)
    return isinstance(error, psycopg.OperationalError) and (state is None or state[:2] in ("08", "57"))


def says_it_starts(error: Exception) -> bool:
    """Whether PostgreSQL answered that it takes nobody yet: it starts or recovers."""
    return any(words in str(error) for words in SAYS_IT_STARTS)
