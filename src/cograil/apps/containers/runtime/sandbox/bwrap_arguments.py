"""What a sandbox is made of, written from nothing: the arguments of bwrap and the plan of its supervisor."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from cograil.apps.containers.runtime.container_runtime import ContainerPolicy, ContainerRun, EngineError
from cograil.apps.containers.runtime.sandbox.seccomp import seccomp_filter
from cograil.workspace import Workspace, WorkspaceError

ROOT_OUTSIDE = (
    1_000_000_000  # who root of a sandbox is on the machine, where the worker is root: nobody at all
)
STAGES = ("/mnt", "/media", "/tmp")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TMP_BYTES = 64 * 1024 * 1024
MAX_ID = 65535 * 1024
MAX_PASSWD = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_MOUNT = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+")


class User(NamedTuple):
    """Who a command runs as, by numbers inside the sandbox."""

    user: int
    group: int
    home: str


def owner_of_images() -> int | None:
    """Who owns the files of images: root of the sandboxes; the worker itself where it is not root."""
    return ROOT_OUTSIDE if os.geteuid() == 0 else None


def check_run(run: ContainerRun, policy: ContainerPolicy) -> None:
    """Raises EngineError for what a sandbox cannot do."""
    if not _NAME.fullmatch(run.name):
        raise EngineError("create_failed", f"{run.name[:80]!r} cannot be the name of a sandbox")
    if not run.command:
        raise EngineError("create_failed", "an image of the sandbox has no command of its own: name one")
    if not _MOUNT.fullmatch(run.mount):
        raise EngineError("create_failed", f"{run.mount[:80]!r} is no place for the workspace")
    if not run.room.is_dir():
        raise EngineError("create_failed", f"the workspace {run.room} is not there")
    if policy.network not in ("none", "bridge", "host"):
        raise EngineError("create_failed", f"a sandbox has no network {policy.network!r}, only none or host")
    for name, value in run.environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise EngineError("create_failed", f"{name[:80]!r} cannot be set in the environment")
    if "\0" in run.command:
        raise EngineError("create_failed", "the command holds a character that no command can")


def find_user(image: Path, asked: str) -> User:
    """The numbers of `user`, `user:group`, or root where nothing is asked. Raises EngineError.

    Names are looked up in the image, as engines do.
    """
    user, _, group = asked.partition(":")
    if not user:
        return User(0, 0, "/root")
    known = _records(image, "etc/passwd")
    found = next((record for record in known if user in (record[0], record[2])), None)
    groups = [record for record in _records(image, "etc/group") if group in (record[0], record[2])]
    try:
        number = int(user) if user.isdigit() else int(found[2])  # type: ignore[index]
        if group:
            group_number = int(group) if group.isdigit() else int(groups[0][2])
        else:
            group_number = int(found[3]) if found else 0
    except (TypeError, ValueError, IndexError):
        raise EngineError("create_failed", f"the image has no user {asked[:80]!r}") from None
    if max(number, group_number) > MAX_ID:
        raise EngineError("create_failed", f"{asked[:80]!r} is a larger number than a user may have")
    return User(number, group_number, found[5] if found and len(found) > 5 else "/")


def _records(image: Path, path: str) -> list[list[str]]:
    try:
        with Workspace(image) as files, files.reading(path) as file:
            text = file.read(MAX_PASSWD).decode(errors="replace")
    except WorkspaceError:
        return []
    return [
        record for line in text.splitlines() if len(record := line.split(":")) >= 4 or path[-5:] == "group"
    ]


def supervisor_plan(
    run: ContainerRun,
    policy: ContainerPolicy,
    image: Path,
    directory: Path,
    bwrap: str,
    groups: list[dict[str, Any]],
) -> dict[str, Any]:
    """All that the supervisor needs to know. It may hold secrets, and is written nowhere."""
    who = find_user(image, policy.user)
    outside = owner_of_images()
    stage = next(place for place in STAGES if Path(place).is_dir())
    return {
        "bwrap": bwrap,
        "arguments": bwrap_arguments(run, policy, who, stage),
        "command": ["/bin/sh", "-c", run.command],
        "seccomp": seccomp_filter().hex(),
        "stage": stage,
        "image": str(image),
        "room": str(run.room),
        "upper": str(directory / "upper"),
        "work": str(directory / "work"),
        "overlay": "" if outside is not None else ",userxattr",
        "user": None if outside is None else outside + who.user,
        "group": None if outside is None else outside + who.group,
        "owner": outside,
        "directories": ["proc", "dev", "tmp", run.mount.strip("/")],
        "files": _names_of_hosts() if policy.network == "host" else {},
        "groups": groups,
    }


def bwrap_arguments(run: ContainerRun, policy: ContainerPolicy, who: User, stage: str) -> list[str]:
    """What bwrap is asked for. Nothing of the machine is in it but the image and the room."""
    bind = "--ro-bind" if policy.is_root_read_only else "--bind"
    parts = ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
    if policy.network != "host":
        parts += ["--unshare-net"]
    parts += ["--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    parts += ["--uid", str(who.user), "--gid", str(who.group), "--hostname", run.name[:63]]
    parts += [bind, f"{stage}/root", "/", "--proc", "/proc", "--dev", "/dev"]
    if policy.is_root_read_only:
        parts += ["--perms", "1777", "--size", str(TMP_BYTES), "--tmpfs", "/tmp"]
    parts += ["--bind", f"{stage}/room", run.mount, "--chdir", run.mount, "--clearenv"]
    given = {"PATH": PATH, "HOME": who.home, "HOSTNAME": run.name[:63]} | dict(run.environment)
    for name, value in given.items():
        parts += ["--setenv", name, value]
    return parts


def _names_of_hosts() -> dict[str, str]:
    """Who shares the machine's network also needs to know its names."""
    found = {}
    for path in ("etc/resolv.conf", "etc/hosts"):
        if (file := Path("/") / path).is_file():
            found[path] = file.read_text(errors="replace")
    return found
