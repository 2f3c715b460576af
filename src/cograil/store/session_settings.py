"""The session settings of the engine, and the connection string that carries them."""

from __future__ import annotations

from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cograil.settings import DatabaseSettings

READERS = frozenset({"cograil_gateway"})  # roles that never write
DOOR_SECONDS = 30.0  # timeout of one statement in a server process, because a request waits for it


def session_settings(settings: DatabaseSettings, role: str = "") -> dict[str, str]:
    """Return the session settings of the engine; a server process acts in a role of its own.

    A process that is stopped inside a transaction must lose its locks soon; a dead network must be
    detected; plans are made once and must also fit tables that were empty then. Statements of server
    processes have a timeout.
    """
    acting = {"role": role, "statement_timeout": str(int(DOOR_SECONDS * 1000))} if role else {}
    if role in READERS:
        acting["default_transaction_read_only"] = "on"
    return acting | {
        "timezone": "UTC",
        "jit": "off",
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "idle_in_transaction_session_timeout": str(int(settings.idle_in_transaction_seconds * 1000)),
        "client_connection_check_interval": "5000",
    }


def engine_conninfo(
    url: str, settings: DatabaseSettings, application: str, *, is_pooled: bool = False, role: str = ""
) -> str:
    """Return the connection string with the session settings; a pooler would refuse these.

    Of several hosts it selects the one that accepts writes, and it skips a silent host soon.
    """
    options = conninfo_to_dict(url)
    has_hosts = "," in str(options.get("host") or options.get("hostaddr") or "")
    defaults: dict[str, Any] = {
        "application_name": application,
        "connect_timeout": 3 if has_hosts else 10,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
    }
    if has_hosts:
        defaults["target_session_attrs"] = "read-write"
    if not is_pooled:
        wanted = [f"-c {name}={value}" for name, value in session_settings(settings, role).items()]
        options["options"] = " ".join([str(options.get("options") or ""), *wanted]).strip()
    return make_conninfo(**{**defaults, **options})
