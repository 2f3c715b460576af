"""Time stamps of a real authority (`openssl ts`): added to the proof, checked by us and by openssl."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate
from tests.apps.captures.authority import Authority, other_ca, running_authority
from tests.apps.captures.capture_api import SealingSite

from cograil.apps.captures import manifest
from cograil.apps.captures.integrity_check import check_vault
from cograil.apps.captures.proof_verifier import STAMPED_BY_TRUSTED, STAMPED_BY_UNKNOWN, verify
from cograil.apps.captures.rfc3161 import (
    BadAuthority,
    BadStamp,
    check_response,
    load_authorities,
    request_for,
)
from cograil.apps.captures.signing import load_signer
from cograil.cli import main


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of its key."""
    return str(getattr(request, "param", "ec"))


@pytest.fixture
def authority(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    with running_authority(tmp_path_factory.mktemp("authority"), kind) as running:
        yield running


@pytest.fixture
def issued(tmp_path: Path) -> Iterator[Authority]:
    """An authority whose certificate a CA issued."""
    with running_authority(tmp_path, "ec", has_ca=True) as running:
        yield running


@pytest.fixture
def capture_settings(authority: Authority) -> dict[str, Any]:
    return {"tsa_url": authority.url}


async def _stamped(sealing_site: SealingSite, id: str, eventually: Any) -> bytes:
    async def is_stamped() -> bool:
        return bool((await sealing_site.capture_api.get(id)).body["signature_status"] == "TIMESTAMPED")

    await eventually(is_stamped, timeout=20)
    return await sealing_site.proof(id)


@pytest.mark.parametrize("kind", ["rsa", "ec"], indirect=True)
async def test_a_proof_is_stamped_and_everybody_can_check_it(
    sealing_site: SealingSite, authority: Authority, eventually: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    authority.failures = 1  # it is tried again
    body = sealing_site.capture_api.capture(b"evidence")
    await sealing_site.sealed(body)
    proof = await _stamped(sealing_site, body["capture_id"], eventually)
    checked = verify(proof)
    assert [claim.problem for claim in checked if not claim.holds] == []
    assert checked[-1].claim == STAMPED_BY_UNKNOWN
    path = authority.place / "proof.json"
    path.write_bytes(proof)
    assert main(["captures", "verify", str(path)]) == 0
    assert "the time-stamping authority was not checked" in capsys.readouterr().err
    checked = verify(proof, authorities=load_authorities(authority.ca))
    assert (checked[-1].claim, checked[-1].problem) == (STAMPED_BY_TRUSTED, "")
    read = orjson.loads(proof)
    response = base64.b64decode(read["timestamp"]["response_b64"])
    assert authority.verifies(manifest.stamped_text(read), response)
    shown = (await sealing_site.capture_api.get(body["capture_id"])).body
    assert shown["state"] == "SEALED"
    trail = orjson.loads(await sealing_site.trail(body["capture_id"]))
    assert [entry["event"] for entry in trail["entries"]][-1] == "CAPTURE_TIMESTAMPED"
    assert len(authority.queries) == 2
    assert (await sealing_site.capture_api.lab.ended(shown["job_id"]))["status"] == "completed"
    start = proof.index(b'"timestamp":')
    for place in range(start, len(proof), 7):
        changed = bytearray(proof)
        changed[place] ^= 1
        assert not all(claim.holds for claim in verify(bytes(changed))), place


class TestWithACa:
    @pytest.fixture
    def capture_settings(self, issued: Authority) -> dict[str, Any]:
        return {"tsa_url": issued.url, "tsa_ca_file": issued.ca}

    async def test_a_proof_is_verified_with_the_ca_of_the_authority(
        self,
        sealing_site: SealingSite,
        issued: Authority,
        eventually: Any,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        issued.carry(issued.certificate)  # as most authorities do: the root is for the verifier to know
        body = sealing_site.capture_api.capture(b"evidence")
        await sealing_site.sealed(body)
        path = issued.place / "proof.json"
        path.write_bytes(await _stamped(sealing_site, body["capture_id"], eventually))
        wrong = other_ca(issued.place)
        command = ["captures", "verify", str(path)]
        assert main([*command, "--tsa-ca", str(issued.ca)]) == 0
        output = capsys.readouterr()
        assert f"yes  {STAMPED_BY_TRUSTED}" in output.out
        assert "--tsa-ca" not in output.err
        assert main([*command, "--tsa-ca", str(wrong)]) == 1
        assert f"NO   {STAMPED_BY_TRUSTED}" in capsys.readouterr().out
        assert main(command) == 1
        assert "no self-signed certificate" in capsys.readouterr().out
        db = sealing_site.capture_api.lab.db
        assert (await check_vault(db, authorities=load_authorities(issued.ca))).problems == []
        problems = (await check_vault(db, authorities=load_authorities(wrong))).problems
        assert [STAMPED_BY_TRUSTED in problem.problem for problem in problems] == [True]


async def test_an_authority_that_says_nonsense_is_not_believed(
    sealing_site: SealingSite, authority: Authority, eventually: Any
) -> None:
    """The capture is sealed all the same, and stamped once it talks sense."""
    authority.says = b"\x30\x03\x02\x01\x02"
    body = sealing_site.capture_api.capture(b"evidence")
    shown = await sealing_site.sealed(body)
    await eventually(lambda: len(authority.queries) >= 2)
    assert "timestamp" not in orjson.loads(await sealing_site.proof(body["capture_id"]))
    assert shown["state"] == "SEALED"
    authority.says = None
    await _stamped(sealing_site, body["capture_id"], eventually)


def test_a_response_that_is_not_a_stamp_of_this_text_is_refused(authority: Authority) -> None:
    request = request_for(b"text")
    response, nonce = authority.stamp(request.as_bytes()), request.nonce or 0
    assert check_response(response, b"text", nonce=nonce) is not None
    for text, other in ((b"other", nonce), (b"text", nonce + 1)):
        with pytest.raises(BadStamp, match=r"[Mm]ismatch"):
            check_response(response, text, nonce=other)
    for place in range(0, len(response), 5):
        with pytest.raises(BadStamp):
            check_response(response[:place], b"text")
    with pytest.raises(BadStamp, match="refused, with the status 2"):
        check_response(bytes.fromhex("30053003020102"), b"text")


@pytest.mark.parametrize("kind", ["rsa", "ec"], indirect=True)
def test_what_the_authority_signed_cannot_be_changed(authority: Authority) -> None:
    """The time and the signature; what is beside them is covered by our own signature in a proof."""
    response = bytearray(authority.stamp(request_for(b"text").as_bytes()))
    info = bytes(response).index(b"\x18\x0f20")
    for place in (info + 5, info + 10, len(response) - 3):
        changed = bytearray(response)
        changed[place] ^= 1
        with pytest.raises(BadStamp):
            check_response(bytes(changed), b"text")


def test_a_stamp_is_signed_by_who_signed_the_proof(tmp_path: Path, authority: Authority) -> None:
    signer, other = load_signer(tmp_path / "a.pem"), load_signer(tmp_path / "b.pem")
    proof: dict[str, Any] = {"manifest": {}, "signature_b64": ""}
    response = authority.stamp(request_for(manifest.stamped_text(proof)).as_bytes())
    assert manifest.with_stamp(proof, response, signer) != manifest.with_stamp(proof, response, other)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_a_changed_stamp_is_either_a_stamp_or_refused(authority: Authority) -> None:
    """Also in the certificate, whose parts others read for us: nobody is shown their exceptions."""
    response, refused = authority.stamp(request_for(b"text").as_bytes()), 0
    for place, bit in itertools.product(range(len(response)), (0x01, 0x10)):
        changed = bytearray(response)
        changed[place] ^= bit
        try:
            check_response(bytes(changed), b"text")
        except BadStamp:
            refused += 1
    assert refused > len(response) / 2


def test_the_ca_of_the_authority_is_checked(issued: Authority, tmp_path: Path) -> None:
    response = issued.stamp(request_for(b"text").as_bytes())
    assert check_response(response, b"text", load_authorities(issued.ca)) == check_response(response, b"text")
    for wrong in (other_ca(tmp_path), issued.certificate):
        with pytest.raises(BadStamp, match="certificate verify error"):
            check_response(response, b"text", load_authorities(wrong))


def test_a_response_without_a_root_needs_the_ca(issued: Authority) -> None:
    issued.carry(issued.certificate)
    response = issued.stamp(request_for(b"text").as_bytes())
    with pytest.raises(BadStamp, match=r"no self-signed certificate.*COGRAIL_CAPTURES__TSA_CA_FILE"):
        check_response(response, b"text")
    assert check_response(response, b"text", load_authorities(issued.ca))


def test_certificates_in_a_response_may_be_in_any_order(issued: Authority) -> None:
    """CMS allows any order, and no signature covers it; openssl agrees."""
    paths = (issued.certificate, issued.ca)
    first, second = (
        load_pem_x509_certificate(path.read_bytes()).public_bytes(Encoding.DER) for path in paths
    )
    response = issued.stamp(request_for(b"text").as_bytes())
    for pair in (first + second, second + first):
        ordered = response.replace(first + second, pair).replace(second + first, pair)
        assert pair in ordered
        assert issued.verifies(b"text", ordered)
        assert check_response(ordered, b"text", load_authorities(issued.ca))


def test_a_ca_file_without_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(BadAuthority, match=f"{name} holds no certificate in PEM"):
            load_authorities(tmp_path / name)
