"""cograil as it was: earlier commits of this repository, run beside what is here now.

A program is a directory with its source; PYTHONPATH puts it before the installed one, with the same
interpreter and the same libraries. Which commit is "the previous one" is asked of git, so these tests need
the history: in a shallow clone or without git they fail and say so, for nothing else would show that an
upgrade works.

Only commits count whose migrations today's continue, of the core and of each app: those before the baseline of
0.1.0 made another schema. Until there is such a commit, a copy of what is here now takes its place: it is
another program on the same database, and the tests exercise all but a difference of the code.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MIGRATIONS = "src/cograil/store/migrations"
DEVELOPMENT_STEP = f"{MIGRATIONS}/0001_core.sql"  # every commit before the baseline has it, and none after
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
    """The newest commit that is not what is here now, and that we can migrate from; else a copy of today's."""
    for revision, _ in _continued_revisions():
        if _differs(revision):
            return _export(revision, directory)
    return _copy(directory)


def before(program: Program, directory: Path) -> Program:
    """The newest commit with fewer migrations of the core, and that we can migrate from; else a copy of today's."""
    for revision, migrations in _continued_revisions():
        if len(migrations[MIGRATIONS]) < len(program.migrations()):
            return _export(revision, directory)
    return _copy(directory)


def of_development(directory: Path) -> Program:
    """The newest commit before the baseline of 0.1.0."""
    removals = _git("rev-list", "HEAD", "--", DEVELOPMENT_STEP).split()
    for revision in removals:
        parents = _git("rev-list", "--parents", "-n", "1", revision).split()[1:]
        for commit in (revision, *parents):
            if _git("ls-tree", commit, DEVELOPMENT_STEP):
                return _export(commit, directory)
    raise AssertionError(NO_HISTORY.format(f"no earlier commit has {DEVELOPMENT_STEP}"))


Migrations = dict[str, list[tuple[str, str]]]  # (name, hash) of each file in order, by directory


def _continued_revisions() -> Iterator[tuple[str, Migrations]]:
    """Commits that changed the program and whose migrations today's continue, newest first.

    None is looked for before the first step came; branches that were merged since may still lack it.
    """
    today_migrations = _todays_migrations()
    first = f"{MIGRATIONS}/{today_migrations[MIGRATIONS][0][0]}"
    additions = _git("log", "--format=%H", "--diff-filter=A", "HEAD", "--", first).split()
    if not additions:
        return
    for revision in _git("rev-list", "HEAD", "--not", f"{additions[-1]}^@", "--", "src").split():
        migrations = _migrations(revision)
        if _is_beginning(migrations, today_migrations):
            yield revision, migrations


def _is_beginning(migrations: Migrations, later: Migrations) -> bool:
    """Whether the later migrations begin with these, unchanged, in every directory."""
    return MIGRATIONS in migrations and all(
        later.get(directory, [])[: len(files)] == files for directory, files in migrations.items()
    )


def _migrations(revision: str) -> Migrations:
    lines = _git("ls-tree", "-r", revision, "src/").splitlines()
    entries = (line.split(None, 3) for line in lines)
    return _by_directory((Path(path), blob) for _, _, blob, path in entries)


def _todays_migrations() -> Migrations:
    paths = [path.relative_to(ROOT) for path in (ROOT / "src").rglob("migrations/*.sql")]
    hashes = _git("hash-object", *(str(ROOT / path) for path in paths)).split()
    return _by_directory(zip(paths, hashes, strict=True))


def _by_directory(files: Iterable[tuple[Path, str]]) -> Migrations:
    migrations: Migrations = {}
    for path, blob in sorted(files):
        if path.parent.name == "migrations" and path.suffix == ".sql":
            migrations.setdefault(path.parent.as_posix(), []).append((path.name, blob))
    return migrations


def _copy(directory: Path) -> Program:
    """What is here now, at another place."""
    shutil.copytree(ROOT / "src", directory / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return Program("copy of today", directory / "src")


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
