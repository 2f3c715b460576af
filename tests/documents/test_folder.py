"""The functions of the original, by its own minimal cases; and its tick, driven by hand against a service."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Eventually
from tests.documents import drawn
from tests.documents.test_services import service

from cograil.apps.documents import folder, tools
from cograil.apps.documents.core import canonical_profile, make_empty_metrics

KEY = f"{'a' * 64}__{'b' * 64}"


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directories are those of the test."""
    for name, place in {
        "DATA_DIR": "",
        "IN_DIR": "in",
        "WORK_DIR": "work",
        "OUT_DIR": "out",
        "ARCHIVE_DIR": "archive",
        "ERROR_DIR": "error",
        "HOLD_DUP_DIR": "hold/duplicates",
        "REPORTS_DUP_DIR": "reports/duplicates",
    }.items():
        monkeypatch.setattr(folder, name, str(tmp_path / place))


def reported(tmp_path: Path) -> dict[str, Any]:
    incoming = drawn.tiny(tmp_path / "a.cbz")
    folder.write_duplicate_report(KEY, str(incoming), {"state": "DONE"}, {"ocr": {}})
    assert not incoming.exists()
    return dict(json.loads((tmp_path / f"reports/duplicates/{KEY}.json").read_text()))


def test_a_duplicate_is_held_and_its_report_has_every_field(tmp_path: Path) -> None:
    report = reported(tmp_path)
    assert report.keys() >= {"jobKey", "detectedAt", "incoming", "existing", "profile", "actions"}
    held = [one.name for one in (tmp_path / f"hold/duplicates/{KEY}").iterdir()]
    assert len(held) == 2
    assert "status.json" in held
    assert Path(report["incoming"]["path"]).name.endswith("__a.cbz")


