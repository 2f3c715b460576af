"""Evidence from a device to a proof: encrypt, upload, post, wait, verify.

    cograil up --apps containers,captures &
    python -m examples.captures picture.png --data-dir ~/.local/share/cograil

It does what a device does, and writes beside the picture what a court would be given: `proof.json`,
`audit.json`, `object.enc` and `signer.pem`. docs/how-to/captures.md walks through it.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import mimetypes
import os
import subprocess
import sys
import time
import urllib.request
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import aes_key_wrap

KEK_ID = "example-kek"
TAG_BYTES = 16


def make_kek(data_dir: Path) -> bytes:
    """The key that wraps the keys of captures, where workers look for it; made once."""
    path = data_dir / "captures" / "keks" / KEK_ID
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(os.urandom(32))
    return path.read_bytes()


def encrypt(content: bytes, kek: bytes) -> tuple[bytes, dict[str, Any]]:
    """What is uploaded, and what is said of it. The tag is not part of the object."""
    dek, nonce = os.urandom(32), os.urandom(12)
    sealed = AESGCM(dek).encrypt(nonce, content, None)
    encrypted, tag = sealed[:-TAG_BYTES], sealed[-TAG_BYTES:]
    return encrypted, {
        "hash_sha3_256": hashlib.sha3_256(content).hexdigest(),
        "aes_gcm_nonce_b64": base64.b64encode(nonce).decode(),
        "aes_gcm_tag_b64": base64.b64encode(tag).decode(),
        "dek_wrapped_b64": base64.b64encode(aes_key_wrap(kek, dek)).decode(),
        "kek_id": KEK_ID,
        "size_bytes": len(encrypted),
    }


def upload(data_dir: Path, key: str, encrypted: bytes) -> None:
    """Put the object where workers look for it; with S3 this is a PUT."""
    path = data_dir / "captures" / "objects" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encrypted)


def ask(url: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
    """One request; with the key in COGRAIL_KEY, if there is one."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("COGRAIL_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
        return answer.status, answer.read()


def wait_until_ready(url: str, seconds: float = 60) -> None:
    """Until `cograil up` answers there; it may just be starting."""
    until = time.monotonic() + seconds
    while True:
        try:
            ask(f"{url}/readyz")
        except OSError as error:  # nobody listens yet, or not everything is ready
            if time.monotonic() > until:
                raise SystemExit(
                    f"{url} is not ready after {seconds:g} s ({error}): start it with `cograil up`"
                ) from None
            time.sleep(0.2)
        else:
            return


def wait_until_sealed(url: str, seconds: float = 60) -> dict[str, Any]:
    """How the capture stands in the end."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        capture: dict[str, Any] = json.loads(ask(url)[1])
        if capture["state"] in ("SEALED", "FAILED"):
            return capture
        time.sleep(0.1)
    raise SystemExit(f"not sealed within {seconds:g} s: {capture['state']}")


def main() -> int:
    """Take one file from the device to its proof."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("proof"))
    parser.add_argument("--wait", type=float, default=60, help="seconds for the instance to be ready")
    arguments = parser.parse_args()

    wait_until_ready(arguments.url, arguments.wait)
    encrypted, description = encrypt(arguments.picture.read_bytes(), make_kek(arguments.data_dir))
    capture_id = str(uuid.uuid4())
    key = f"captures/{capture_id}.enc"
    upload(arguments.data_dir, key, encrypted)
    body = description | {
        "capture_id": capture_id,
        "upload_object_key": key,
        "mime_type": mimetypes.guess_type(arguments.picture.name)[0] or "application/octet-stream",
        "device_id": str(uuid.uuid4()),
        "timestamp_device": datetime.now(UTC).isoformat(),
    }
    first, again = ask(f"{arguments.url}/v1/captures", body), ask(f"{arguments.url}/v1/captures", body)
    print(f"posted: {first[0]}, and the same again: {again[0]}")
    capture = wait_until_sealed(f"{arguments.url}/v1/captures/{capture_id}")
    print(f"{capture['state']}: {capture['error'] or capture['sealed_at']}")
    if capture["state"] == "FAILED":
        return 1
    return verify(arguments.url, capture_id, encrypted, arguments.data_dir, arguments.out)


def verify(url: str, capture_id: str, encrypted: bytes, data_dir: Path, out: Path) -> int:
    """Keep what proves it, and check it without asking anybody."""
    cograil = [sys.executable, "-m", "cograil", "captures"]
    signer = subprocess.run([*cograil, "key", "--data-dir", str(data_dir)], capture_output=True, check=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / "object.enc").write_bytes(encrypted)
    (out / "signer.pem").write_bytes(signer.stdout)
    for name in ("proof", "audit"):
        (out / f"{name}.json").write_bytes(ask(f"{url}/v1/captures/{capture_id}/{name}")[1])
    arguments = [
        "verify",
        "proof.json",
        "--object",
        "object.enc",
        "--audit",
        "audit.json",
        "--key",
        "signer.pem",
    ]
    return subprocess.run([*cograil, *arguments], cwd=out, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
