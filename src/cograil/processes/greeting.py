"""What `up` says: to a person at a terminal in sentences, to a log in fields."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as version_of
from pathlib import Path

import structlog

from cograil.processes.hosting import Host
from cograil.settings import Settings, mask_password

log = structlog.get_logger("up")


def welcome(settings: Settings, host: Host, url: str, published: list[str], apps: dict[str, str]) -> None:
    """Say what runs, where, and what to do next."""
    if not _is_for_people(settings):
        log.info("ready", url=url, data=_place(settings, host), pid=os.getpid(), workflows=published)
        for name, sentence in apps.items():
            log.info(sentence, app=name)
        return
    option = "" if _is_default(settings) else f" --data-dir {settings.data_dir}"
    first = f"submit {published[0]} --wait" if published else "run FILE.yaml"
    _say(
        f"cograil {version_of('cograil')} is up: database, orchestrator, worker.",
        "",
        f"  pages      {url}/ui/",
        f"  probes     {url}/readyz",
        f"  data       {_place(settings, host)}",
        *(f"  {name:10} {sentence}" for name, sentence in apps.items()),
        *([f"  workflows  {', '.join(published)}"] if published else []),
        "",
        f"  try        cograil {first}{option}        (in another terminal)",
        "  stop       Ctrl-C",
        "",
    )


def goodbye(settings: Settings) -> None:
    """Say that running tasks are given their time."""
    if _is_for_people(settings):
        seconds = settings.worker.grace_seconds
        _say(f"\nStopping; running tasks have {seconds:g} s to end. Once more to stop at once.")
    else:
        log.info("stopping", grace_seconds=settings.worker.grace_seconds)


def _is_for_people(settings: Settings) -> bool:
    return settings.log.format != "json" and sys.stderr.isatty()


def _is_default(settings: Settings) -> bool:
    """Whether a command in another terminal finds this instance by itself."""
    default: Path = Settings.model_fields["data_dir"].get_default(call_default_factory=True)
    return settings.data_dir == default or bool(settings.database.url)


def _place(settings: Settings, host: Host) -> str:
    return str(settings.data_dir) if host.is_embedded else mask_password(host.conninfo)


def _say(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr, flush=True)
