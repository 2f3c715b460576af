"""Write the figures of a run into docs/explanation/crash-points.md: `python -m tests.torture.page DIRECTORY`.

The directory is what TORTURE_RESULTS named during `make torture`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "crash-points.md"
BEGIN, END = "<!-- figures: written by tests/torture/page.py -->", "<!-- end of figures -->"

Figures = dict[str, Any]


def main(directory: str) -> None:
    """Replace what is between the marks."""
    results = [json.loads(path.read_text()) for path in sorted(Path(directory).glob("*.json"))]
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    figures = "\n".join(_lines(results))
    PAGE.write_text(f"{head}{BEGIN}\n\n{figures}\n\n{END}{tail}")


def points_in_the_page() -> set[str]:
    """Those that some victim passed when it was written."""
    _, _, figures = PAGE.read_text().partition(BEGIN)
    return set(re.findall(r"^\| `([a-z_]+\.[a-z_.]+)` \|", figures, re.MULTILINE))


def _lines(results: list[Figures]) -> Iterator[str]:
    singles = [figures for figures in results if "visits" in figures]
    pairs = [figures for figures in results if figures["mode"] == "pairs"]
    mutants = [figures for figures in results if figures["mode"] == "mutant"]
    yield "### The points and how often a job passes them"
    yield ""
    yield from _points(singles)
    yield ""
    yield "### One fault"
    yield ""
    yield from _victims(singles)
    yield ""
    yield "### Two faults: who recovers is killed as well"
    yield ""
    yield from _pairs(pairs)
    yield ""
    yield "### Mistakes that must be seen"
    yield ""
    yield from _mutants(mutants)


def _points(singles: list[Figures]) -> Iterator[str]:
    """For each point how many victims pass it, how often all of them together, and who most often."""
    visits = {f"{figures['scenario']} {figures['role']}": figures["visits"] for figures in singles}
    yield "| point | victims | visits | most often in |"
    yield "|---|---|---|---|"
    for name in sorted({name for counts in visits.values() for name in counts}):
        passing = {victim: counts[name] for victim, counts in visits.items() if name in counts}
        most = max(sorted(passing), key=lambda victim: passing[victim])
        yield f"| `{name}` | {len(passing)} | {sum(passing.values())} | {most}: {passing[most]} |"
    yield f"| **all** | {len(visits)} | {sum(sum(counts.values()) for counts in visits.values())} | |"


def _victims(singles: list[Figures]) -> Iterator[str]:
    """The modes of a victim together."""
    victims: dict[str, list[Figures]] = {}
    for figures in singles:
        victims.setdefault(f"{figures['scenario']}, {figures['role']}", []).append(figures)
    yield from _head("scenario, victim: modes")
    for victim, results in victims.items():
        yield _row(f"{victim}: {', '.join(figures['mode'] for figures in results)}", results)
    yield _row("**all**", singles)


def _pairs(pairs: list[Figures]) -> Iterator[str]:
    yield from _head("scenario, first, second")
    for figures in pairs:
        yield _row(f"{figures['scenario']}, {figures['role']}", [figures])
    yield _row("**all**", pairs)


def _head(subject: str) -> Iterator[str]:
    yield f"| {subject} | points | runs | struck | never came | violations | seconds |"
    yield "|---|---|---|---|---|---|---|"


def _row(title: str, results: list[Figures]) -> str:
    def total(key: str) -> int:
        return sum(figures[key] for figures in results)

    missed = sum(len(figures["missed"]) for figures in results)
    violations = sum(len(figures["violations"]) for figures in results)
    struck = total("points") - missed
    cells = [title, total("points"), total("runs"), struck, missed, violations, round(total("seconds"))]
    return f"| {' | '.join(map(str, cells))} |"


def _mutants(mutants: list[Figures]) -> Iterator[str]:
    yield "| mutant | mistake | points tried | seen at |"
    yield "|---|---|---|---|"
    for figures in mutants:
        name = figures["name"].removeprefix("mutant-")
        yield f"| `{name}` | {figures['mistake']} | {figures['points']} | {len(figures['violations'])} |"


if __name__ == "__main__":
    main(sys.argv[1])
