"""Write the figures of a run into docs/crash-points.md: `python -m tests.torture.page DIRECTORY`.

The directory is what TORTURE_RESULTS named during `make torture`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "crash-points.md"
BEGIN, END = "<!-- figures: written by tests/torture/page.py -->", "<!-- end of figures -->"

Figures = dict[str, Any]


def main(directory: str) -> None:
    """Replace what is between the marks."""
    results = [json.loads(path.read_text()) for path in sorted(Path(directory).glob("*.json"))]
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    figures = "\n".join(_lines(results))
    PAGE.write_text(f"{head}{BEGIN}\n\n{figures}\n\n{END}{tail}")


def _lines(results: list[Figures]) -> Iterator[str]:
    singles = [one for one in results if "visits" in one]
    pairs = [one for one in results if one["mode"] == "pairs"]
    mutants = [one for one in results if one["mode"] == "mutant"]
    yield "### The points and how often a job passes them"
    yield ""
    yield from _points(singles)
    yield ""
    yield "### One fault"
    yield ""
    yield from _table("scenario, victim, mode", singles)
    yield ""
    yield "### Two faults: who recovers is killed as well"
    yield ""
    yield from _table("scenario, first, second", pairs)
    yield ""
    yield "### Mistakes that must be seen"
    yield ""
    yield from _mutants(mutants)


def _points(singles: list[Figures]) -> Iterator[str]:
    columns = sorted({(one["scenario"], one["role"]) for one in singles})
    visits = {(one["scenario"], one["role"]): one["visits"] for one in singles}
    yield f"| point | {' | '.join(f'{scenario} {role}' for scenario, role in columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for name in sorted({name for counts in visits.values() for name in counts}):
        yield f"| `{name}` | {' | '.join(str(visits[column].get(name, '')) for column in columns)} |"
    totals = (str(sum(visits[column].values())) for column in columns)
    yield f"| **all** | {' | '.join(totals)} |"


def _table(subject: str, results: list[Figures]) -> Iterator[str]:
    yield f"| {subject} | points | runs | struck | never came | violations | seconds |"
    yield "|---|---|---|---|---|---|---|"
    for one in results:
        yield _row(f"{one['scenario']}, {one['role']}, {one['mode']}".removesuffix(", pairs"), [one])
    yield _row("**all**", results)


def _row(title: str, results: list[Figures]) -> str:
    def total(key: str) -> int:
        return sum(one[key] for one in results)

    missed = sum(len(one["missed"]) for one in results)
    violations = sum(len(one["violations"]) for one in results)
    struck = total("points") - missed
    cells = [title, total("points"), total("runs"), struck, missed, violations, round(total("seconds"))]
    return f"| {' | '.join(map(str, cells))} |"


def _mutants(mutants: list[Figures]) -> Iterator[str]:
    yield "| mutant | mistake | points tried | seen at |"
    yield "|---|---|---|---|"
    for one in mutants:
        name = one["name"].removeprefix("mutant-")
        yield f"| `{name}` | {one['mistake']} | {one['points']} | {len(one['violations'])} |"


if __name__ == "__main__":
    main(sys.argv[1])
