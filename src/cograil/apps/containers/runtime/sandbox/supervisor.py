"""The small process beside one sandbox: it outlives the worker that started it, and the sandbox dies with it.

A program of its own, `python -I -S supervisor.py DIRECTORY` with the plan as JSON on its standard input; it
imports nothing of ours, so that it is small and quick. It answers one line when the command runs, or why it
does not, and goes on alone: it holds the lock on `lock`, stamps each line of output into `stdout.log` and
`stderr.log`, passes SIGTERM on to the command, kills all of it at SIGUSR1, and writes `exit.json` at the end.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import selectors
import signal
import sys
import time
from typing import Any

MAX_LINE = 64 * 1024
CHUNK = 256 * 1024
KILLED, NOT_STARTED = 137, 125
END_SECONDS = 5.0  # for the output to end once the sandbox has
LOOK_SECONDS = 0.002  # between two looks whether the command runs

NEW_MOUNTS, NEW_USERS = 0x00020000, 0x10000000
NO_SUID, NO_DEVICES, BIND, RECURSIVE, PRIVATE = 2, 4, 4096, 16384, 1 << 18
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Plan = dict[str, Any]


class StreamLog:
    """One stream of the sandbox on its way into a file: each whole line with a stamp that no other has."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._rest = b""
        self._last = 0

    def take(self, data: bytes) -> None:
        """Write the lines that are whole now, and what is too long to be one."""
        *lines, rest = (self._rest + data).split(b"\n")
        *begun, self._rest = pieces_of(rest)
        self._write([*lines, *begun])

    def end(self) -> None:
        """Write what is left without a newline."""
        self._write([self._rest] if self._rest else [])

    def _write(self, lines: list[bytes]) -> None:
        rest = memoryview(b"".join(self._stamped(line) for line in lines))
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def _stamped(self, line: bytes) -> bytes:
        return b"".join(b"%s %s\n" % (self._stamp(), piece) for piece in pieces_of(line))

    def _stamp(self) -> bytes:
        self._last = max(time.time_ns(), self._last + 1)
        seconds, fraction = divmod(self._last, 1_000_000_000)
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        return f"{whole}.{fraction:09d}Z".encode()


def pieces_of(line: bytes) -> list[bytes]:
    """The line; one that is too long, in pieces that cut no character in two."""
    if len(line) <= MAX_LINE:
        return [line]
    ends = range(MAX_LINE, MAX_LINE - 4, -1)
    at = next((at for at in ends if line[at] & 0xC0 != 0x80), MAX_LINE)
    return [line[:at], *pieces_of(line[at:])]


class BwrapProcess:
    """bwrap, and what it tells of the sandbox."""

    def __init__(self, plan: Plan) -> None:
        self.init = 0  # the first process inside, by its number outside
        self.exit_code: int | None = None
        self.is_killed = False
        self._rest = b""
        self.status, status = os.pipe()
        self.stdout, stdout = os.pipe()
        self.stderr, stderr = os.pipe()
        self.bwrap = os.fork()
        if not self.bwrap:
            _become(plan, stdout, stderr, status)
        for end in (stdout, stderr, status):
            os.close(end)

    def hear(self, data: bytes) -> None:
        """Read what bwrap says on its status pipe: one JSON object a line."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self.init = message.get("child-pid", self.init)
            self.exit_code = message.get("exit-code", self.exit_code)

    def command(self) -> int:
        """The command's own process; 0 while there is none."""
        try:
            with open(f"/proc/{self.init}/task/{self.init}/children", encoding="ascii") as file:
                first = int(file.read().split()[0])
            with open(f"/proc/{first}/comm", encoding="ascii", errors="replace") as file:
                return 0 if file.read().strip() == "bwrap" else first
        except (OSError, IndexError):
            return 0

    def ask_to_stop(self) -> None:
        """Pass SIGTERM on."""
        if command := self.command():
            with contextlib.suppress(ProcessLookupError):
                os.kill(command, signal.SIGTERM)

    def kill(self) -> None:
        """With its first process all others die."""
        self.is_killed = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init or self.bwrap, signal.SIGKILL)

    def is_over(self) -> bool:
        """Whether bwrap has ended; then the exit code is known."""
        process_id, status = os.waitpid(self.bwrap, os.WNOHANG)
        if not process_id:
            return False
        code = os.waitstatus_to_exitcode(status)
        if self.exit_code is None and (self.is_killed or code < 0):
            self.exit_code = KILLED if self.is_killed else 128 - code
        return True


