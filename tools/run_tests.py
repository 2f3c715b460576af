"""Run pytest and run what failed once more, by itself: `python -m tools.run_tests PYTEST_ARGUMENT ...`.

A shared machine that loses its processors for a while fails tests that are not broken. A test that passes in the
second run is a flake: flakes are counted and named, and more than `MAX_FLAKES` of them are a failure. The limit does
not count when the host took the processors away meanwhile (`steal` in /proc/stat), which is printed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MAX_FLAKES = 10  # to become 3: tests that wait for real processes still fail on a busy machine
MAX_STEAL = 0.05
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
TESTS_FAILED = 1  # pytest's exit code


def main(arguments: list[str]) -> int:
    """Run the tests; return the exit code of the command."""
    ticks = _read_ticks()
    code = _run_pytest(arguments)
    if code != TESTS_FAILED:
        return code
    failed = sorted(json.loads(LAST_FAILED.read_text()))
    steal = _steal_share(ticks, _read_ticks())
    print(f"\n{len(failed)} failed; each runs once more, one at a time:", flush=True)
    again = _run_pytest(["--last-failed", "-rA", "--show-capture", "no", "--tb", "short"])
    if again != 0:
        return again
    print(f"\n{len(failed)} tests passed only when they ran again (at most {MAX_FLAKES} may):")
    print("\n".join(f"  {name}" for name in failed))
    if len(failed) <= MAX_FLAKES:
        return 0
    if steal > MAX_STEAL:
        print(f"The host took {steal:.0%} of the processors away meanwhile: the limit does not count.")
        return 0
    return TESTS_FAILED


def _run_pytest(arguments: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def _read_ticks() -> list[int]:
    """Return the processor ticks by kind since the start of the machine; empty where /proc/stat is missing."""
    try:
        return [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return []


def _steal_share(before: list[int], after: list[int]) -> float:
    """Return the share of processor time that the host gave to others."""
    spent = [late - early for early, late in zip(before, after, strict=True)]
    return spent[7] / sum(spent) if sum(spent) else 0.0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
