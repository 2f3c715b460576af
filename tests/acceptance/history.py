"""cograil as it was: earlier commits of this repository, run beside what is here now.

A program is a directory with its source; PYTHONPATH puts it before the installed one, with the same
interpreter and the same libraries. Which commit is "the previous one" is asked of git, so these tests need
the history: in a shallow clone or without git they fail and say so, for nothing else would show that an
upgrade works.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MIGRATIONS = "src/cograil/store/migrations"
NO_HISTORY = (
    "the tests of upgrades run earlier commits and find none: {}. They need a clone with its history"
    " (`git fetch --unshallow`); without one run the others: --ignore tests/acceptance/test_upgrade.py"
)

# Many commands in one process: a start of Python for each would be most of the time.
DRIVER = """
import io, json, sys
import cograil
from cograil.__main__ import main

answers, stdout = [], sys.stdout
for words in json.load(sys.stdin):
    sys.stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    code = main(words)
    sys.stdout.flush()
    answers.append([code, sys.stdout.buffer.getvalue().decode()])
sys.stdout = stdout
json.dump({"source": cograil.__file__, "answers": answers}, stdout)
"""


@dataclass(frozen=True)
class Program:
    """One cograil, by its source."""

    name: str
    source: Path

    @property
    def file(self) -> str:
        """`cograil.__file__` of it, which tells who ran something."""
        return str(self.source / "cograil" / "__init__.py")

    def migrations(self) -> list[Path]:
        return sorted((self.source / "cograil" / "store" / "migrations").glob("*.sql"))

    def variables(self, dsn: str) -> dict[str, str]:
        """What makes a process this program, on this database."""
        return {
            "PYTHONPATH": str(self.source),
            "COGRAIL_DATABASE_URL": dsn,
            "COGRAIL_DATABASE__ALLOW_UNSAFE": "true",
        }

    def run(self, dsn: str, directory: Path, *commands: Sequence[str]) -> list[tuple[int, Any]]:
        """Give these commands; the exit code of each, and what it wrote, parsed if it is JSON.

        What they said beside that is on our standard error, which pytest shows for a test that fails.
        """
        process = subprocess.run(
            [sys.executable, "-P", "-c", DRIVER],
            input=json.dumps(commands),
            env=self.variables(dsn),
            cwd=directory,
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
        )
        sys.stderr.write(process.stderr)
        assert process.returncode == 0
        report = json.loads(process.stdout)
        assert report["source"] == self.file
        return [(code, json.loads(out) if out.startswith("{") else out) for code, out in report["answers"]]


def today() -> Program:
    """What is here now, committed or not."""
    return Program("today", ROOT / "src")


def previous(directory: Path) -> Program:
    """The newest commit that is not what is here now, and that we can migrate from."""
    for revision in _revisions():
        if _is_beginning(_migrations(revision)) and _differs(revision):
            return _export(revision, directory)
    raise AssertionError(NO_HISTORY.format("no earlier commit has migrations that today's continue"))


def before(program: Program, directory: Path) -> Program:
    """The newest commit with fewer migrations than this program, and that we can migrate from."""
    for revision in _revisions():
        migrations = _migrations(revision)
        if len(migrations) < len(program.migrations()) and _is_beginning(migrations):
            return _export(revision, directory)
    raise AssertionError(NO_HISTORY.format("no earlier commit has fewer migrations that today's continue"))


def _revisions() -> Iterator[str]:
    """Commits that changed the program, newest first."""
    yield from _git("rev-list", "HEAD", "--", "src").split()


def _is_beginning(migrations: list[tuple[str, str]]) -> bool:
    """Whether today's migrations begin with these, unchanged."""
    return bool(migrations) and _todays_migrations()[: len(migrations)] == migrations


def _migrations(revision: str) -> list[tuple[str, str]]:
    """(name, hash) of each migration of a commit, in order."""
    lines = _git("ls-tree", revision, f"{MIGRATIONS}/").splitlines()
    entries = (line.split(None, 3) for line in lines)
    return sorted((Path(path).name, blob) for _, _, blob, path in entries if path.endswith(".sql"))


def _todays_migrations() -> list[tuple[str, str]]:
    files = sorted((ROOT / MIGRATIONS).glob("*.sql"))
    hashes = _git("hash-object", *(str(file) for file in files)).split()
    return list(zip((file.name for file in files), hashes, strict=True))


def _differs(revision: str) -> bool:
    return bool(_git("diff", "--name-only", revision, "--", "src").strip())


def _export(revision: str, directory: Path) -> Program:
    archive = _run_git("archive", revision, "src")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(directory, filter="data")
    _write_facts(tomllib.loads(_git("show", f"{revision}:pyproject.toml"))["project"], directory / "src")
    _write_entry_point(directory / "src" / "cograil")
    return Program(revision[:12], directory / "src")


def _write_entry_point(package: Path) -> None:
    """Let `python -m cograil` start a commit that has no `__main__` of its own."""
    if not (package / "__main__.py").exists():
        text = "import sys\n\nfrom cograil.intake.cli import main\n\nif __name__ == '__main__':\n    sys.exit(main())\n"
        (package / "__main__.py").write_text(text)


def _write_facts(project: dict[str, Any], source: Path) -> None:
    """What it would be installed with: its version, and the apps that it has."""
    facts = source / f"{project['name']}-{project['version']}.dist-info"
    facts.mkdir()
    named = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (facts / "METADATA").write_text(named)
    groups = project.get("entry-points", {}).items()
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in groups]
    (facts / "entry_points.txt").write_text("\n".join(lines))


def _git(*words: str) -> str:
    return _run_git(*words).decode()


def _run_git(*words: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    except FileNotFoundError as error:
        raise AssertionError(NO_HISTORY.format("git is not installed")) from error
    if done.returncode != 0:
        raise AssertionError(NO_HISTORY.format(done.stderr.decode().strip()))
    return done.stdout
