"""Apps are found by their entry points, anybody's like ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cograil import plugins
from cograil.app_registry import enabled_apps, installed_apps, load_object
from cograil.errors import UsageError
from cograil.settings import Settings, describe, load_settings, setting_names

GOOD = "from cograil.plugins import App\napp = App(name='laundry')\n"

WITH_SETTINGS = """
from pydantic import Field
from cograil.plugins import App, SettingsSection

class LaundrySettings(SettingsSection):
    soap: str = "white"
    password: str | None = Field(None, repr=False)

app = App(name="laundry", settings=LaundrySettings)
"""


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


def test_apps_are_chosen_by_name(site: Path) -> None:
    assert names(Settings()) == ["containers"]
    assert names(Settings(apps="companies, containers")) == ["companies", "containers"]
    assert names(Settings(apps=())) == []


def test_an_app_that_is_not_installed_is_refused(site: Path) -> None:
    with pytest.raises(UsageError, match="COGRAIL_APPS names the app 'sheep', which is not installed"):
        enabled_apps(Settings(apps=("sheep",)))


def test_the_settings_of_an_app_are_settings(site: Path) -> None:
    install(site, "laundry_set", WITH_SETTINGS)
    values: dict[str, Any] = {"laundry": {"soap": "green"}, "apps": ("laundry",)}
    settings: Any = Settings(**values)
    assert settings.laundry.soap == "green"
    assert settings.model_copy(update={"port": 1}).laundry.soap == "green"
    assert {"laundry.soap", "laundry.password"} <= set(setting_names())
    with pytest.raises(ValidationError, match=r"laundry\.soap"):
        Settings(**(values | {"laundry": {"soap": 7}}))


def test_a_secret_of_an_app_is_shown_as_stars(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "laundry_secret", WITH_SETTINGS)
    monkeypatch.setenv("COGRAIL_LAUNDRY__PASSWORD", "hush")
    shown = {setting.name: setting.value for setting in describe(load_settings())}
    assert shown["laundry.password"] == "***"
    assert shown["laundry.soap"] == "white"


def test_every_lazy_part_of_ours_can_be_loaded() -> None:
    for name in plugins.__all__:
        assert getattr(plugins, name) is not None
    for app in installed_apps():
        for command in app.commands.values():
            assert load_object(command.place).name == app.name
        assert app.api is None or app.api().routers
        assert app.pages is None or app.pages().entry.name == app.name


def test_an_app_of_somebody_else_is_found(site: Path) -> None:
    install(site, "laundry_good", GOOD)
    assert names(Settings(apps=("laundry",))) == ["laundry"]


def test_an_app_that_cannot_be_loaded_says_why(site: Path) -> None:
    install(site, "laundry_torn", "import laundry_not_there\n")
    with pytest.raises(UsageError, match=r"'laundry' \(laundry_torn:app\).*laundry_not_there"):
        enabled_apps(Settings())


def test_an_entry_point_that_is_not_an_app_is_refused(site: Path) -> None:
    install(site, "laundry_wrong", "app = 1\n")
    with pytest.raises(UsageError, match=r"laundry_wrong:app is not a cograil\.plugins\.App"):
        enabled_apps(Settings())


def test_two_of_one_name_are_refused(site: Path) -> None:
    install(site, "laundry_one", GOOD)
    install(site, "laundry_two", GOOD)
    with pytest.raises(UsageError, match="two apps are named 'laundry'"):
        enabled_apps(Settings())
