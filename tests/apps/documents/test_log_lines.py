"""Lines of a log: which document they are about, and what programs that read JSON find in them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.apps.documents import sample_documents
from tests.apps.documents.document_site import DocumentSite
from tests.conftest import Eventually

from cograil import logs
from cograil.settings import describe, load_settings


@pytest.fixture
def log_stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    with logs.service_name("orchestrator"):
        logs.configure("info", "json", stream)
        yield stream
    logs.configure("info", "auto")


async def test_a_line_says_which_document_and_stage_it_is_about(
    site: DocumentSite, eventually: Eventually, log_stream: io.StringIO
) -> None:
    sample_documents.comic(site.folder.arrivals / "a.cbz", {"../1.png": sample_documents.dot()})

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in log_stream.getvalue().splitlines()]

    async with site.working():
        await eventually(lambda: any(line["message"] == "document failed" for line in lines()))
    (document,) = await site.documents()
    documents = {line["message"]: line for line in lines() if "jobKey" in line}
    assert {line["jobKey"] for line in documents.values()} == {document.key}
    assert {"document taken", "document failed"} < documents.keys()
    (attempt,) = (line for line in documents.values() if "stage" in line)
    assert (attempt["stage"], attempt["attempt"], attempt["node_id"]) == ("prep", 1, "prep")
    for line in lines():
        assert {"timestamp", "level", "service", "message"} <= line.keys()
        assert (line["service"], line["message"]) == ("orchestrator", line["event"])


def test_other_processes_have_the_lines_of_the_engine() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    try:
        structlog.get_logger("x").info("hello")
    finally:
        logs.configure("info", "auto")
    assert json.loads(stream.getvalue()).keys() == {"event", "level", "logger", "timestamp"}


def test_log_json_counts_for_every_process_of_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_JSON", "true")
    monkeypatch.setenv("COGRAIL_LOG__FORMAT", "text")
    settings = load_settings({}, bare_sections=["documents"])
    assert settings.log.format == "json"
    (shown,) = (setting for setting in describe(settings) if setting.name == "log.format")
    assert (shown.value, shown.origin) == ("json", "environment LOG_JSON")


def test_a_service_says_who_it_is(tmp_path: Path) -> None:
    words = ["documents", "prep", "--data", str(tmp_path), "--port", "0"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COGRAIL_")}
    with subprocess.Popen(
        [sys.executable, "-m", "cograil", *words],
        env=clean | {"LOG_JSON": "true"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            line = json.loads(process.stderr.readline())
        finally:
            process.terminate()
    identity = {name: line[name] for name in ("service", "message", "level")}
    assert identity == {"service": "prep-service", "message": "ready", "level": "info"}
