"""Who a document is, and what is counted: the functions that everything else stands on.

A document is its bytes and how they are treated: the same comic with another language, or after an upgrade
of a tool, is another job.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cograil.apps.documents.atomic_files import write_json

COUNTED = (
    "done",
    "error",
    "running",
    "queued",
    "disk_error",
    "pdf_invalid",
    "input_rejected_size",
    "input_rejected_signature",
    "prep_skipped",
    "ocr_skipped",
)
DEFAULT_LANGUAGE = "fra+eng"
METRICS_FILE = "metrics.json"


def canonical_profile(
    prep_info: Mapping[str, Any],
    ocr_info: Mapping[str, Any],
    ocr_lang: str = DEFAULT_LANGUAGE,
    *,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """How a document is treated, by whom. `options` are in it only where they say something.

    The infos are what the services say of themselves: their `versions`, or that map itself.
    """
    ocr: dict[str, Any] = {
        "lang": canonical_language(ocr_lang),
        "rotatePages": True,
        "deskew": True,
        "optimize": 1,
        "tools": _versions(ocr_info),
    }
    given = {name: value for name, value in (options or {}).items() if value not in (None, False)}
    if given:
        ocr["options"] = given
    return {"ocr": ocr, "prep": {"tools": _versions(prep_info)}}


def canonical_language(lang: str) -> str:
    """`fra+eng` is `eng+fra`."""
    return "+".join(sorted({token.strip() for token in lang.split("+")} - {""}))


def _versions(info: Mapping[str, Any]) -> dict[str, Any]:
    return dict(info.get("versions", info))


def stable_json(obj: Any) -> str:
    """The same text for the same value, whatever the order of its keys."""
    return json.dumps(obj, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def make_job_key(file_hash: str, profile: Mapping[str, Any]) -> tuple[str, str]:
    """The hash of the profile, and the key of the job, in this order."""
    profile_hash = hashlib.sha256(stable_json(profile).encode()).hexdigest()
    return profile_hash, f"{file_hash}__{profile_hash}"


def is_heartbeat_stale(
    hb_path: str | os.PathLike[str], timeout_s: float, absent_timeout_s: float | None = None
) -> bool:
    """Whether this heartbeat is older than the timeout.

    One that is not there is stale only when nothing is waited for it (`absent_timeout_s` 0); by default
    twice the timeout is, and whoever knows since when counts that.
    """
    if absent_timeout_s is None:
        absent_timeout_s = 2 * timeout_s
    try:
        touched = os.path.getmtime(hb_path)
    except FileNotFoundError:
        return absent_timeout_s == 0
    return time.time() - touched > timeout_s


def make_empty_metrics() -> dict[str, Any]:
    """Nothing was counted yet."""
    return {**dict.fromkeys(COUNTED, 0), "updatedAt": ""}


def update_metrics(metrics: dict[str, Any], event: str) -> dict[str, Any]:
    """Count this event; one that is not counted changes nothing."""
    if event in metrics and event != "updatedAt":
        metrics[event] += 1
    return metrics


def write_metrics(metrics: dict[str, Any], index_dir: str | os.PathLike[str]) -> str:
    """Write them to `metrics.json` in this directory, which is made; its path."""
    metrics["updatedAt"] = now_text()
    path = Path(index_dir) / METRICS_FILE
    write_json(path, metrics)
    return str(path)


def now_text() -> str:
    """This moment, as it stands in our files."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
