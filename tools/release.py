"""Prepare a release: `python -m tools.release 0.1.0`.

Checks that the tree is clean, that pyproject.toml has the version, that CHANGELOG.md has a dated section for it and an
empty `Unreleased` above, and that the tag is new. Then builds the sdist and the wheel into dist/ and creates the tag.
With `--check` it builds nothing and creates no tag. It pushes and uploads nothing: it prints the commands that do.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?$", re.M)


def changelog_sections(text: str) -> dict[str, tuple[str | None, str]]:
    """Date and body of each section, by name, newest first."""
    headings = list(HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)] * bool(headings)
    return {
        heading["name"]: (heading["date"], text[heading.end() : end].strip())
        for heading, end in zip(headings, ends, strict=True)
    }


def changelog_problems(text: str, version: str) -> Iterator[str]:
    """Everything in the changelog that keeps `version` from being released."""
    sections = changelog_sections(text)
    if next(iter(sections), None) != "Unreleased":
        yield "CHANGELOG.md: the first section must be `## [Unreleased]`"
    elif sections["Unreleased"][1]:
        yield f"CHANGELOG.md: `Unreleased` is not empty; move its lines to `## [{version}] - DATE`"
    date, body = sections.get(version, (None, ""))
    if not date:
        yield f"CHANGELOG.md: missing section `## [{version}] - YYYY-MM-DD`"
    elif not body:
        yield f"CHANGELOG.md: the section of {version} is empty"


def project_version(text: str) -> str:
    """The version in pyproject.toml."""
    return str(tomllib.loads(text)["project"]["version"])


def problems(version: str) -> Iterator[str]:
    """Everything that keeps `version` from being released."""
    if not VERSION.fullmatch(version):
        yield f"{version!r} is not a version such as 1.2.3 or 1.2.3rc1"
    declared = project_version((ROOT / "pyproject.toml").read_text("utf-8"))
    if declared != version:
        yield f"pyproject.toml: the version is {declared}, not {version}"
    yield from changelog_problems((ROOT / "CHANGELOG.md").read_text("utf-8"), version)
    if changes := git("status", "--porcelain"):
        yield f"the working tree is not clean:\n{changes}"
    if git("tag", "--list", f"v{version}"):
        yield f"the tag v{version} exists already"


def git(*arguments: str) -> str:
    """The output of a git command in the repository. Raises CalledProcessError when it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.rstrip()


def build() -> list[Path]:
    """Build the sdist and the wheel into an empty dist/; their paths."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    builder = ["uv", "build", "--quiet"] if shutil.which("uv") else [sys.executable, "-m", "build"]
    subprocess.run(builder, cwd=ROOT, check=True)
    return sorted([*ROOT.glob("dist/*.whl"), *ROOT.glob("dist/*.tar.gz")])


def main() -> int:
    """Release the version on the command line; 1 when something keeps it from being released."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.release", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("version", help="the version to release, as in pyproject.toml")
    parser.add_argument("--check", action="store_true", help="only check; build nothing and create no tag")
    options = parser.parse_args()
    blockers = list(problems(options.version))
    for problem in blockers:
        print(f"error: {problem}", file=sys.stderr)
    if blockers or options.check:
        return 1 if blockers else 0
    packages = build()
    git("tag", "--annotate", f"v{options.version}", "--message", f"cograil {options.version}")
    print(
        f"Built {', '.join(path.name for path in packages)} and created the tag v{options.version}. To publish:"
    )
    print(f"  git push origin v{options.version}\n  uv publish dist/*")
    return 0


if __name__ == "__main__":
    sys.exit(main())
