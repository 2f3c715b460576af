"""What a sandbox is made of, before anything runs."""

from __future__ import annotations

import struct
from errno import ENOSYS, EPERM
from pathlib import Path

import pytest

from cograil.apps.containers.runtime.container_runtime import ContainerPolicy, ContainerRun
from cograil.apps.containers.runtime.sandbox.bwrap_arguments import User, bwrap_arguments
from cograil.apps.containers.runtime.sandbox.cgroups import Groups, find_groups
from cograil.apps.containers.runtime.sandbox.sandbox_runtime import shortcomings
from cograil.apps.containers.runtime.sandbox.seccomp import denied, seccomp_filter

ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
RUN = ContainerRun("n", "i", "c", Path("/room"), "/workspace", 0.5, 64, {"TOKEN": "t"}, {})


def judged(number: int, first: int = 0, audit: int = 0xC000003E) -> int:
    """What the filter says of a call, as the kernel would run it."""
    program = [struct.unpack_from("HBBI", seccomp_filter(), at) for at in range(0, len(seccomp_filter()), 8)]
    data = {0: number, 4: audit, 16: first}
    at = value = 0
    while True:
        code, yes, no, operand = program[at]
        at += 1
        if code == 0x20:
            value = data[operand]
        elif code == 0x06:
            return int(operand)
        else:
            holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
            at += yes if holds else no


def test_the_filter_refuses_what_is_listed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    listed = set(denied().values())
    assert {denied()[name] for name in ("mount", "unshare", "bpf", "keyctl")} == {165, 272, 321, 250}
    for number in range(460):
        expected = ERROR | EPERM if number in listed else ERROR | ENOSYS if number == 435 else ALLOW
        assert judged(number) == expected, number
    assert judged(56, first=0x10000000 | 17) == ERROR | EPERM, "a clone with users of its own"
    assert judged(56, first=0x00010F00) == ALLOW, "a thread"
    assert judged(0x40000000 + 1) == ERROR | EPERM, "the numbers of another table"
    assert judged(1, audit=0x40000003) == KILL, "another processor's calls"


def test_another_processor_has_its_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert (denied()["mount"], denied()["unshare"]) == (40, 97)
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert seccomp_filter() == b""
    sentences = shortcomings(Groups({}, is_second=False), is_root=True)
    assert any("not known" in sentence for sentence in sentences)


@pytest.mark.parametrize(
    ("is_second", "memory", "cpu"),
    [
        (False, ("memory.limit_in_bytes", "67108864", True), ("cpu.cfs_quota_us", "50000", True)),
        (True, ("memory.max", "67108864", True), ("cpu.max", "50000 100000", True)),
    ],
)
def test_limits_are_written_as_each_version_wants_them(
    is_second: bool, memory: tuple[str, str, bool], cpu: tuple[str, str, bool]
) -> None:
    path = Path("/groups/cograil")
    places = {"memory": path, "cpu": path, "pids": path}
    (group,) = Groups(places, is_second).plan("n", memory_mb=64, cpus=0.5, processes=10)
    assert group["path"] == "/groups/cograil/n"
    assert {memory, cpu, ("pids.max", "11", True)} <= set(group["limits"])
    assert group["oom"] == ("memory.events" if is_second else "memory.oom_control")


def test_where_no_group_can_be_made_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text("proc /proc proc rw 0 0\n")
    groups = find_groups(tmp_path / "mounts")
    assert groups.missing == ("memory", "cpu", "pids")
    assert groups.plan("n", memory_mb=64, cpus=1, processes=10) == []
    sentences = shortcomings(groups, is_root=False)
    assert any("no limit of memory, processor time, processes" in sentence for sentence in sentences)
    assert any("worker's own user" in sentence for sentence in sentences)


def test_a_sandbox_sees_nothing_of_the_machine_but_the_stage() -> None:
    parts = bwrap_arguments(RUN, ContainerPolicy(), User(0, 0, "/root"), "/mnt")
    bound = [parts[at + 1] for at, part in enumerate(parts) if part.endswith("bind")]
    assert bound == ["/mnt/root", "/mnt/room"]
    assert "--unshare-net" in parts, "without a bridge the container has no network"
    for needed in ("--unshare-user", "--unshare-pid", "--disable-userns", "--die-with-parent", "--clearenv"):
        assert needed in parts
    assert "--unshare-net" not in bwrap_arguments(
        RUN, ContainerPolicy(network="host"), User(0, 0, "/"), "/mnt"
    )