def _become(plan: Plan, stdout: int, stderr: int, status: int) -> None:
    """Turn this process into bwrap, within its limits and as the user it runs as."""
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, place in ((nothing, 0), (stdout, 1), (stderr, 2)):
            os.dup2(descriptor, place)
        for group in plan["groups"]:
            _write(f"{group['path']}/cgroup.procs", str(os.getpid()))
        prepare_mounts(plan)
        os.umask(0o022)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        arguments = "\0".join(plan["arguments"]).encode("utf-8", "surrogateescape")
        held = [_held(arguments), _held(bytes.fromhex(plan["seccomp"])), status]
        for descriptor in held:
            os.set_inheritable(descriptor, True)
        options = ("--args", str(held[0]), "--seccomp", str(held[1]), "--json-status-fd", str(held[2]))
        os.execve(plan["bwrap"], ["bwrap", *options, "--", *plan["command"]], {"PATH": os.defpath})
    except BaseException as error:  # whatever it is, this process must not go on as the supervisor
        os.write(2, f"cograil: {type(error).__name__}: {error}\n".encode())
    os._exit(NOT_STARTED)


def prepare_mounts(plan: Plan) -> None:
    """Where bwrap finds the root and the room, open to the user it runs as; only this process sees it."""
    user, group = plan["user"], plan["group"]
    flags = NEW_MOUNTS if user is not None else NEW_MOUNTS | NEW_USERS
    own_user, own_group = os.getuid(), os.getgid()
    _call("unshare", flags)
    if user is None:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{own_user} {own_user} 1")
        _write("/proc/self/gid_map", f"{own_group} {own_group} 1")
    _mount(None, "/", None, RECURSIVE | PRIVATE)
    # Opened before the stage may hide them, and after the mounts became our own.
    at = {name: _opened(plan[name]) for name in ("image", "room", "upper", "work")}
    stage = plan["stage"]
    _mount("tmpfs", stage, "tmpfs", NO_SUID | NO_DEVICES, "mode=755,size=64k")
    for name in ("root", "room"):
        os.mkdir(f"{stage}/{name}", 0o755)
    options = f"lowerdir={at['image']},upperdir={at['upper']},workdir={at['work']}"
    _mount("overlay", f"{stage}/root", "overlay", NO_SUID | NO_DEVICES, options + plan["overlay"])
    _mount(at["room"], f"{stage}/room", None, BIND)
    add_mount_points(f"{stage}/root", plan)
    if user is not None:
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)


def _opened(path: str) -> str:
    """A path that leads to this directory whatever is mounted above it."""
    return f"/proc/self/fd/{os.open(path, os.O_PATH | os.O_DIRECTORY)}"


def add_mount_points(root: str, plan: Plan) -> None:
    """Make the directories that something is mounted on, and the files that tell names of hosts.

    The image may hold links that lead out of it: none is followed.
    """
    top, owner = os.open(root, DIRECTORY), plan["owner"]
    for path in plan["directories"]:
        _below(top, path, owner)
    for path, content in plan["files"].items():
        above, _, name = path.rpartition("/")
        directory = _below(top, above, owner)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=directory)
        os.write(file, content.encode())


def _below(top: int, path: str, owner: int | None) -> int:
    at = top
    for step in path.split("/"):
        with contextlib.suppress(FileExistsError):
            os.mkdir(step, 0o755, dir_fd=at)
            if owner is not None:
                os.chown(step, owner, owner, dir_fd=at, follow_symlinks=False)
        try:
            at = os.open(step, DIRECTORY, dir_fd=at)
        except OSError as error:
            raise OSError(error.errno, f"/{path} of the image is not a directory, or behind a link") from None
    return at


