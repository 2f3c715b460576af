"""A dockerd that can be killed: its containers belong to a containerd of their own, and live on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from runtimes import QUIET, give_image, is_answered

CONFIG = """
version = 2
root = "{place}/containerd"
state = "{place}/run"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{place}/containerd.sock"
"""
WITH_SBIN = os.environ | {"PATH": os.environ["PATH"] + ":/usr/sbin"}


class SturdyEngine:
    """dockerd and containerd, each a process of its own."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="cograil-sturdy-"))
        self.socket = self.place / "d.sock"
        self.url = f"unix://{self.socket}"
        (self.place / "config.toml").write_text(CONFIG.format(place=self.place))
        self._containerd = self._run("containerd", "--config", self.place / "config.toml")
        self._wait((self.place / "containerd.sock").is_socket)
        self.start()
        give_image(self.socket)

    def start(self) -> None:
        self._dockerd = self._run(
            "dockerd", "--data-root", self.place / "data", "--exec-root", self.place / "exec", "-H", self.url,
            "--pidfile", self.place / "pid", "--containerd", self.place / "containerd.sock",
            "--live-restore", *QUIET,
        )  # fmt: skip
        self._wait(lambda: is_answered(self.socket))

    def kill(self) -> None:
        """Without a chance to say good-bye."""
        self._dockerd.send_signal(signal.SIGKILL)
        self._dockerd.wait(10)
        (self.place / "pid").unlink(missing_ok=True)

    def close(self) -> None:
        for process in (self._dockerd, self._containerd):
            process.terminate()
            process.wait(30)
        for line in Path("/proc/mounts").read_text().splitlines():
            if str(self.place) in line:
                subprocess.run(["umount", "-l", line.split()[1]], check=False)
        shutil.rmtree(self.place, ignore_errors=True)

    def _run(self, *command: str | Path) -> subprocess.Popen[bytes]:
        with (self.place / f"{command[0]}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=WITH_SBIN)

    def _wait(self, condition: object) -> None:
        until = time.monotonic() + 30
        while not condition():  # type: ignore[operator]
            logs = "\n".join(file.read_text()[-2000:] for file in self.place.glob("*.log"))
            assert time.monotonic() < until, logs
            time.sleep(0.05)  # a process that tells nobody when it is ready
