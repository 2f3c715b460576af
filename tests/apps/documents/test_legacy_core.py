"""The minimal cases of the original: who a document is, heartbeats, metrics."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from cograil.apps.documents.core import (
    canonical_profile,
    is_heartbeat_stale,
    make_empty_metrics,
    make_job_key,
    stable_json,
    update_metrics,
    write_metrics,
)

PREP = {"service": "prep-service", "versions": {"7z": "libarchive 3.6.2", "img2pdf": "0.6.3"}}
OCR: dict[str, Any] = {
    "service": "ocr-service",
    "versions": {"ocrmypdf": "17", "tesseract": "5.3.0", "ghostscript": "10"},
}
HASH = "ab" * 32


def test_the_default_language_of_a_profile_is_that_of_the_original() -> None:
    assert canonical_profile({}, {}) == canonical_profile({}, {}, "eng+fra")


def test_the_same_profile_has_the_same_hash() -> None:
    assert make_job_key(HASH, canonical_profile(PREP, OCR, "eng")) == make_job_key(
        HASH, canonical_profile(PREP, OCR, "eng")
    )


def test_the_order_of_languages_does_not_matter() -> None:
    assert canonical_profile(PREP, OCR, "fra+eng") == canonical_profile(PREP, OCR, "eng+fra+eng")
    assert canonical_profile(PREP, OCR, "fra+eng")["ocr"]["lang"] == "eng+fra"


def test_the_profile_is_that_of_the_original() -> None:
    assert canonical_profile(PREP, OCR, "fra") == {
        "ocr": {
            "lang": "fra",
            "rotatePages": True,
            "deskew": True,
            "optimize": 1,
            "tools": OCR["versions"],
        },
        "prep": {"tools": PREP["versions"]},
    }


def test_options_are_in_the_profile_where_they_say_something() -> None:
    plain = canonical_profile(PREP, OCR, "fra", options={"dpi": False, "fast_mode": False})
    assert plain == canonical_profile(PREP, OCR, "fra")
    assert canonical_profile(PREP, OCR, "fra", options={"dpi": 300})["ocr"]["options"] == {"dpi": 300}


def test_stable_json_does_not_depend_on_the_order_of_keys() -> None:
    assert stable_json({"b": 1, "a": {"d": 2, "c": "é"}}) == stable_json({"a": {"c": "é", "d": 2}, "b": 1})
    assert stable_json({"b": 1, "a": "é"}) == '{"a":"é","b":1}'


def test_a_key_changes_with_the_file_the_language_and_the_tools() -> None:
    profile = canonical_profile(PREP, OCR, "fra")
    profile_hash, key = make_job_key(HASH, profile)
    assert key == f"{HASH}__{profile_hash}"
    upgraded = {"versions": OCR["versions"] | {"tesseract": "5.3.1"}}
    others = [
        make_job_key("cd" * 32, profile)[1],
        make_job_key(HASH, canonical_profile(PREP, OCR, "eng"))[1],
        make_job_key(HASH, canonical_profile(PREP, upgraded, "fra"))[1],
    ]
    assert len({key, *others}) == 4


@pytest.mark.parametrize(
    ("age", "timeout", "absent", "is_stale"),
    [
        (0, 60, None, False),
        (120, 60, None, True),
        (None, 60, 0, True),
        (None, 60, 30, False),
        (None, 60, None, False),
    ],
)
def test_heartbeats_are_written_and_read(
    tmp_path: Path, age: int | None, timeout: int, absent: int | None, is_stale: bool
) -> None:
    path = tmp_path / "prep.heartbeat"
    if age is not None:
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    assert is_heartbeat_stale(str(path), timeout, absent) is is_stale


def test_metrics_count_what_they_know() -> None:
    metrics = make_empty_metrics()
    assert {"done": 0, "error": 0, "running": 0, "queued": 0, "updatedAt": ""}.items() <= metrics.items()
    assert update_metrics(metrics, "done")["done"] == 1
    before = dict(metrics)
    assert update_metrics(metrics, "nothing we know") == before
    assert update_metrics(metrics, "updatedAt") == before


def test_metrics_are_written_where_there_was_no_directory(tmp_path: Path) -> None:
    path = write_metrics(make_empty_metrics(), str(tmp_path / "index"))
    assert path == str(tmp_path / "index/metrics.json")
    assert json.loads(Path(path).read_text())["updatedAt"]
