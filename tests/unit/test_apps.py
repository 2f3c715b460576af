"""Apps are found by their entry points, anybody's like ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cograil.apps.app import enabled_apps, installed_apps
from cograil.errors import UsageError
from cograil.settings import Settings

GOOD = "from cograil.apps.app import App\napp = App(name='laundry')\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory where packages can be installed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    installed_apps.cache_clear()
    yield tmp_path
    installed_apps.cache_clear()


def install(site: Path, module: str, source: str, name: str = "laundry", attribute: str = "app") -> None:
    (site / f"{module}.py").write_text(source)
    facts = site / f"{module}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[cograil.apps]\n{name} = {module}:{attribute}\n")


def names(settings: Settings) -> list[str]:
    return [app.name for app in enabled_apps(settings)]


def test_ours_are_found_unless_they_are_off(site: Path) -> None:
    assert "containers" in names(Settings())
    assert "containers" not in names(Settings(containers={"enabled": False}))


def test_an_app_of_somebody_else_is_found(site: Path) -> None:
    install(site, "laundry_good", GOOD)
    assert "laundry" in names(Settings())


def test_one_that_cannot_be_loaded_says_why(site: Path) -> None:
    install(site, "laundry_torn", "import laundry_not_there\n")
    with pytest.raises(UsageError, match=r"'laundry' \(laundry_torn:app\).*laundry_not_there"):
        enabled_apps(Settings())


def test_what_is_no_app_is_refused(site: Path) -> None:
    install(site, "laundry_wrong", "app = 1\n")
    with pytest.raises(UsageError, match="laundry_wrong:app is no"):
        enabled_apps(Settings())


def test_two_of_one_name_are_refused(site: Path) -> None:
    install(site, "laundry_one", GOOD)
    install(site, "laundry_two", GOOD)
    with pytest.raises(UsageError, match="two apps are called 'laundry'"):
        enabled_apps(Settings())
