from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg.rows import dict_row

from cograil.errors import DatabaseUnavailable, SchemaMismatch, UnsafeDatabase
from cograil.store import migrate as module
from cograil.store.migrate import check_server, known_migrations, migrate, plan, status

STATEMENTS = [
    "create table cograil.a (x int);",
    "insert into cograil.a values (1);",
    "create table b (y int);",
    "alter table a add column z text default 'new';",
]


@pytest_asyncio.fixture
async def conn(empty_dsn: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await connect(empty_dsn) as connection:
        yield connection


async def connect(dsn: str) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(dsn, autocommit=True)


def write(directory: Path, *files: str) -> Path:
    """Each text as the next migration, in place of all that were there."""
    directory.mkdir(exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    for number, text in enumerate(files, start=1):
        (directory / f"{number:04d}_step.sql").write_text(text)
    return directory


async def tables(conn: psycopg.AsyncConnection[Any]) -> set[str]:
    rows = await conn.execute("select tablename from pg_tables where schemaname = 'cograil'")
    return {name for (name,) in await rows.fetchall()} - {"schema_migrations"}


async def versions(conn: psycopg.AsyncConnection[Any]) -> list[int]:
    rows = await conn.execute("select version from cograil.schema_migrations order by version")
    return [version for (version,) in await rows.fetchall()]


async def test_migrations_are_applied_in_order_and_once(conn: Any, tmp_path: Path) -> None:
    steps = write(tmp_path / "m", "create table a (x int);", "alter table a add y int; create table b ();")
    assert [m.version for m in await plan(conn, steps)] == [1, 2]
    assert await tables(conn) == set()

    reported: list[str] = []
    done = await migrate(conn, lambda migration: reported.append(str(migration)), steps)

    assert reported == ["0001_step", "0002_step"] == [str(m) for m in done]
    assert await tables(conn) == {"a", "b"}
    assert await migrate(conn, directory=steps) == []
    assert await plan(conn, steps) == []
    cursor = await conn.execute("select name, checksum, program from cograil.schema_migrations")
    (name, checksum, program), *_ = await cursor.fetchall()
    assert (name, checksum) == ("step", done[0].checksum)
    assert program.startswith("cograil ")


async def test_a_newer_program_adds_its_steps(conn: Any, tmp_path: Path) -> None:
    first = "create table a (x int);"
    await migrate(conn, directory=write(tmp_path / "m", first))
    done = await migrate(conn, directory=write(tmp_path / "m", first, "create table b ();"))
    assert [m.version for m in done] == [2]


async def test_status_tells_where_we_are_and_changes_nothing(conn: Any, tmp_path: Path) -> None:
    steps = write(tmp_path / "m", "create table a ();", "create table b ();")
    state = await status(conn, steps)
    assert (state.current, state.known, len(state.pending), state.problems) == (0, 2, 2, ())
    schema = await (await conn.execute("select to_regnamespace('cograil')")).fetchone()
    assert schema == (None,)
    await migrate(conn, directory=steps)
    state = await status(conn, steps)
    assert (state.current, state.known, state.pending, state.problems) == (2, 2, (), ())


async def test_a_program_without_migrations_is_content(conn: Any, tmp_path: Path) -> None:
    assert await migrate(conn, directory=write(tmp_path / "m")) == []
    assert await migrate(conn, directory=tmp_path / "missing") == []


async def test_a_changed_migration_is_refused(conn: Any, tmp_path: Path) -> None:
    await migrate(conn, directory=write(tmp_path / "m", "create table a ();"))
    changed = write(tmp_path / "m", "create table a (x int);", "create table b ();")
    assert len((await status(conn, changed)).problems) == 1
    with pytest.raises(SchemaMismatch, match=r"0001_step .* checksum differs"):
        await migrate(conn, directory=changed)
    assert await tables(conn) == {"a"}


async def test_line_ends_of_a_checkout_are_no_change(conn: Any, tmp_path: Path) -> None:
    steps = write(tmp_path / "m", "create table a ();\n")
    await migrate(conn, directory=steps)
    (steps / "0001_step.sql").write_bytes(b"create table a ();\r\n")
    assert await plan(conn, steps) == []


async def test_a_database_of_a_newer_program_is_refused(conn: Any, tmp_path: Path) -> None:
    await migrate(conn, directory=write(tmp_path / "m", "create table a ();", "create table b ();"))
    with pytest.raises(SchemaMismatch, match="schema 2, this program knows 1"):
        await migrate(conn, directory=write(tmp_path / "m", "create table a ();"))


async def test_a_program_works_with_newer_steps_when_all_of_them_are_compatible(
    conn: Any, tmp_path: Path
) -> None:
    first, added = "create table a ();", "-- More.\n-- compatible: yes\ncreate table {} ();"
    await migrate(conn, directory=write(tmp_path / "m", first, added.format("b"), added.format("c")))
    older = write(tmp_path / "m", first)
    assert await migrate(conn, directory=older) == []
    state = await status(conn, older)
    assert (state.current, state.known, state.pending, state.problems) == (3, 1, (), ())

    changed = write(tmp_path / "m", "create table a (x int);")
    with pytest.raises(SchemaMismatch, match="checksum differs"):
        await plan(conn, changed)


@pytest.mark.parametrize("mark", ["-- compatible: no\n", "", "select 1;\n-- compatible: yes\n"])
async def test_one_newer_incompatible_step_stops_an_older_program(
    conn: Any, tmp_path: Path, mark: str
) -> None:
    first, last = "create table a ();", "-- compatible: yes\ncreate table c ();"
    await migrate(conn, directory=write(tmp_path / "m", first, f"{mark}create table b ();", last))
    with pytest.raises(SchemaMismatch, match="cannot work with step 2: a newer cograil migrated it"):
        await plan(conn, write(tmp_path / "m", first))


async def test_a_hole_among_the_newer_steps_is_refused(conn: Any, tmp_path: Path) -> None:
    added = "-- compatible: yes\ncreate table {} ();"
    await migrate(conn, directory=write(tmp_path / "m", *map(added.format, "abc")))
    await conn.execute("delete from cograil.schema_migrations where version = 2")
    with pytest.raises(SchemaMismatch, match="cannot work with step 2"):
        await plan(conn, write(tmp_path / "m", added.format("a")))


async def test_a_database_of_a_development_version_is_refused_with_a_way_out(
    conn: Any, tmp_path: Path
) -> None:
    await migrate(conn, directory=write(tmp_path / "m", "create table a ();"))
    await conn.execute("update cograil.schema_migrations set name = 'core'")
    with pytest.raises(SchemaMismatch, match=r"before 0\.1\.0 and cannot be upgraded: use a new database"):
        await migrate(conn)
    assert await tables(conn) == {"a"}


async def test_a_hole_in_the_history_is_refused(conn: Any, tmp_path: Path) -> None:
    steps = write(tmp_path / "m", "create table a ();", "create table b ();")
    await migrate(conn, directory=steps)
    await conn.execute("delete from cograil.schema_migrations where version = 1")
    with pytest.raises(SchemaMismatch, match="0001_step is missing in the database, which has schema 2"):
        await plan(conn, steps)


@pytest.mark.parametrize("boundary", range(len(STATEMENTS) + 1))
async def test_a_session_lost_between_statements_leaves_nothing_of_the_step(
    empty_dsn: str, conn: Any, tmp_path: Path, boundary: int
) -> None:
    lethal = STATEMENTS.copy()
    lethal.insert(boundary, "select pg_terminate_backend(pg_backend_pid());")
    dying = await connect(empty_dsn)
    with pytest.raises(psycopg.OperationalError):
        await migrate(dying, directory=write(tmp_path / "m", "\n".join(lethal)))
    await dying.close()

    assert await tables(conn) == set()
    assert (await status(conn, tmp_path / "m")).current == 0
    await migrate(conn, directory=write(tmp_path / "m", "\n".join(STATEMENTS)))
    assert await tables(conn) == {"a", "b"}
    assert await (await conn.execute("select x, z from cograil.a")).fetchall() == [(1, "new")]


MIGRATOR = """
import asyncio, psycopg, sys
from pathlib import Path
from cograil.store.migrate import migrate

async def main():
    async with await psycopg.AsyncConnection.connect(sys.argv[1], autocommit=True) as conn:
        await migrate(conn, directory=Path(sys.argv[2]))

asyncio.run(main())
"""


def migrator(dsn: str, steps: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", MIGRATOR, dsn, str(steps)])


@pytest.mark.parametrize("boundary", range(1, len(STATEMENTS) + 1))
async def test_a_migrator_killed_between_statements_leaves_whole_steps(
    empty_dsn: str, conn: Any, tmp_path: Path, eventually: Any, boundary: int
) -> None:
    """The first step stays, the second is gone, and the next migrator goes on from there."""
    blocked = STATEMENTS.copy()
    # Shared locks do not wait for each other: a second migrator passes where the first was held up.
    blocked.insert(boundary, "select pg_advisory_xact_lock_shared(42);")
    steps = write(tmp_path / "m", "create table first ();", "\n".join(blocked))
    await conn.execute("select pg_advisory_lock(42)")
    process = migrator(empty_dsn, steps)

    async def waits() -> bool:
        rows = await conn.execute("select 1 from pg_locks where locktype = 'advisory' and not granted")
        return bool(await rows.fetchall())

    await eventually(waits, timeout=30)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    await conn.execute("select pg_advisory_unlock(42)")

    await migrate(conn, directory=steps)
    assert await versions(conn) == [1, 2]
    assert await tables(conn) == {"first", "a", "b"}
    assert await (await conn.execute("select x, z from cograil.a")).fetchall() == [(1, "new")]


async def test_many_migrators_at_once_apply_each_step_once(empty_dsn: str, conn: Any, tmp_path: Path) -> None:
    steps = write(tmp_path / "m", *[f"create table t{n} (); select pg_sleep(0.01);" for n in range(5)])

    async def one() -> int:
        async with await connect(empty_dsn) as mine:
            return len(await migrate(mine, directory=steps))

    applied = await asyncio.gather(*[one() for _ in range(8)])
    assert sum(applied) == 5
    assert await versions(conn) == [1, 2, 3, 4, 5]


async def test_migrating_processes_apply_each_step_once(empty_dsn: str, conn: Any, tmp_path: Path) -> None:
    steps = write(tmp_path / "m", "create table a ();", "create table b ();")
    processes = [migrator(empty_dsn, steps) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert await versions(conn) == [1, 2]


async def test_the_second_of_two_programs_with_different_migrations_is_refused(
    empty_dsn: str, conn: Any, tmp_path: Path
) -> None:
    mine = write(tmp_path / "mine", "create table a (); select pg_sleep(0.05);")
    other = write(tmp_path / "other", "create table b (); select pg_sleep(0.05);")
    async with await connect(empty_dsn) as another:
        results = await asyncio.gather(
            migrate(conn, directory=mine), migrate(another, directory=other), return_exceptions=True
        )
    assert {type(result) for result in results} == {list, SchemaMismatch}
    assert len(await tables(conn)) == 1


async def test_a_step_gives_way_to_a_lock_and_comes_back(
    empty_dsn: str, conn: Any, tmp_path: Path, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(conn, directory=write(tmp_path / "m", "create table a ();"))
    steps = write(tmp_path / "m", "create table a ();", "alter table a add x int;")
    attempts = 0
    apply = module._apply

    async def counted(*arguments: Any) -> bool:
        nonlocal attempts
        attempts += 1
        return await apply(*arguments)

    monkeypatch.setattr(module, "_apply", counted)
    async with await connect(empty_dsn) as holder:
        await holder.execute("begin")
        await holder.execute("lock table cograil.a")
        running = asyncio.create_task(migrate(conn, directory=steps))
        await eventually(lambda: attempts > 1)
        await holder.execute("rollback")
        assert [m.version for m in await running] == [2]


async def test_patience_ends_with_a_reason(
    empty_dsn: str, conn: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0)
    async with await connect(empty_dsn) as holder:
        await holder.execute("select pg_advisory_lock(%s)", [module.LOCK_KEY])
        with pytest.raises(DatabaseUnavailable, match="0001_step cannot get its locks"):
            await migrate(conn, directory=write(tmp_path / "m", "create table a ();"))


async def test_a_failing_step_raises_and_leaves_the_connection_usable(conn: Any, tmp_path: Path) -> None:
    steps = write(tmp_path / "m", "create table a ();", "create table b (); select 1/0;")
    with pytest.raises(psycopg.errors.DivisionByZero):
        await migrate(conn, directory=steps)
    assert await tables(conn) == {"a"}
    assert await versions(conn) == [1]
    setting = await (await conn.execute("show lock_timeout")).fetchone()
    assert setting == ("0",)


async def test_a_connection_that_does_not_commit_is_refused(empty_dsn: str, tmp_path: Path) -> None:
    async with await psycopg.AsyncConnection.connect(empty_dsn) as conn:
        with pytest.raises(ValueError, match="autocommit"):
            await migrate(conn, directory=write(tmp_path / "m", "create table a ();"))


async def test_rows_may_have_any_shape(empty_dsn: str, tmp_path: Path) -> None:
    steps = write(tmp_path / "m", "create table a ();")
    async with await connect(empty_dsn) as conn:
        conn.row_factory = dict_row
        assert len(await migrate(conn, directory=steps)) == 1
        await check_server(conn, allow_unsafe=True)


async def test_a_role_that_may_not_make_schemas_migrates_in_a_given_one(
    empty_dsn: str, conn: Any, tmp_path: Path
) -> None:
    role = "plain_" + re.sub(r"\W", "", conn.info.dbname)
    await conn.execute(f"create role {role} login; create schema cograil authorization {role}")
    plain = psycopg.conninfo.make_conninfo(empty_dsn, user=role)
    async with await connect(plain) as limited:
        assert len(await migrate(limited, directory=write(tmp_path / "m", "create table a ();"))) == 1
    await conn.execute(f"drop owned by {role}; drop role {role}")


@pytest.mark.parametrize(
    ("names", "text", "complaint"),
    [
        (["0001_a.sql", "0001_b.sql"], "", "0001_a and 0001_b have the same number"),
        (["1_a.sql"], "", "must have a name such as"),
        (["0001_a.sql"], "create table a ();\nCOMMIT;\n", "begin or end a transaction"),
        (["0001_a.sql"], "begin;\ncreate table a ();", "begin or end a transaction"),
        (["0001_a.sql"], "Rollback Work ;", "begin or end a transaction"),
        (["0001_a.sql"], "-- Why.\n-- compatible: perhaps\n", "must contain"),
    ],
)
def test_files_that_break_the_rules_are_refused(
    tmp_path: Path, names: list[str], text: str, complaint: str
) -> None:
    for name in names:
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=complaint):
        known_migrations(tmp_path)


def test_a_function_body_may_begin_and_end(tmp_path: Path) -> None:
    body = "create function f() returns int language plpgsql as $$\nbegin\n  return 1;\nend;\n$$;"
    write(tmp_path / "m", body)
    assert len(known_migrations(tmp_path / "m")) == 1


def test_the_migrations_of_this_program_keep_the_rules() -> None:
    known = known_migrations()
    assert [m.version for m in known] == sorted({m.version for m in known})
    silent = [str(m) for m in known if m.says_compatible is None]
    assert silent == [], "a new migration says `-- compatible: yes` or `-- compatible: no` (decision 12)"


async def test_a_server_that_may_forget_is_refused(conn: Any) -> None:
    with pytest.raises(UnsafeDatabase, match="fsync and full_page_writes and synchronous_commit are off"):
        await check_server(conn)
    await conn.execute("set synchronous_commit = on")
    with pytest.raises(UnsafeDatabase, match="lose committed work: fsync and full_page_writes are off"):
        await check_server(conn)
    await check_server(conn, allow_unsafe=True)


async def test_an_old_server_is_refused_even_for_tests(conn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OLDEST_SERVER", 99)
    with pytest.raises(UnsafeDatabase, match="cograil needs 99 or newer"):
        await check_server(conn, allow_unsafe=True)


async def test_each_test_has_a_database_of_its_own_with_the_schema(dsn: str) -> None:
    async with await connect(dsn) as conn:
        assert await plan(conn) == []
        with suppress(psycopg.errors.InvalidSchemaName):
            await conn.execute("create table cograil.only_here ()")
