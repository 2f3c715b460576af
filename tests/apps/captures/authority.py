"""A time-stamping authority: `openssl ts` behind a small HTTP server."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CONFIG = """
[ req ]
distinguished_name = name
x509_extensions = stamping
prompt = no
[ name ]
CN = Authority of a test
[ stamping ]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = critical,timeStamping
[ issuing ]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
[ tsa ]
default_tsa = tsa_config
[ tsa_config ]
serial = {place}/serial
signer_cert = {place}/certificate.pem
signer_key = {place}/key.pem
certs = {place}/carried.pem
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
accuracy = secs:1, millisecs:500
ordering = yes
tsa_name = yes
ess_cert_id_chain = no
"""
KINDS = {"rsa": ["-newkey", "rsa:2048"], "ec": ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]}


@dataclass
class Authority:
    """Where it answers. It refuses while `failures` are left, and can be told to say something else."""

    place: Path
    port: int = 0
    failures: int = 0
    says: bytes | None = None
    queries: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/tsa"

    @property
    def certificate(self) -> Path:
        return self.place / "certificate.pem"

    @property
    def ca(self) -> Path:
        """The certificate that issued the authority's, which may be the same."""
        issuer = self.place / "ca.pem"
        return issuer if issuer.exists() else self.certificate

    def carry(self, *certificates: Path) -> None:
        """From now on its responses carry these certificates beside its own."""
        (self.place / "carried.pem").write_bytes(b"".join(path.read_bytes() for path in certificates))

    def stamp(self, query: bytes) -> bytes:
        path = self.place / "query"
        path.write_bytes(query)
        return _run("ts", "-reply", "-config", self.place / "config", "-queryfile", path)

    def verifies(self, text: bytes, response: bytes) -> bool:
        """Whether openssl takes it for a stamp of this text."""
        (self.place / "text").write_bytes(text)
        (self.place / "response").write_bytes(response)
        output = _run(
            *("ts", "-verify", "-data", self.place / "text", "-in", self.place / "response"),
            *("-CAfile", self.ca),
        )
        return b"Verification: OK" in output


@contextmanager
def running_authority(place: Path, kind: str = "rsa", *, has_ca: bool = False) -> Iterator[Authority]:
    """An authority for a while, with a certificate that it signed itself, or that a CA issued."""
    (place / "config").write_text(CONFIG.format(place=place))
    (place / "serial").write_text("01")
    issuer: tuple[object, ...] = ()
    if has_ca:
        _make_ca(place / "config", place / "ca.pem", kind)
        issuer = ("-CA", place / "ca.pem", "-CAkey", place / "ca.pem.key")
    made = ("-nodes", "-keyout", place / "key.pem", "-out", place / "certificate.pem", "-days", "2")
    _run("req", "-x509", "-config", place / "config", *KINDS[kind], *made, *issuer)
    authority = Authority(place)
    authority.carry(authority.ca)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["content-length"]))
            authority.queries.append(query)
            if authority.failures:
                authority.failures -= 1
                self.send_error(503)
                return
            answer = authority.stamp(query) if authority.says is None else authority.says
            self.send_response(200)
            self.send_header("content-type", "application/timestamp-reply")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        authority.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=[0.05])
        thread.start()
        try:
            yield authority
        finally:
            server.shutdown()
            thread.join()


def other_ca(place: Path, kind: str = "ec") -> Path:
    """A CA of the same name that issued nothing."""
    _make_ca(place / "config", place / "other-ca.pem", kind)
    return place / "other-ca.pem"


def _make_ca(config: Path, certificate: Path, kind: str) -> None:
    made = ("-nodes", "-keyout", f"{certificate}.key", "-out", certificate, "-days", "2")
    named = ("-subj", "/CN=CA of a test", "-extensions", "issuing")
    _run("req", "-x509", "-config", config, *KINDS[kind], *made, *named)


def _run(*words: object) -> bytes:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, check=True)
    return done.stdout
