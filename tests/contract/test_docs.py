"""Documentation is tested: what is generated is fresh, what is linked exists, what is shown runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import reference

from cograil.definitions import read_workflow

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("name", sorted(reference.PAGES))
def test_the_reference_is_what_the_code_says(name: str) -> None:
    written = (reference.FOLDER / name).read_text("utf-8")
    assert written == reference.HEAD + reference.PAGES[name](), "stale: run `make docs`"


@pytest.mark.parametrize("name", sorted(reference.DOCUMENTS))
def test_the_openapi_document_is_what_the_code_says(name: str) -> None:
    written = (reference.FOLDER / name).read_text("utf-8")
    assert written == reference.DOCUMENTS[name](), "stale: run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_workflow_shown_passes_the_check(page: Path) -> None:
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.S):
        if "workflow_id:" in block:
            read_workflow(block, str(page))


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.yaml")), ids=lambda path: path.name)
def test_every_example_passes_the_check(example: Path) -> None:
    read_workflow(example.read_text("utf-8"), str(example))


def test_lock_files_name_only_public_hosts() -> None:
    for name in ("uv.lock", "requirements.lock", "requirements-runtime.lock"):
        hosts = set(re.findall(r"https?://([^/\"'\s]+)", (ROOT / name).read_text("utf-8")))
        assert hosts <= {"pypi.org", "files.pythonhosted.org"}, name


def test_the_changelog_has_a_place_for_the_next_version() -> None:
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_readme_shows_the_example_it_runs() -> None:
    assert (ROOT / "examples/hello.yaml").read_text("utf-8") in (ROOT / "README.md").read_text("utf-8")
