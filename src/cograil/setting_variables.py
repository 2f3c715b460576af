"""The variables of settings: their regular names, the short ones, and those that other programs use too."""

from __future__ import annotations

PREFIX = "COGRAIL_"

# The name that everybody knows, beside the regular COGRAIL_DATABASE__URL.
SHORT_NAMES = {
    "database.url": "COGRAIL_DATABASE_URL",
    "server.key_file": "API_KEY_FILE",
}

# Names that other programs use too. They count for `cograil gateway` and `cograil documents ...` only, or
# everywhere with COGRAIL_COMPAT=1.
BARE_NAMES = {
    "gateway.database_url": "DATABASE_URL",
    "gateway.api_url": "ORCHESTRATOR_URL",
    "gateway.worker_url": "WORKER_URL",
}


def variable_of(name: str) -> str:
    """The variable of a setting: lease.seconds is COGRAIL_LEASE__SECONDS."""
    return SHORT_NAMES.get(name) or regular_variable(name)


def regular_variable(name: str) -> str:
    return PREFIX + name.replace(".", "__").upper()
