"""A name that changes its mind between look and connection: real sockets, the system's resolver (F37)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("dns_rebind_script.py")
INSIDE = 'mount --bind "$1" /etc/resolv.conf && mount --bind "$2" /etc/nsswitch.conf && shift 2 && exec "$@"'
ALONE = ("unshare", "--user", "--map-root-user", "--mount", "--net")


def may_be_alone() -> bool:
    """Whether this system lets us have a network of our own."""
    if shutil.which("unshare") is None or not Path("/etc/nsswitch.conf").exists():
        return False
    return subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode == 0


def rebound(folder: Path, kind: str) -> dict[str, Any]:
    """What happened there."""
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:2 attempts:1\n")
    (folder / "nsswitch.conf").write_text("hosts: dns\n")
    files = [str(folder / "resolv.conf"), str(folder / "nsswitch.conf")]
    words = [*ALONE, "sh", "-c", INSIDE, "sh", *files, sys.executable, str(SCRIPT), kind]
    done = subprocess.run(words, capture_output=True, check=False, timeout=60, text=True)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.skipif(not may_be_alone(), reason="this system gives nobody a network of his own")
def test_the_address_that_was_checked_is_the_one_that_is_connected_to(tmp_path: Path) -> None:
    """The first goes to the public address though the name leads elsewhere by then, the second is blocked.

    The mutant that asks twice shows that the trap works.
    """
    result = rebound(tmp_path, "once")
    assert (result["first"], result["public"], result["trap"]) == (200, 1, 0)
    assert result["is_second_blocked"]
    assert result["answers"] == ["93.184.215.14", "127.0.0.1"]
    mutant = rebound(tmp_path, "twice")
    assert (mutant["public"], mutant["trap"]) == (0, 1)
