"""Engines that can be killed: their containers belong to somebody else, and live on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path

from tests.apps.containers.runtimes import PODMAN, QUIET, give_image, is_answered

CONFIG = """
version = 2
root = "{place}/containerd"
state = "{place}/run"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{place}/containerd.sock"
"""
WITH_SBIN = os.environ | {"PATH": os.environ["PATH"] + ":/usr/sbin"}


class KillableEngine(ABC):
    """Processes in a directory of their own, and the socket of one of them."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="cograil-sturdy-"))
        self.socket = self.place / "d.sock"
        self.url = f"unix://{self.socket}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def kill(self) -> None:
        """Kill it without a chance to say good-bye."""

    def close(self) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
            process.wait(30)
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if str(self.place) in line:
                subprocess.run(["umount", "-l", line.split()[1]], check=False)
        shutil.rmtree(self.place, ignore_errors=True)

    def _run(self, *command: str | Path, **more: str) -> None:
        name = str(command[0])
        with (self.place / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env=WITH_SBIN | more, cwd=self.place
            )

    def _kill(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGKILL)
        self._processes[name].wait(10)

    def _wait(self, condition: object) -> None:
        until = time.monotonic() + 30
        while not condition():  # type: ignore[operator]
            logs = "\n".join(file.read_text()[-2000:] for file in self.place.glob("*.log"))
            assert time.monotonic() < until, logs
            time.sleep(0.05)  # a process that tells nobody when it is ready


class KillableDocker(KillableEngine):
    """dockerd and containerd, each a process of its own."""

    def __init__(self) -> None:
        super().__init__()
        (self.place / "config.toml").write_text(CONFIG.format(place=self.place))
        self._run("containerd", "--config", self.place / "config.toml")
        self._wait((self.place / "containerd.sock").is_socket)
        self.start()
        give_image(self.socket)

    def start(self) -> None:
        self._run(
            "dockerd", "--data-root", self.place / "data", "--exec-root", self.place / "exec", "-H", self.url,
            "--pidfile", self.place / "pid", "--containerd", self.place / "containerd.sock",
            "--live-restore", *QUIET,
        )  # fmt: skip
        self._wait(lambda: is_answered(self.socket))

    def kill(self) -> None:
        self._kill("dockerd")
        (self.place / "pid").unlink(missing_ok=True)


class KillablePodman(KillableEngine):
    """The service of podman; each container has a process that is not its own."""

    def __init__(self) -> None:
        super().__init__()
        (self.place / "containers.conf").write_text(PODMAN)
        self.start()
        give_image(self.socket)

    def start(self) -> None:
        place = self.place
        command: list[str | Path] = [
            "podman",
            "--root",
            place / "root",
            "--runroot",
            place / "run",
            "--tmpdir",
            place / "tmp",
        ]
        command += ["system", "service", "--time", "0", self.url]
        self._run(*command, CONTAINERS_CONF=str(place / "containers.conf"))
        self._wait(lambda: is_answered(self.socket))

    def kill(self) -> None:
        self._kill("podman")
        self.socket.unlink(missing_ok=True)
