"""The arguments of bwrap and the plan of the supervisor, written from scratch."""

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
    """The owner of image files: the user of sandboxes if the worker is root, else None (the worker itself)."""
    return ROOT_OUTSIDE if os.geteuid() == 0 else None


def check_run(run: ContainerRun, policy: ContainerPolicy) -> None:
    """Raise EngineError for a run that a sandbox cannot do."""
    if not _NAME.fullmatch(run.name):
        raise EngineError("create_failed", f"{run.name[:80]!r} cannot be the name of a sandbox")
    if not run.command:
        raise EngineError("create_failed", "an image of the sandbox has no command of its own: name one")
    if not _MOUNT.fullmatch(run.mount):
        raise EngineError("create_failed", f"{run.mount[:80]!r} is not a valid mount point of the workspace")
    if not run.room.is_dir():
        raise EngineError("create_failed", f"the workspace {run.room} is not there")
    if policy.network not in ("none", "bridge", "host"):
        raise EngineError("create_failed", f"a sandbox has no network {policy.network!r}, only none or host")
    for name, value in run.environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise EngineError("create_failed", f"{name[:80]!r} cannot be set in the environment")
    if "\0" in run.command:
        raise EngineError("create_failed", "the command holds a character that no command can")


def find_user(image: Path, user_spec: str) -> User:
    """The ids of `user` or `user:group`; root for an empty text. Raises EngineError.

    Names are looked up in the image, as engines do.
    """
    user, _, group = user_spec.partition(":")
    if not user:
        return User(0, 0, "/root")
    account = next((known for known in _accounts(image) if user in (known.name, known.number)), None)
    try:
        number = int(user) if user.isdigit() else int(account.number)  # type: ignore[union-attr]
        if group:
            group_number = int(group) if group.isdigit() else int(_group_numbers(image)[group])
        else:
            group_number = int(account.group) if account else 0
    except (AttributeError, ValueError, KeyError):
        raise EngineError("create_failed", f"the image has no user {user_spec[:80]!r}") from None
    if max(number, group_number) > MAX_ID:
        raise EngineError("create_failed", f"{user_spec[:80]!r} is a larger number than a user may have")
    return User(number, group_number, account.home if account else "/")


class _Account(NamedTuple):
    """A line of /etc/passwd."""

    name: str
    number: str
    group: str
    home: str


def _accounts(image: Path) -> list[_Account]:
    accounts = []
    for fields in _lines_of(image, "etc/passwd", 4):
        name, _, number, group, *rest = fields
        accounts.append(_Account(name, number, group, rest[1] if len(rest) > 1 else "/"))
    return accounts


def _group_numbers(image: Path) -> dict[str, str]:
    """The numbers of the groups of an image, by name and by number; the first of a name counts."""
    numbers: dict[str, str] = {}
    for name, _, number, *_ in _lines_of(image, "etc/group", 3):
        numbers.setdefault(name, number)
        numbers.setdefault(number, number)
    return numbers


def _lines_of(image: Path, path: str, min_fields: int) -> list[list[str]]:
    """The fields of the lines of a file such as /etc/passwd; empty without the file."""
    try:
        with Workspace(image) as files, files.reading(path) as file:
            text = file.read(MAX_PASSWD).decode(errors="replace")
    except WorkspaceError:
        return []
    lines = (line.split(":") for line in text.splitlines())
    return [fields for fields in lines if len(fields) >= min_fields]


def supervisor_plan(
    run: ContainerRun,
    policy: ContainerPolicy,
    image: Path,
    directory: Path,
    bwrap: str,
    groups: list[dict[str, Any]],
) -> dict[str, Any]:
    """The plan of the supervisor. It may hold secrets and is never written to disk."""
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
    """The arguments of bwrap. The sandbox sees only the image and the workspace of the machine."""
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
    environment = {"PATH": PATH, "HOME": who.home, "HOSTNAME": run.name[:63]} | dict(run.environment)
    for name, value in environment.items():
        parts += ["--setenv", name, value]
    return parts


def _names_of_hosts() -> dict[str, str]:
    """The files for name resolution, for sandboxes on the network of the machine."""
    files = {}
    for path in ("etc/resolv.conf", "etc/hosts"):
        if (file := Path("/") / path).is_file():
            files[path] = file.read_text(errors="replace")
    return files
