"""The functions of the original, by its own minimal cases; and its tick, driven by hand against a service."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pdfminer.high_level import extract_text
from tests.apps.documents import sample_documents
from tests.apps.documents.stage_services import service
from tests.conftest import Eventually

from cograil.apps.documents import atomic_files, folder, tools
from cograil.apps.documents.core import canonical_profile, make_empty_metrics

KEY = f"{'a' * 64}__{'b' * 64}"
NOBODY = "http://127.0.0.1:9"


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
    incoming = sample_documents.tiny(tmp_path / "a.cbz")
    folder.write_duplicate_report(KEY, str(incoming), {"state": "DONE"}, {"ocr": {}})
    assert not incoming.exists()
    return dict(json.loads((tmp_path / f"reports/duplicates/{KEY}.json").read_text()))


def test_a_duplicate_is_held_and_its_report_has_every_field(tmp_path: Path) -> None:
    report = reported(tmp_path)
    assert report.keys() >= {"jobKey", "detectedAt", "incoming", "existing", "profile", "actions"}
    held = [path.name for path in (tmp_path / f"hold/duplicates/{KEY}").iterdir()]
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
    assert [path.name for path in (tmp_path / "archive").iterdir()] == ["a.cbz"]
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
def test_stale_heartbeats_are_found(tmp_path: Path, stage: str, age: int, expected: str) -> None:
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


def test_a_stage_without_heartbeat_is_stale_after_twice_the_time(tmp_path: Path) -> None:
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


@dataclass
class Ticking:
    """What a program keeps between its ticks."""

    root: Path
    urls: dict[str, str]
    in_flight: folder.InFlight = field(default_factory=dict)
    index: folder.Index = field(default_factory=lambda: {"jobs": {}})
    metrics: dict[str, Any] = field(default_factory=make_empty_metrics)

    async def tick(self) -> list[str]:
        """The stages after one more."""
        config = {
            "prep_url": NOBODY,
            "ocr_url": NOBODY,
            "work_dir": str(self.root / "work"),
            "max_jobs_in_flight": 3,
            "prep_concurrency": 2,
            "ocr_concurrency": 1,
            "max_attempts_prep": 3,
            "max_attempts_ocr": 3,
            "job_timeout_s": 600,
            "index_dir": str(self.root / "index"),
            "metrics": self.metrics,
        } | self.urls
        profile = canonical_profile(tools.prep_info(), tools.ocr_info(), "eng")
        index_path = str(self.root / "index/jobs.json")
        await asyncio.to_thread(folder.process_tick, self.in_flight, self.index, index_path, profile, config)
        return [meta["stage"] for meta in self.in_flight.values()]

    async def is_all_over(self) -> bool:
        return await self.tick() == []

    def shown(self) -> dict[str, Any]:
        return dict(json.loads((self.root / "index/metrics.json").read_text()))


async def test_a_tick_prepares_by_a_real_service_and_holds_what_comes_again(
    tmp_path: Path, eventually: Eventually
) -> None:
    """OCR is down: that costs no attempt."""
    (tmp_path / "in").mkdir()
    for name in ("a.cbz", "b.cbz"):
        sample_documents.tiny(tmp_path / "in" / name)
    async with service("prep", tmp_path) as url:
        program = Ticking(tmp_path, {"prep_url": url})

        async def is_prepared() -> bool:
            return await program.tick() == ["PREP_DONE"]

        await eventually(is_prepared, timeout=30)
    ((key, meta),) = program.in_flight.items()
    assert (meta["attemptPrep"], meta["attemptOcr"]) == (1, 0)
    assert (tmp_path / f"work/{key}/raw.pdf").exists()
    assert (tmp_path / f"reports/duplicates/{key}.json").exists()
    assert json.loads((tmp_path / "index/jobs.json").read_text())["jobs"][key]["state"] == "DISCOVERED"
    assert program.shown()["queued"] == 1


async def test_ticks_take_a_comic_to_its_pdf(tmp_path: Path, eventually: Eventually) -> None:
    """From `in` to `out` by both services, with real OCR."""
    (tmp_path / "in").mkdir()
    sample_documents.comic(tmp_path / "in/a.cbz", {"1.png": sample_documents.page(sample_documents.ENGLISH)})
    async with service("prep", tmp_path) as prep, service("ocr", tmp_path) as ocr:
        program = Ticking(tmp_path, {"prep_url": prep, "ocr_url": ocr})
        assert await program.tick() == ["PREP_RUNNING"]
        await eventually(program.is_all_over, timeout=60)
    ((key, entry),) = program.index["jobs"].items()
    assert (entry["state"], entry["outPdf"]) == ("DONE", f"a__job-{key}.pdf")
    assert "quick brown fox" in extract_text(tmp_path / "out" / entry["outPdf"])
    assert [path.name for path in (tmp_path / "archive").iterdir()] == ["a.cbz"]
    assert json.loads((tmp_path / f"work/{key}/state.json").read_text())["state"] == "DONE"
    assert (program.shown()["done"], program.shown()["running"], program.shown()["queued"]) == (1, 0, 0)


async def test_ticks_give_up_after_three_tries(tmp_path: Path, eventually: Eventually) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.cbz").write_bytes(b"PK\x03\x04 and nothing more")
    async with service("prep", tmp_path) as url:
        program = Ticking(tmp_path, {"prep_url": url})
        await eventually(program.is_all_over, timeout=60)
        assert len(list((tmp_path / "prep/error").iterdir())) == 3
    ((key, entry),) = program.index["jobs"].items()
    assert entry["state"] == "ERROR_PREP"
    assert [path.name for path in (tmp_path / "error").iterdir()] == ["a.cbz"]
    assert json.loads((tmp_path / f"work/{key}/state.json").read_text())["message"] == "max attempts reached"
    assert program.shown()["error"] == 1


async def test_a_tick_counts_what_it_refuses_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is in `error`; what cannot be moved there now keeps no tick."""

    def full(*_: Any) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.cbz").write_bytes(b"nothing")
    program = Ticking(tmp_path, {})
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "move_to_free", full)
        await program.tick()
    assert program.shown()["input_rejected_signature"] == 0
    await program.tick()
    assert program.shown()["input_rejected_signature"] == 1
    assert [path.name for path in (tmp_path / "error").iterdir()] == ["a.cbz"]
    assert len(list((tmp_path / "reports/rejected").iterdir())) == 1


