"""Time stamps of a real authority (`openssl ts`): added to the proof, checked by us and by openssl."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.apps.captures.authority import Authority, running_authority
from tests.apps.captures.capture_api import SealingSite

from cograil.apps.captures import der, manifest
from cograil.apps.captures.proof_verifier import verify
from cograil.apps.captures.rfc3161 import BadStamp, check_response, query
from cograil.apps.captures.signing import load_signer


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of its key."""
    return str(getattr(request, "param", "ec"))


@pytest.fixture
def authority(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    with running_authority(tmp_path_factory.mktemp("authority"), kind) as running:
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
    sealing_site: SealingSite, authority: Authority, eventually: Any
) -> None:
    authority.failures = 1  # it is tried again
    body = sealing_site.capture_api.capture(b"evidence")
    await sealing_site.sealed(body)
    proof = await _stamped(sealing_site, body["capture_id"], eventually)
    checked = verify(proof)
    assert [claim.problem for claim in checked if not claim.holds] == []
    assert checked[-1].claim == "the time stamp is of this proof"
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
    response = authority.stamp(query(b"text", 7))
    assert check_response(response, b"text", 7) is not None
    for text, nonce in ((b"other", 7), (b"text", 8)):
        with pytest.raises(BadStamp):
            check_response(response, text, nonce)
    for place in range(0, len(response), 5):
        with pytest.raises(BadStamp):
            check_response(response[:place], b"text")
    refused = der.write(der.SEQUENCE, der.write(der.SEQUENCE, der.write_integer(2)))
    with pytest.raises(BadStamp, match="refused, with the status 2"):
        check_response(refused, b"text")


@pytest.mark.parametrize("kind", ["rsa", "ec"], indirect=True)
def test_what_the_authority_signed_cannot_be_changed(authority: Authority) -> None:
    """The time and the signature; what is beside them is covered by our own signature in a proof."""
    response = bytearray(authority.stamp(query(b"text", 7)))
    info = bytes(response).index(b"\x18\x0f20")
    for place in (info + 5, info + 10, len(response) - 3):
        changed = bytearray(response)
        changed[place] ^= 1
        with pytest.raises(BadStamp):
            check_response(bytes(changed), b"text")


def test_a_stamp_is_signed_by_who_signed_the_proof(tmp_path: Path, authority: Authority) -> None:
    signer, other = load_signer(tmp_path / "a.pem"), load_signer(tmp_path / "b.pem")
    proof: dict[str, Any] = {"manifest": {}, "signature_b64": ""}
    response = authority.stamp(query(manifest.stamped_text(proof), 7))
    assert manifest.with_stamp(proof, response, signer) != manifest.with_stamp(proof, response, other)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_a_changed_stamp_is_either_a_stamp_or_refused(authority: Authority) -> None:
    """Also in the certificate, whose parts others read for us: nobody is shown their exceptions."""
    response, refused = authority.stamp(query(b"text", 7)), 0
    for place, bit in itertools.product(range(len(response)), (0x01, 0x10)):
        changed = bytearray(response)
        changed[place] ^= bit
        try:
            check_response(bytes(changed), b"text")
        except BadStamp:
            refused += 1
    assert refused > len(response) / 2
