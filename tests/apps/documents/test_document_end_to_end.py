"""From the folder to the text in the PDF, with real tesseract, ocrmypdf and libarchive, by real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pdfminer.high_level import extract_text
from tests.apps.documents import sample_documents
from tests.conftest import Eventually

from cograil.apps.documents import atomic_files, tools
from cograil.apps.documents.core import canonical_profile, make_job_key
from cograil.http.server.port import bind

QUICK = {
    "COGRAIL_WORKER__GRACE_SECONDS": "1",
    "POLL_INTERVAL_MS": "100",
    "COGRAIL_APPS": "documents",
}


def environment(**more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COGRAIL_")}
    return clean | QUICK | more


class Running:
    """`cograil documents watch`, `prep` or `ocr` on a folder."""

    def __init__(self, root: Path, what: str = "watch", port: int = 0, **more: str) -> None:
        self.root = root
        self._stderr = root.parent / f"{what}.txt"
        words = ["documents", what, "--data", str(root), "--port", str(port)]
        with self._stderr.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cograil", *words],
                env=environment(**more),
                stdin=subprocess.DEVNULL,
                stderr=stderr,
            )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._stderr.read_text().splitlines() if line.startswith("{")]

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self._stderr.read_text()
        return any(line["event"] == "ready" for line in self.lines())

    def url(self) -> str:
        (port,) = {line["port"] for line in self.lines() if line["event"] == "the app has a port of its own"}
        return f"http://127.0.0.1:{port}"

    def ask(self, path: str, body: Any = None, url: str = "") -> tuple[int, Any]:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            (url or self.url()) + path, content, {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=60) == 0, self._stderr.read_text()


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "data")
    yield running
    running.stop()


def pdfs(root: Path) -> list[Path]:
    return [path for path in (root / "out").glob("*.pdf") if not path.name.startswith(".")]


async def test_a_comic_becomes_a_searchable_pdf_and_the_api_tells(
    watching: Running, eventually: Eventually
) -> None:
    root = watching.root
    await eventually(watching.is_ready, timeout=60)
    pages = {
        "p10.png": sample_documents.page(sample_documents.ENGLISH),
        "p9.jpg": sample_documents.page(sample_documents.FRENCH, "JPEG"),
        "Thumbs.db": b"x",
    }
    sample_documents.comic(root / "in/été.cbz.part", pages).rename(root / "in/été.cbz")
    (pdf,) = await eventually(partial(pdfs, root), timeout=90)
    await eventually(lambda: [path.name for path in (root / "archive").iterdir()] == ["été.cbz"])

    text = extract_text(pdf)
    assert "Une vache à l'école" in text
    assert "quick brown fox" in text
    assert text.index("vache") < text.index("fox")
    key = pdf.stem.partition("__job-")[2]
    assert pdf.name == f"été__job-{key}.pdf"

    await eventually(lambda: watching.ask("/jobs")[1][0]["state"] == "DONE")
    status, (job,) = watching.ask("/jobs")
    assert (status, job["jobKey"], job["inputName"], job["outPdf"]) == (200, key, "été.cbz", pdf.name)
    assert watching.ask(f"/jobs/{key}")[1]["state"] == "DONE"
    assert watching.ask("/jobs/nothing")[0] == 404
    assert watching.ask("/jobs/")[0] == 400
    (ready,) = (line for line in watching.lines() if line["event"] == "ready")
    assert watching.ask("/apps/documents/jobs?user=ada", url=ready["url"]) == (200, [])
    assert watching.ask(f"/apps/documents/jobs/{key}", url=ready["url"])[1]["jobKey"] == key
    metrics = watching.ask("/metrics")[1]
    assert (metrics["done"], metrics["running"], metrics["queued"]) == (1, 0, 0)
    await eventually(lambda: json.loads((root / "index/metrics.json").read_text())["done"] == 1)
    assert json.loads((root / "index/jobs.json").read_text())["jobs"][key]["state"] == "DONE"
    assert json.loads((root / f"work/{key}/state.json").read_text())["state"] == "DONE"

    assert watching.ask("/config", {"ocr_concurrency": 2, "default_ocr_lang": "eng", "x": 1}) == (
        200,
        {"applied": {"ocr_concurrency": 2, "default_ocr_lang": "eng"}},
    )
    for wrong in (
        {"ocr_concurrency": 9},
        {"prep_concurrency": 0},
        {"job_timeout_s": "60"},
        [1],
        {"prep_concurrency": None},
    ):
        assert watching.ask("/config", wrong)[0] == 400, wrong
    assert watching.ask("/config")[1] == {
        "prep_concurrency": 2,
        "ocr_concurrency": 2,
        "job_timeout_s": 600,
        "default_ocr_lang": "eng",
    }

    # With another language it is another document; with the first one it is known.
    watching.ask("/config", {"default_ocr_lang": "fra+eng"})
    sample_documents.comic(root / "in/again.cbz", pages)
    (held,) = await eventually(lambda: watching.ask("/duplicates")[1], timeout=20)
    assert held["jobKey"] == key
    assert watching.ask(f"/duplicates/{key}", {"action": "BURN"})[0] == 400
    assert watching.ask(f"/duplicates/{'0' * 64}__{'0' * 64}", {"action": "DISCARD"})[0] == 404
    assert watching.ask(f"/duplicates/{key}", {"action": "USE_EXISTING_RESULT"})[0] == 202
    await eventually((root / f"out/again__job-{key}.pdf").exists, timeout=20)
    await eventually(lambda: watching.ask("/duplicates")[1] == [])


def free_port() -> int:
    with bind("127.0.0.1", 0) as listening:
        return int(listening.getsockname()[1])


@contextlib.contextmanager
def running(root: Path, what: str, port: int = 0, **more: str) -> Iterator[Running]:
    process = Running(root, what, port, **more)
    try:
        yield process
    finally:
        process.stop()


@pytest.mark.timeout(300)
async def test_a_comic_by_real_services_one_of_which_is_down_at_first(
    tmp_path: Path, eventually: Eventually
) -> None:
    """Nothing is taken until both say who they are; the key is that of one who does it all himself."""
    root = tmp_path / "data"
    ports = {"prep": free_port(), "ocr": free_port()}
    urls = {f"{kind.upper()}_URL": f"http://127.0.0.1:{port}" for kind, port in ports.items()}
    (root / "in").mkdir(parents=True)
    pages = {
        "p10.png": sample_documents.page(sample_documents.ENGLISH),
        "p9.webp": sample_documents.page(sample_documents.FRENCH, "WEBP", mode="RGB"),
    }
    comic = sample_documents.comic(root / "in/été.cbz", pages)
    profile = canonical_profile(tools.prep_info(), tools.ocr_info(), "eng+fra")
    _, key = make_job_key(atomic_files.hash_of(comic), profile)
    with running(root, "prep", ports["prep"]) as prep, running(root, "watch", 0, **urls) as watching:
        await eventually(lambda: prep.is_ready() and watching.is_ready(), timeout=60)

        def is_waiting() -> bool:
            return any("nothing is taken" in line.get("error", "") for line in watching.lines())

        await eventually(is_waiting, timeout=30)
        assert comic.exists()
        assert watching.ask("/jobs") == (200, [])
        with running(root, "ocr", ports["ocr"]):
            (pdf,) = await eventually(partial(pdfs, root), timeout=120)
            await eventually((root / "archive/été.cbz").exists)
            await eventually(lambda: watching.ask("/jobs")[1][0]["state"] == "DONE")
    assert pdf.name == f"été__job-{key}.pdf"
    text = extract_text(pdf)
    assert "Une vache à l'école" in text
    assert "quick brown fox" in text
    assert text.index("vache") < text.index("fox")
    for kind, made in (("prep", "rawPdf"), ("ocr", "finalPdf")):
        (path,) = (root / kind / "done").iterdir()
        record = json.loads(path.read_text())
        assert (record["state"], record["pages"], record["is_reused"]) == ("DONE", 2, False)
        assert record["artifacts"].keys() == {made}


async def test_convert_tells_what_became_of_each(tmp_path: Path) -> None:
    """By itself: a service that a watcher uses has another folder, and this one is down."""
    good = sample_documents.comic(
        tmp_path / "good.cbz", {"1.png": sample_documents.page(sample_documents.ENGLISH)}
    )
    bad = tmp_path / "bad.cbz"
    bad.write_bytes(b"nothing")
    command = [sys.executable, "-m", "cograil", "documents", "convert", "--json", "-l", "eng"]
    ended = subprocess.run(
        [*command, str(good), str(bad), "-o", str(tmp_path / "out")],
        env=environment(
            COGRAIL_DOCUMENTS__OCR_FAST_MODE="true",
            COGRAIL_DOCUMENTS__OCR_SIDECAR_TXT="true",
            OCR_URL="http://127.0.0.1:9",
        ),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    first, second = json.loads(ended.stdout)
    assert (first["pages"], first["error"]) == (1, None)
    assert "[invalid_signature]" in second["error"]
    assert "quick brown fox" in extract_text(first["pdf"])
    assert "quick brown fox" in Path(first["pdf"]).with_suffix(".txt").read_text()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["good.pdf", "good.txt"]
    assert good.exists()
    assert bad.exists()
