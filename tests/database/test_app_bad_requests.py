"""Bad input to the doors of apps, over a raw socket: the rows about any body, refused in each app's words.

What they say of bodies of their own is in tests/apps/captures, companies, containers and documents.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.api_client import ApiClient
from tests.support.bad_requests import HTTP, JOBS, JSON_ROWS, Row
from tests.support.harness import quick_settings
from tests.support.openapi_check import app_checkers

from cograil.settings import Settings

POSTS = [
    (name, path.replace("{id}", "a").replace("{key}", "a"))
    for name, described in sorted(app_checkers().items())
    for method, path in described.operations.values()
    if method == "POST"
]
LENIENT = "/apps/documents/config"  # names that it does not know are left out, as the seed says
LINE = f"POST {JOBS} HTTP/1.1".encode()


@pytest.fixture
def harness_settings(tmp_path: Path) -> Settings:
    """All apps are on."""
    return quick_settings(data_dir=tmp_path, documents={"data_dir": tmp_path / "documents"})


def rows() -> list[Row]:
    """Those that post a job, whatever is wrong with them: no app takes one."""
    return [row for row in [*HTTP, *JSON_ROWS] if row.request.startswith(LINE)]


@pytest.mark.parametrize(("name", "path"), POSTS)
async def test_every_row_is_refused_in_the_words_of_the_app(api: ApiClient, name: str, path: str) -> None:
    wrong = []
    for row in rows():
        answer = await api.raw(row.request.replace(LINE, f"POST {path} HTTP/1.1".encode(), 1))
        kind = answer.headers.get("content-type", "")
        flaws = app_checkers()[name].wrong("POST", path, answer.status, kind, answer.raw)
        is_ours = kind == "application/problem+json" and "code" in json.loads(answer.raw)  # before any door
        is_passed_over = path == LENIENT and answer.status == 200 and row.status != 400
        if not (400 <= answer.status < 500 or is_passed_over) or (flaws and not is_ours):
            wrong.append((row.name, answer.status, answer.raw[:200], flaws))
    assert wrong == []


def test_the_corpus_covers_all_apps_and_many_rows() -> None:
    assert {name for name, _ in POSTS} == {"captures", "companies", "containers", "documents"}
    assert len({row.id for row in rows()}) > 15
