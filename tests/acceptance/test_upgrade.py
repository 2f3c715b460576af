"""Upgrades: the program before this one and this one, on the same database, with real processes."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.acceptance import history
from tests.acceptance.history import Program
from tests.acceptance.instances import Running, Start
from tests.acceptance.upgrade_flows import APP, CORE, LATER, TWICE, text_of

from cograil.store.migrate import known_migrations

NEW = history.today()
STATES = """
select j.workflow_id, n.node_id,
  coalesce(t.state, case when n.not_before is null then n.status else 'later' end)
from cograil.jobs j
left join cograil.nodes n on n.job_id = j.id
left join cograil.tasks t on t.job_id = j.id and t.node_id = n.node_id
"""
LEFT: Set[tuple[str | None, ...]] = {
    ("done", "b", "completed"),
    ("chain", "b", "running"),
    ("backoff", "b", "later"),
    ("fan", "split__2", "running"),
    ("ask", "b", "waiting"),
    ("parent", "b", "waiting"),
    ("quiet", None, None),
    ("steps", "b", "running"),
    ("narrow", "b", "running"),
    ("narrow", "b", "held"),
    ("single_file", "b", "running"),
    ("single_file", None, None),
}


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return history.previous(tmp_path_factory.mktemp("previous"))


@pytest.fixture(scope="module")
def previous_schema(previous: Program, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return history.before(previous, tmp_path_factory.mktemp("schema"))


@pytest.fixture(params=["previous", "previous_schema"])
def old(request: pytest.FixtureRequest) -> Program:
    """The commit before this one; then the last one with fewer migrations than that. See `history`."""
    program: Program = request.getfixturevalue(request.param)
    return program


@pytest.fixture
def neighbour(previous: Program, previous_schema: Program) -> Program:
    """The oldest of them that this one promises to work with, on today's schema."""
    for program in (previous_schema, previous):
        if is_promised(program):
            return program
    pytest.skip("the last step of the schema is not compatible: older programs are stopped before it")


def is_promised(old: Program) -> bool:
    """Whether each step that the older program does not know leaves it working."""
    return all(step.is_compatible for step in known_migrations()[len(old.migrations()) :])


@dataclass
class Site:
    """A database, a directory, and programs that work there."""

    dsn: str
    directory: Path
    start: Start
    eventually: Any

    def give(self, program: Program, *commands: str) -> list[Any]:
        """Give commands, each a line of words; all must do. What each wrote."""
        answers = program.run(self.dsn, self.directory, *(command.split() for command in commands))
        # A doctor says 1: the server of the tests may forget.
        assert [code for code, _ in answers] == [int("doctor" in command) for command in commands], answers
        return [written for _, written in answers]

    async def begin(self, program: Program, *kinds: str) -> list[Running]:
        """Processes of this program, ready."""
        app = {"worker": ("--app", "upgrade_app")}
        parts = [self.start(kind, *app.get(kind, ()), **program.variables(self.dsn)) for kind in kinds]
        for part in parts:
            await self.eventually(part.is_ready, timeout=30)
        return parts

    def submit(self, program: Program, names: Iterable[str]) -> dict[str, str]:
        """Migrate, publish these, submit a job of each; job by workflow, the last if there are two."""
        for name in names:
            (self.directory / f"{name}.yaml").write_text(text_of(name))
        files = " ".join(f"{name}.yaml" for name in names)
        pause = ["pause workflow quiet"] if "quiet" in names else []
        jobs = [name for name in names for _ in range(1 + (name in TWICE))]
        submits = [f"submit {name} --json" for name in jobs]
        answers = self.give(program, "db migrate", f"publish {files}", *pause, *submits)
        ids = [answer["job_id"] for answer in answers[-len(jobs) :]]
        return dict(zip(jobs, ids, strict=True))

    async def rows(self, query: str) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as conn:
            return await (await conn.execute(query.encode())).fetchall()

    async def reach(self, states: Set[tuple[str | None, ...]]) -> None:
        """Wait until nodes are in these states."""
        missing = states
        for _ in range(1000):
            missing = states - set(await self.rows(STATES))
            if not missing:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"not reached: {missing} in {await self.rows(STATES)}")

    async def all_completed(self) -> None:
        """Wait until every job has ended; all must have completed."""
        jobs = "select workflow_id, status from cograil.jobs where status <> 'completed'"

        async def ended() -> bool:
            return not [job for job in await self.rows(jobs) if job[1] in ("pending", "running")]

        await self.eventually(ended, timeout=30)
        assert await self.rows(jobs) == []

    def open_door(self) -> None:
        (self.directory / "door").touch()


def problems(report: dict[str, Any]) -> list[dict[str, Any]]:
    """What a doctor found red, but for the server that may forget."""
    assert len(report["findings"]) > 10
    return [
        finding for finding in report["findings"] if finding["level"] == "red" and finding["code"] != "S2"
    ]


def site_at(dsn: str, tmp_path: Path, start: Start, eventually: Any) -> Site:
    (tmp_path / "upgrade_app.py").write_text(APP)
    return Site(dsn, tmp_path, start, eventually)


@pytest.fixture
def site(dsn: str, tmp_path: Path, start: Start, eventually: Any) -> Site:
    """A database with today's schema."""
    return site_at(dsn, tmp_path, start, eventually)


@pytest.fixture
def empty_site(empty_dsn: str, tmp_path: Path, start: Start, eventually: Any) -> Site:
    return site_at(empty_dsn, tmp_path, start, eventually)


