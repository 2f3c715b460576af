"""The canonical fingerprint: the golden vector, and a second implementation in another language."""

from __future__ import annotations

import json
import random
import string
import subprocess
import uuid
from dataclasses import asdict, replace
from typing import Any

import pytest
from tests.apps.captures.capture_api import GOLDEN, SAMPLE

from cograil.apps.captures.fingerprint import Fields, canonical_fingerprint, fingerprint_bytes

NINE = [
    "aes_gcm_nonce_b64",
    "aes_gcm_tag_b64",
    "capture_id",
    "content_hash",
    "dek_wrapped_b64",
    "kek_id",
    "mime_type",
    "size_bytes",
    "upload_object_key",
]
GIVEN: dict[str, Any] = {name: SAMPLE[name] for name in NINE if name in SAMPLE}
GIVEN["content_hash"] = SAMPLE["hash_sha3_256"]
FIELDS = Fields(**GIVEN)


def with_field(name: str, value: Any) -> Fields:
    return replace(FIELDS, **{name: value})


# As the seed has it: node's own JSON, sorted by a replacer.
NODE = """
const { createHash } = require('node:crypto');
const lines = require('node:fs').readFileSync(0, 'utf8').split('\\n').filter(Boolean);
const out = lines.map((line) => {
  const f = JSON.parse(line);
  f.capture_id = f.capture_id.toLowerCase();
  f.content_hash = f.content_hash.toLowerCase();
  const text = JSON.stringify(f, Object.keys(f).sort());
  return createHash('sha256').update(text, 'utf8').digest('hex');
});
console.log(out.join('\\n'));
"""


def test_the_golden_vector() -> None:
    assert canonical_fingerprint(FIELDS) == GOLDEN


def test_a_fingerprint_is_stable_and_64_lower_case_hex_digits() -> None:
    """TC-NR-10."""
    fingerprints = {canonical_fingerprint(replace(FIELDS)) for _ in range(100)}
    assert fingerprints == {GOLDEN}
    assert set(GOLDEN) <= set("0123456789abcdef")


def test_a_fingerprint_covers_nine_sorted_keys_without_white_space() -> None:
    text = fingerprint_bytes(FIELDS).decode()
    assert list(json.loads(text)) == NINE
    assert '"size_bytes":524288,' in text
    assert text == json.dumps(json.loads(text), separators=(",", ":"))
    assert "ocr" not in text


def test_case_matters_in_a_fingerprint_except_in_id_and_hash() -> None:
    """TC-INV-06 D, and that nothing else is folded or trimmed."""
    shouted = replace(FIELDS, capture_id=FIELDS.capture_id.upper(), content_hash=FIELDS.content_hash.upper())
    assert canonical_fingerprint(shouted) == GOLDEN
    for name in ("kek_id", "mime_type", "upload_object_key"):
        value = getattr(FIELDS, name)
        for changed in (value.upper(), f"{value} ", f" {value}"):
            assert canonical_fingerprint(with_field(name, changed)) != GOLDEN


@pytest.mark.parametrize("name", NINE)
def test_each_of_the_nine_fields_changes_the_fingerprint(name: str) -> None:
    """TC-INV-06 B."""
    value = getattr(FIELDS, name)
    changed = value + 1 if isinstance(value, int) else f"{value}0"
    assert canonical_fingerprint(with_field(name, changed)) != GOLDEN


def test_node_agrees_on_10_000_payloads() -> None:
    dice = random.Random(20260403)
    payloads = [_made_up(dice) for _ in range(10_000)]
    lines = "\n".join(json.dumps(asdict(payload)) for payload in payloads)
    ran = subprocess.run(["node", "-e", NODE], input=lines.encode(), capture_output=True, check=True)
    theirs = ran.stdout.decode().split()
    assert len(set(theirs)) == len(payloads)
    assert theirs == [canonical_fingerprint(payload) for payload in payloads]


def _made_up(dice: random.Random) -> Fields:
    def text(alphabet: str, most: int) -> str:
        return "".join(dice.choices(alphabet, k=dice.randint(1, most)))

    base64 = string.ascii_letters + string.digits + "+/="
    strange = string.printable + "éß€漢😀\u2028\u2029\x7f\x00\x1f\"\\/<>&'"
    mixed = "".join(dice.choice([str.upper, str.lower])(c) for c in str(uuid.UUID(int=dice.getrandbits(128))))
    return Fields(
        aes_gcm_nonce_b64=text(base64, 16),
        aes_gcm_tag_b64=text(base64, 24),
        capture_id=mixed,
        content_hash=text(string.hexdigits, 64),
        dek_wrapped_b64=text(base64, 60),
        kek_id=text(strange, 20),
        mime_type=text(strange, 20),
        size_bytes=dice.choice([0, 1, dice.getrandbits(20), dice.getrandbits(36), 2**53 - 1]),
        upload_object_key=text(strange, 40),
    )
