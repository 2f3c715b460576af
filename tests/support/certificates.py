"""Certificates that openssl makes for a test."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cograil.runners import builtin_handlers  # noqa: F401  importing registers


def certificate(directory: Path, name: str) -> tuple[Path, Path]:
    key, chain = directory / "key.pem", directory / "chain.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-keyout", str(key), "-out", str(chain), "-days", "2", "-subj", f"/CN={name}"]
    subprocess.run([*command, "-addext", f"subjectAltName=DNS:{name}"], check=True, capture_output=True)
    return key, chain
