"""The checks of `tools/release.py` on changelogs."""

from __future__ import annotations

import pytest
from tools.release import changelog_problems, changelog_sections

GOOD = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-11-18\n\n- CLI: a new command.\n"


def test_a_dated_section_below_an_empty_unreleased_can_be_released() -> None:
    assert list(changelog_problems(GOOD, "1.2.0")) == []
    assert changelog_sections(GOOD)["1.2.0"] == ("2026-11-18", "- CLI: a new command.")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GOOD.replace("## [Unreleased]\n", ""), "the first section must be"),
        (GOOD.replace("## [Unreleased]\n", "## [Unreleased]\n- more\n"), "is not empty"),
        (GOOD.replace(" - 2026-11-18", ""), "no section `## ["),
        (GOOD.replace("1.2.0", "1.1.0"), "no section `## ["),
        (GOOD.replace("- CLI: a new command.", ""), "is empty"),
        ("", "the first section must be"),
    ],
)
def test_a_changelog_that_is_not_ready_is_refused(text: str, problem: str) -> None:
    assert problem in "\n".join(changelog_problems(text, "1.2.0"))
