from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from cograil.embedded.data_directory import Instance, hold_directory, is_held, read_instance, write_instance
from cograil.errors import DirectoryInUse


def test_a_held_directory_is_refused_to_others_and_free_afterwards(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "data")
    with hold_directory(tmp_path / "data") as data_dir:
        assert is_held(data_dir)
        with pytest.raises(DirectoryInUse, match=str(os.getpid())), hold_directory(data_dir):
            pass
    assert not is_held(data_dir)
    with hold_directory(data_dir):
        pass


HOLDER = textwrap.dedent(
    """
    import subprocess, sys
    from pathlib import Path
    from cograil.embedded.data_directory import hold_directory
    with hold_directory(Path(sys.argv[1])):
        sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
        print(subprocess.Popen(sleeper, close_fds=False, stdout=subprocess.DEVNULL).pid, flush=True)
        sys.stdin.read()
    """
)


async def test_the_hold_ends_with_its_process_whatever_its_children_do(
    tmp_path: Path, eventually: Any
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    child = psutil.Process(int(holder.stdout.readline()))
    assert is_held(tmp_path)
    holder.kill()
    holder.communicate()
    await eventually(lambda: not is_held(tmp_path), timeout=2)
    assert child.is_running()
    child.kill()


def test_an_instance_is_alive_while_its_directory_is_held(tmp_path: Path) -> None:
    written = Instance(
        pid=os.getpid(),
        conninfo="host=/somewhere",
        host="127.0.0.1",
        port=8080,
        version="0.1.0",
        started_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        data_dir=tmp_path,
    )
    assert read_instance(tmp_path) is None
    with hold_directory(tmp_path):
        write_instance(written)
        assert read_instance(tmp_path) == written
        assert written.is_alive()
    assert not written.is_alive(), "its process lives, but holds nothing"
    assert (tmp_path / "instance.json").stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"lock", "instance.json"}


def test_a_new_owner_of_a_directory_forgets_the_instance_that_was_killed_there(tmp_path: Path) -> None:
    """Else a client that comes while the next one starts would look where nobody is any more."""
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    write_instance(Instance(1, "host=/somewhere", "127.0.0.1", 8080, "0.1.0", moment, tmp_path))
    with hold_directory(tmp_path):
        assert read_instance(tmp_path) is None


def test_two_who_look_at_once_do_not_take_each_other_for_an_instance(tmp_path: Path) -> None:
    with hold_directory(tmp_path):
        pass
    with (tmp_path / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # as somebody does who looks
        assert not is_held(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", json.dumps({"pid": 1, "started_at": "now"})])
def test_an_unreadable_instance_file_is_no_instance(tmp_path: Path, text: str) -> None:
    (tmp_path / "instance.json").write_text(text)
    assert read_instance(tmp_path) is None