def test_a_decision_is_done_and_cleaned_up(tmp_path: Path) -> None:
    reported(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/x.pdf").write_bytes(b"%PDF-")
    index = {"jobs": {KEY: {"state": "DONE", "outPdf": "x.pdf"}}}
    (tmp_path / f"hold/duplicates/{KEY}/decision.json").write_text('{"action": "USE_EXISTING_RESULT"}')
    folder.check_duplicate_decisions(index, str(tmp_path / "index/jobs.json"))
    assert (tmp_path / f"out/a__job-{KEY}.pdf").read_bytes() == b"%PDF-"
    assert [one.name for one in (tmp_path / "archive").iterdir()] == ["a.cbz"]
    assert not (tmp_path / f"hold/duplicates/{KEY}").exists()


@pytest.mark.parametrize(
    ("stage", "age", "expected"),
    [
        ("PREP_RUNNING", 120, "PREP_RETRY"),
        ("OCR_RUNNING", 120, "OCR_RETRY"),
        ("PREP_RUNNING", 0, "PREP_RUNNING"),
        ("DISCOVERED", 120, "DISCOVERED"),
    ],
)
def test_stale_heartbeats(tmp_path: Path, stage: str, age: int, expected: str) -> None:
    room = tmp_path / "work" / KEY
    room.mkdir(parents=True)
    for word in ("prep", "ocr"):
        (room / f"{word}.heartbeat").touch()
        os.utime(room / f"{word}.heartbeat", (time.time() - age,) * 2)
    in_flight = {KEY: {"stage": stage}}
    folder.check_stale_jobs(in_flight, 60)
    assert in_flight[KEY]["stage"] == expected
    if expected.endswith("RETRY"):
        state = json.loads((room / "state.json").read_text())
        assert state["state"] == stage.replace("RUNNING", "TIMEOUT")
        assert "60s" in state["message"]


def test_one_that_never_beat_is_stale_after_twice_the_time(tmp_path: Path) -> None:
    in_flight = {KEY: {"stage": "OCR_RUNNING", "startedAt": time.time() - 100}}
    folder.check_stale_jobs(in_flight, 60)
    assert in_flight[KEY]["stage"] == "OCR_RUNNING"
    folder.check_stale_jobs(in_flight, 40)
    assert in_flight[KEY]["stage"] == "OCR_RETRY"


def test_the_heartbeat_of_an_earlier_try_says_nothing_of_this_one(tmp_path: Path) -> None:
    """Otherwise one timeout burns all the tries that are left."""
    room = tmp_path / "work" / KEY
    room.mkdir(parents=True)
    (room / "prep.heartbeat").touch()
    os.utime(room / "prep.heartbeat", (time.time() - 3600,) * 2)
    in_flight = {KEY: {"stage": "PREP_RUNNING", "startedAt": time.time() - 5}}
    folder.check_stale_jobs(in_flight, 60)
    assert in_flight[KEY]["stage"] == "PREP_RUNNING"
    in_flight[KEY]["startedAt"] = time.time() - 61
    folder.check_stale_jobs(in_flight, 60)
    assert in_flight[KEY]["stage"] == "PREP_RETRY"


async def test_a_tick_prepares_by_a_real_service_and_holds_what_comes_again(
    tmp_path: Path, eventually: Eventually
) -> None:
    """OCR is down: that costs no attempt."""
    profile = canonical_profile(tools.prep_info(), tools.ocr_info(), "eng")
    in_flight: folder.InFlight = {}
    index: folder.Index = {"jobs": {}}
    (tmp_path / "in").mkdir()
    for name in ("a.cbz", "b.cbz"):
        drawn.tiny(tmp_path / "in" / name)
    async with service("prep", tmp_path) as url:
        config = {
            "prep_url": url,
            "ocr_url": "http://127.0.0.1:9",
            "work_dir": str(tmp_path / "work"),
            "max_jobs_in_flight": 3,
            "prep_concurrency": 2,
            "ocr_concurrency": 1,
            "max_attempts_prep": 3,
            "max_attempts_ocr": 3,
            "job_timeout_s": 600,
            "index_dir": str(tmp_path / "index"),
            "metrics": make_empty_metrics(),
        }

        async def tick() -> bool:
            await asyncio.to_thread(
                folder.process_tick, in_flight, index, str(tmp_path / "index/jobs.json"), profile, config
            )
            return [meta["stage"] for meta in in_flight.values()] == ["PREP_DONE"]

        await eventually(tick, timeout=30)
    ((key, meta),) = in_flight.items()
    assert (meta["attemptPrep"], meta["attemptOcr"]) == (1, 0)
    assert (tmp_path / f"work/{key}/raw.pdf").exists()
    assert (tmp_path / f"reports/duplicates/{key}.json").exists()
    assert json.loads((tmp_path / "index/jobs.json").read_text())["jobs"][key]["state"] == "DISCOVERED"
    assert json.loads((tmp_path / "index/metrics.json").read_text())["queued"] == 1


def test_a_tick_works_where_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the directories of the module: the services are down, and nothing else is needed."""
    for name in ("DATA_DIR", "WORK_DIR"):
        monkeypatch.setattr(folder, name, "/nowhere")
    profile = canonical_profile(tools.prep_info(), tools.ocr_info(), "eng")
    (tmp_path / "in").mkdir()
    drawn.tiny(tmp_path / "in/a.cbz")
    nobody = "http://127.0.0.1:9"
    numbers = (
        "max_jobs_in_flight",
        "prep_concurrency",
        "ocr_concurrency",
        "max_attempts_prep",
        "max_attempts_ocr",
    )
    config = {
        "prep_url": nobody,
        "ocr_url": nobody,
        "work_dir": str(tmp_path / "elsewhere"),
        "index_dir": str(tmp_path / "shown"),
        "job_timeout_s": 600,
        "metrics": make_empty_metrics(),
    } | dict.fromkeys(numbers, 1)
    in_flight: folder.InFlight = {}
    folder.process_tick(in_flight, {"jobs": {}}, str(tmp_path / "shown/jobs.json"), profile, config)
    (key,) = in_flight
    assert (tmp_path / f"elsewhere/{key}/a.cbz").exists()
    assert (tmp_path / "shown/metrics.json").exists()
    assert not Path("/nowhere").exists()
