"""Dump a cograil database to a file and restore it, on this server or another.

A dump is what `pg_dump --format=custom` writes of the schemas of cograil, so plain pg_restore reads it too.
A restore is one transaction: the old schemas dropped (if asked for), objects and rows, the rights that were
granted to other roles, owners and grants of cograil's own roles. It restores everything or changes nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from cograil.embedded.client_programs import program_arguments
from cograil.embedded.postgres_binaries import Binaries
from cograil.errors import DatabaseUnavailable, UsageError
from cograil.store.database_roles import IN_DATABASE

SCHEMAS = ("cograil", "cograil_*", "vault_secure")  # patterns of pg_dump: the core, and what apps have
IS_OURS = "(nspname in ('cograil', 'vault_secure') or nspname ~ '^cograil_')"
DROP_SCHEMAS = (
    f"select format('drop schema %I cascade', nspname) from pg_namespace where {IS_OURS} order by 1 \\gexec\n"
)
ANALYZE = f"""
select format('analyze %I.%I', schemaname, tablename)
from pg_tables join pg_namespace on nspname = schemaname where {IS_OURS} order by 1 \\gexec
"""
HEAD_BYTES = 16 * 1024  # the block contains the settings with which a dump begins
CHUNK_BYTES = 1024 * 1024
NEWER_SETTING = re.compile(rb"^SET transaction_timeout = 0;\n", re.MULTILINE)  # unknown before PostgreSQL 17
GRANTEE = re.compile(r'^(?:GRANT|REVOKE) .* (?:TO|FROM) ("(?:[^"]|"")+"|\w+)(?: WITH GRANT OPTION)?;$')


def dump_database(conninfo: str, programs: Binaries, target: Path) -> None:
    """Write the database to this file, completely or not at all. Raises DatabaseUnavailable or UsageError."""
    place, environment = program_arguments(conninfo)
    command = [
        str(programs.path("pg_dump")),
        "--format=custom",
        *(f"--schema={name}" for name in SCHEMAS),
        place,
    ]
    with _new_file(target) as file:
        done = subprocess.run(command, env=environment, stdout=file, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise DatabaseUnavailable(f"pg_dump failed: {_text(done.stderr)}")


@contextmanager
def _new_file(target: Path) -> Iterator[IO[bytes]]:
    """Yield a new file that appears under its name when the block ends without an error; only its owner may
    read it.
    """
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from error
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).rename(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def check_dump(programs: Binaries, source: Path) -> None:
    """Raise UsageError unless this file is a dump of cograil that these programs can read."""
    listed = _list_dump(programs, source)
    if " SCHEMA - cograil " not in listed:
        raise UsageError(f"{source} is not a dump of cograil: it has no schema cograil")


def restore_database(
    conninfo: str, programs: Binaries, source: Path, *, known_roles: Iterable[str], is_clean: bool
) -> list[str]:
    """Restore this dump into the database; return the grants that were left out because their role does not
    exist.

    The roles of cograil must exist. With `is_clean` the schemas of cograil are dropped first. Raises
    DatabaseUnavailable with PostgreSQL's message when it fails; nothing is changed then.
    """
    grants, left_out = _foreign_grants(programs, source, frozenset(known_roles))
    place, environment = program_arguments(conninfo)
    options = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "--single-transaction", "-f", "-"]
    reader = [str(programs.path("pg_restore")), "--no-owner", "--no-privileges", "-f", "-", str(source)]
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as reader_errors:
        psql = subprocess.Popen(
            [str(programs.path("psql")), *options, "-d", place],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        dump = subprocess.Popen(reader, stdout=subprocess.PIPE, stderr=reader_errors)
        try:
            is_whole = _feed(psql, dump, "\n".join(grants), is_clean=is_clean)
        finally:
            _stop(dump)
            _stop(psql)
        if psql.returncode != 0 or not is_whole:
            errors.seek(0)
            reader_errors.seek(0)
            raise DatabaseUnavailable(
                f"the restore failed and nothing was changed: {_text(errors.read() or reader_errors.read())}"
            )
    return left_out


def restored_statements() -> list[str]:
    """Return the queries that end every restore, inside its transaction; psql runs each row that they
    return.

    They change everything that depends on the time of the data: task numbers and fences that were issued
    after the dump must not be issued again. A dump of an older schema has no epochs.
    """
    return [
        "select 'select cograil.new_epoch()' where to_regprocedure('cograil.new_epoch(boolean)') is not null"
    ]


def _feed(
    psql: subprocess.Popen[bytes], dump: subprocess.Popen[bytes], grants: str, *, is_clean: bool
) -> bool:
    """Write the whole restore to psql; return whether all of it was written. It commits when its input
    ends.
    """
    assert psql.stdin is not None
    assert dump.stdout is not None
    with suppress(BrokenPipeError):  # psql stopped at an error, which it reports
        psql.stdin.write(DROP_SCHEMAS.encode() if is_clean else b"")
        psql.stdin.write(NEWER_SETTING.sub(b"", dump.stdout.read(HEAD_BYTES)))
        while chunk := dump.stdout.read(CHUNK_BYTES):
            psql.stdin.write(chunk)
        if dump.wait() != 0:
            psql.kill()  # without this end nothing is committed
            return False
        rights = "".join(f"{statement.text} \\gexec\n" for statement in IN_DATABASE)
        ends = "".join(f"{statement} \\gexec\n" for statement in restored_statements())
        psql.stdin.write(f"\nreset search_path;\n{grants}\n{rights}{ends}{ANALYZE}".encode())
        psql.stdin.close()
        psql.wait()
        return True
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the process if it still runs; uncommitted changes are rolled back."""
    with suppress(BrokenPipeError):
        if process.stdin is not None and not process.stdin.closed:
            process.kill()
            process.stdin.close()
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


def _foreign_grants(
    programs: Binaries, source: Path, known_roles: frozenset[str]
) -> tuple[list[str], list[str]]:
    """Return the GRANT and REVOKE statements of a dump, and those whose role does not exist on this server."""
    lines = [
        line for line in _list_dump(programs, source).splitlines() if re.match(r"\d+; \d+ \d+ ACL ", line)
    ]
    if not lines:
        return [], []
    with tempfile.NamedTemporaryFile("w", suffix=".list") as chosen:
        chosen.write("\n".join(lines) + "\n")
        chosen.flush()
        command = [str(programs.path("pg_restore")), "-L", chosen.name, "--no-owner", "-f", "-", str(source)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    grants: list[str] = []
    left_out: list[str] = []
    for line in text.splitlines():
        if match := GRANTEE.match(line):
            role = match[1].strip('"').replace('""', '"')
            (grants if role == "PUBLIC" or role in known_roles else left_out).append(line)
    return grants, left_out


def _list_dump(programs: Binaries, source: Path) -> str:
    command = [str(programs.path("pg_restore")), "--list", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UsageError(f"{source} cannot be read as a dump of cograil: {done.stderr.strip()}")
    return done.stdout


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace").strip()[-2000:]
