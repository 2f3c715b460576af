"""Settings of captures: what is wrong is said, and keys are never shown."""

from __future__ import annotations

import base64

import pytest

from cograil.apps.captures.settings import CaptureSettings
from cograil.errors import InvalidSettings
from cograil.settings import describe, load_settings

KEK = base64.b64encode(bytes(range(32))).decode()


def test_keks_of_the_environment_are_read_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_CAPTURES__KEKS", f"one={KEK}, two={KEK}")
    settings = load_settings()
    assert settings.section(CaptureSettings).keks == {"one": KEK, "two": KEK}
    assert {setting.value for setting in describe(settings) if setting.name == "captures.keks"} == {"***"}
    assert KEK not in repr(settings.section(CaptureSettings))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KEKS", "one"),
        ("KEKS", "one=c2hvcnQ="),
        ("KEKS", f"={KEK}"),
        ("STORE_URL", "ftp://example.org"),
        ("STORE_URL", "/var/objects"),
        ("TSA_URL", "example.org"),
        ("RATE_PER_MINUTE", "0"),
    ],
)
def test_impossible_capture_settings_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"COGRAIL_CAPTURES__{name}", value)
    with pytest.raises(InvalidSettings, match=f"COGRAIL_CAPTURES__{name}") as error:
        load_settings()
    assert KEK not in str(error.value)
    assert "c2hvcnQ" not in str(error.value)
