"""The tour names files that exist, with their line counts, and its diagrams have pictures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.site_hooks import MERMAID, diagram_name

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "cograil"
TOUR = (ROOT / "docs/explanation/tour.md").read_text("utf-8")
ROWS = re.findall(r"^\| `([^`]+)` \| ([\d,]+) \|", TOUR, re.M)
NAMED = sorted(set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.(?:py|sql))?)`", TOUR)))


def lines_of(name: str) -> int:
    return len((SOURCE / name).read_text("utf-8").splitlines())


@pytest.mark.parametrize("name", NAMED)
def test_every_file_of_the_tour_exists(name: str) -> None:
    assert (SOURCE / name).exists()


@pytest.mark.parametrize(("name", "lines"), ROWS)
def test_the_line_count_of_a_file_is_right(name: str, lines: str) -> None:
    assert int(lines) == pytest.approx(lines_of(name), rel=0.2, abs=20)


def test_the_total_is_right() -> None:
    stated = re.search(r"^Total: ([\d,]+) lines\.$", TOUR, re.M)
    assert stated is not None
    assert int(stated[1].replace(",", "")) == pytest.approx(sum(lines_of(name) for name, _ in ROWS), rel=0.1)


def test_the_tour_answers_ten_questions() -> None:
    assert len(re.findall(r"^\| Where .*\?", TOUR, re.M)) == 10


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_every_diagram_has_its_picture(page: Path) -> None:
    sources = MERMAID.findall(page.read_text("utf-8"))
    pictures = [ROOT / "docs" / "pictures" / diagram_name(source) for source in sources]
    assert [picture for picture in pictures if not picture.exists()] == [], "run `python -m tools.diagrams`"