def supervise(plan: Plan, directory: str, answer: int) -> None:
    """Run it to its end, unless somebody did or does."""
    lock = os.open(f"{directory}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return _tell(answer, "ok")
    if os.path.exists(f"{directory}/started"):
        return _tell(answer, "ok")
    waking, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    try:
        make_groups(plan["groups"])
        _write(f"{directory}/started", "")
    except OSError as error:
        remove_groups(plan["groups"])
        return _tell(answer, str(error))
    box = BwrapProcess(plan)
    if _has_run(box):
        _tell(answer, "ok")
        _follow(box, directory, waking)
    else:
        _tell(answer, _all_of(box.stderr) or "bwrap ended without a word")
    return _end(plan, directory, NOT_STARTED if box.exit_code is None else box.exit_code)


def _has_run(box: BwrapProcess) -> bool:
    """Whether the command runs or ran; waits until that is known. Seen once, it may be gone the next time."""
    while not box.command() and box.exit_code is None:
        with selectors.DefaultSelector() as selector:
            selector.register(box.status, selectors.EVENT_READ)
            if selector.select(LOOK_SECONDS if box.init else None):
                data = os.read(box.status, CHUNK)
                if not data:  # bwrap has ended
                    return False
                box.hear(data)
    return True


def _follow(box: BwrapProcess, directory: str, waking: int) -> None:
    """Write its output down and pass signals on, until it has ended and all is read."""
    names = {box.stdout: "stdout", box.stderr: "stderr"}
    logs = {stream: StreamLog(f"{directory}/{name}.log") for stream, name in names.items()}
    until = None
    with selectors.DefaultSelector() as selector:
        for source in (*logs, box.status, waking):
            selector.register(source, selectors.EVENT_READ)
        while until is None or (logs and time.monotonic() < until):
            for key, _ in selector.select(until and END_SECONDS):
                data = os.read(key.fd, CHUNK)
                if key.fd == waking:
                    _obey(box, data)
                elif not data:
                    selector.unregister(key.fd)
                _take(box, logs, key.fd, data)
            if until is None and box.is_over():
                until = time.monotonic() + END_SECONDS
    for log in logs.values():
        log.end()


def _take(box: BwrapProcess, logs: dict[int, StreamLog], source: int, data: bytes) -> None:
    if source == box.status:
        box.hear(data)
    elif source in logs:
        logs[source].take(data) if data else logs.pop(source).end()


def _obey(box: BwrapProcess, signals: bytes) -> None:
    if signal.SIGUSR1 in signals:
        box.kill()
    elif signal.SIGTERM in signals:
        box.ask_to_stop()


def _end(plan: Plan, directory: str, exit_code: int) -> None:
    """Write down how it ended: under its name only when it is whole."""
    kills = sum(_oom_kills(group) for group in plan["groups"])
    remove_groups(plan["groups"])
    exit_info = {"exit_code": exit_code, "is_out_of_memory": bool(kills and exit_code)}
    _write(f"{directory}/exit.new", json.dumps(exit_info))
    os.rename(f"{directory}/exit.new", f"{directory}/exit.json")


def make_groups(groups: list[Plan]) -> None:
    """The control groups with their limits; some files are not there on every kernel."""
    for group in groups:
        os.makedirs(group["path"], exist_ok=True)
        for name, value, is_needed in group["limits"]:
            try:
                _write(f"{group['path']}/{name}", value)
            except OSError:
                if is_needed:
                    raise


def remove_groups(groups: list[Plan]) -> None:
    """A group can be removed when the kernel has forgotten its last process."""
    until = time.monotonic() + END_SECONDS
    for group in groups:
        while os.path.isdir(group["path"]) and time.monotonic() < until:
            try:
                os.rmdir(group["path"])
            except OSError:
                time.sleep(LOOK_SECONDS)


def _oom_kills(group: Plan) -> int:
    events_path = f"{group['path']}/{group['oom'] or ''}"
    with contextlib.suppress(OSError), open(events_path, encoding="ascii") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _all_of(source: int) -> str:
    data = b""
    while part := os.read(source, CHUNK):
        data += part
    return data.decode(errors="replace").strip()[:1000]


def _held(content: bytes) -> int:
    """A file in memory with this content, to be read from its beginning."""
    file = os.memfd_create("cograil")
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(file, "wb", buffering=0) as whole:
        whole.write(text.encode())


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind)]
    try:
        _call("mount", *texts, ctypes.c_ulong(flags), data.encode() or None)
    except OSError as error:
        raise OSError(error.errno, f"{kind or 'bind'}: {error.strerror}") from None


def _tell(answer: int, text: str) -> None:
    with contextlib.suppress(OSError), open(answer, "wb", buffering=0) as file:  # who asked may be dead
        file.write(text.encode())


def main(directory: str) -> None:
    """Answer for the supervisor, which is a child that goes on alone."""
    plan = json.load(sys.stdin)
    report_activity, answer = os.pipe()
    if os.fork():
        os.close(answer)
        sys.stdout.write(_all_of(report_activity))
        sys.stdout.flush()
        os._exit(0)
    os.setsid()
    os.close(report_activity)
    trouble = os.open(f"{directory}/trouble.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor, place in ((nothing, 0), (nothing, 1), (trouble, 2)):
        os.dup2(descriptor, place)
    os.chdir("/")
    supervise(plan, directory, answer)


if __name__ == "__main__":
    main(sys.argv[1])
