"""Document identity (profile and job key), heartbeat age, and counters.

A document is identified by its bytes and its processing profile: the same comic with another language, or after
an upgrade of a tool, is another job.
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
    """The processing profile: OCR options and tool versions. Unset `options` are left out.

    The infos are the `/info` responses of the services, or their `versions` map itself.
    """
    ocr: dict[str, Any] = {
        "lang": canonical_language(ocr_lang),
        "rotatePages": True,
        "deskew": True,
        "optimize": 1,
        "tools": _versions(ocr_info),
    }
    set_options = {name: value for name, value in (options or {}).items() if value not in (None, False)}
    if set_options:
        ocr["options"] = set_options
    return {"ocr": ocr, "prep": {"tools": _versions(prep_info)}}


def canonical_language(lang: str) -> str:
    """The language list in sorted order: `fra+eng` becomes `eng+fra`."""
    return "+".join(sorted({token.strip() for token in lang.split("+")} - {""}))


def _versions(info: Mapping[str, Any]) -> dict[str, Any]:
    return dict(info.get("versions", info))


def stable_json(obj: Any) -> str:
    """Serialize to JSON independently of key order."""
    return json.dumps(obj, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def make_job_key(file_hash: str, profile: Mapping[str, Any]) -> tuple[str, str]:
    """Return (profile hash, job key)."""
    profile_hash = hashlib.sha256(stable_json(profile).encode()).hexdigest()
    return profile_hash, f"{file_hash}__{profile_hash}"


def is_heartbeat_stale(
    hb_path: str | os.PathLike[str], timeout_s: float, absent_timeout_s: float | None = None
) -> bool:
    """Whether this heartbeat is older than the timeout.

    A missing heartbeat is stale only with `absent_timeout_s` 0. The default is twice the timeout; the caller,
    who knows when the stage began, measures it.
    """
    if absent_timeout_s is None:
        absent_timeout_s = 2 * timeout_s
    try:
        touched = os.path.getmtime(hb_path)
    except FileNotFoundError:
        return absent_timeout_s == 0
    return time.time() - touched > timeout_s


def make_empty_metrics() -> dict[str, Any]:
    """All counters at zero."""
    return {**dict.fromkeys(COUNTED, 0), "updatedAt": ""}


def update_metrics(metrics: dict[str, Any], event: str) -> dict[str, Any]:
    """Count this event; an unknown event changes nothing."""
    if event in metrics and event != "updatedAt":
        metrics[event] += 1
    return metrics


def write_metrics(metrics: dict[str, Any], index_dir: str | os.PathLike[str]) -> str:
    """Write the metrics to `metrics.json` in this directory, which is created; return the path."""
    metrics["updatedAt"] = now_text()
    path = Path(index_dir) / METRICS_FILE
    write_json(path, metrics)
    return str(path)


def now_text() -> str:
    """The current time in the format of our files."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