def test_a_tick_works_where_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the directories of the module: the services are down, and nothing else is needed."""
    for name in ("DATA_DIR", "WORK_DIR"):
        monkeypatch.setattr(folder, name, "/nowhere")
    profile = canonical_profile(tools.prep_info(), tools.ocr_info(), "eng")
    (tmp_path / "in").mkdir()
    sample_documents.tiny(tmp_path / "in/a.cbz")
    numbers = (
        "max_jobs_in_flight",
        "prep_concurrency",
        "ocr_concurrency",
        "max_attempts_prep",
        "max_attempts_ocr",
    )
    config = {
        "prep_url": NOBODY,
        "ocr_url": NOBODY,
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


def test_a_tick_takes_what_a_program_calls_its_jobs(tmp_path: Path) -> None:
    """By any key, with no more than where the input is."""
    source = sample_documents.tiny(tmp_path / "a.cbz")
    in_flight: folder.InFlight = {"mine": {"stage": "PREP_RETRY", "attemptPrep": 3, "inputPath": str(source)}}
    index: folder.Index = {}
    program = Ticking(tmp_path, {}, in_flight, index)
    assert asyncio.run(program.tick()) == []
    assert index["jobs"]["mine"]["state"] == "ERROR_PREP"
    assert (tmp_path / "error/a.cbz").exists()
    assert json.loads((tmp_path / "work/mine/state.json").read_text())["message"] == "max attempts reached"