async def leave_behind(site: Site, old: Program) -> dict[str, str]:
    """The old program brings jobs into every state it knows, and is killed."""
    jobs = site.submit(old, CORE | LATER)
    parts = await site.begin(old, "orchestrator", "worker")
    await site.reach(LEFT)
    for part in parts:
        part.send(signal.SIGKILL)
        part.ended()
    return jobs


async def test_jobs_left_by_an_older_program_are_finished_by_this_one(empty_site: Site, old: Program) -> None:
    site = empty_site
    jobs = await leave_behind(site, old)
    answers = [f"approve {jobs['ask']} b", "resume workflow quiet"]
    plan, *_ = site.give(NEW, "db migrate --plan --json", "db migrate", *answers)
    assert len([step for step in plan["pending"] if "app" not in step]) == len(NEW.migrations()) - len(
        old.migrations()
    )
    await site.begin(NEW, "orchestrator", "worker")
    site.open_door()
    await site.all_completed()

    expected = {
        "chain": {"began": old.file, "by": NEW.file},
        "steps": {"first": old.file, "second": NEW.file},
    }
    shows = [f"show {jobs[name]} --node b --json" for name in expected]
    *shown, _, report = site.give(NEW, *shows, f"retry {jobs['done']} --from b --wait", "doctor --json")
    assert [job["nodes"][0]["output"] for job in shown] == list(expected.values())
    assert problems(report) == []


@pytest.mark.parametrize("is_worker_old", [True, False])
async def test_an_older_process_that_is_still_there_works_with_newer_ones_on_the_new_schema(
    empty_site: Site, neighbour: Program, is_worker_old: bool
) -> None:
    site, kinds = empty_site, ("worker", "orchestrator") if is_worker_old else ("orchestrator", "worker")
    site.give(neighbour, "db migrate")
    (neighbour_process,) = await site.begin(neighbour, kinds[0])
    site.open_door()
    jobs = site.submit(NEW, CORE | LATER)
    await site.begin(NEW, kinds[1])
    site.give(NEW, f"approve {jobs['ask']} b", "resume workflow quiet")
    await site.all_completed()
    shown, report = site.give(NEW, f"show {jobs['chain']} --node b --json", "doctor --json")
    assert shown["nodes"][0]["output"]["by"] == (neighbour if is_worker_old else NEW).file
    assert neighbour_process.process.poll() is None
    assert "job quarantined" not in neighbour_process.events()
    assert problems(report) == []


async def test_an_older_program_starts_on_the_new_schema_or_says_why_not(site: Site, old: Program) -> None:
    if is_promised(old):
        await site.begin(old, "orchestrator", "worker")
        (report,) = site.give(old, "doctor --json")
        assert problems(report) == []
        return
    orchestrator = site.start("orchestrator", **old.variables(site.dsn))
    assert orchestrator.ended() == 1
    assert "a newer cograil migrated it" in orchestrator.output


def next_program(directory: Path, mark: str) -> Program:
    """What is here now, with one more step."""
    shutil.copytree(NEW.source, directory / "src", ignore=shutil.ignore_patterns("*.pyc.*"))
    program = Program("next", directory / "src")
    steps = program.migrations()
    step = f"-- One more.\n{mark}alter table jobs add column more text; create table more (x int);\n"
    (steps[0].parent / f"{len(steps) + 1:04d}_more.sql").write_text(step)
    return program


async def test_this_program_works_on_a_newer_schema_whose_steps_are_compatible(
    site: Site, tmp_path: Path
) -> None:
    newer = next_program(tmp_path / "next", "-- compatible: yes\n")
    site.give(newer, "db migrate")
    await site.begin(NEW, "orchestrator", "worker")
    site.submit(NEW, CORE)
    site.open_door()
    await site.all_completed()
    status, nothing, report = site.give(NEW, "db status --json", "db migrate --json", "doctor --json")
    assert (status["current"], status["problems"]) == (status["known"] + 1, [])
    assert nothing == {"applied": []}
    assert problems(report) == []


def test_this_program_refuses_a_newer_schema_that_does_not_say_so(site: Site, tmp_path: Path) -> None:
    site.give(next_program(tmp_path / "next", ""), "db migrate")
    refused = [site.start(kind, **NEW.variables(site.dsn)) for kind in ("orchestrator", "worker")]
    for process in refused:
        assert process.ended() == 2
        assert "a newer cograil migrated it; update this one" in process.output


def test_a_database_of_a_development_version_is_refused_and_left_as_it_is(
    empty_site: Site, tmp_path: Path
) -> None:
    """Each side says so: neither of the two programs works on the schema of the other."""
    site, development = empty_site, history.of_development(tmp_path / "development")
    site.give(development, "db migrate")
    for arguments in (("db", "migrate"), ("server",), ("orchestrator",), ("worker",), ("up", "--port", "0")):
        process = site.start(*arguments, **NEW.variables(site.dsn))
        assert process.ended() == 2, arguments
        assert "made by a development version of cograil before 0.1.0" in process.output
        assert "use a new database" in process.output
    ((code, status),) = NEW.run(site.dsn, site.directory, ["db", "status", "--json"])
    assert (code, status["current"]) == (1, len(development.migrations()))
    assert "cannot be upgraded" in status["problems"][0]


def test_a_development_version_refuses_the_schema_of_this_program(site: Site, tmp_path: Path) -> None:
    development = history.of_development(tmp_path / "development")
    process = site.start("orchestrator", **development.variables(site.dsn))
    assert process.ended() != 0
    assert "is not the one of this program" in process.output
