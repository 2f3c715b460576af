"""Profiles of servers, and which instance a command uses."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cograil.cli import main
from cograil.cli.backends.server_profiles import choose_server, load_profiles, profiles_path, read_key
from cograil.cli.server_options import ServerOptions
from cograil.errors import NotFound, UsageError

URL, OTHER = "https://cograil.example.org", "http://127.0.0.1:8080"
SECRET = "cog_abcdefgh_very-secret"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without profiles, variables and settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("COGRAIL_SERVER_URL", "COGRAIL_API_KEY", "COGRAIL_PROFILE", "COGRAIL_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def key_file(home: Path) -> Path:
    file = home / "prod.key"
    file.write_text(f"{SECRET}\n")
    return file


def test_a_profile_is_stored_for_its_user_only_and_without_the_key(
    key_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profiles", "add", "prod", "--server", f"{URL}/", "--key-file", str(key_file)]) == 0
    assert main(["profiles", "use", "prod"]) == 0
    assert main(["profiles", "list"]) == 0
    assert main(["profiles", "list", "--json"]) == 0
    assert stat.S_IMODE(profiles_path().stat().st_mode) == 0o600
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err + profiles_path().read_text()
    assert URL in printed.out
    server = choose_server(ServerOptions(), has_database_option=False, environ={})
    assert server is not None
    assert (server.url, server.key, server.options) == (URL, SECRET, "--profile prod")
    assert SECRET not in repr(server)


def test_a_removed_profile_is_no_longer_in_use(key_file: Path) -> None:
    main(["profiles", "add", "prod", "--server", URL])
    main(["profiles", "use", "prod"])
    assert main(["profiles", "remove", "prod"]) == 0
    assert choose_server(ServerOptions(), has_database_option=False, environ={}) is None
    assert main(["profiles", "remove", "prod"]) == 3
    assert main(["profiles", "use", "prod"]) == 3


def test_the_instance_on_this_machine_is_used_again(key_file: Path) -> None:
    main(["profiles", "add", "prod", "--server", URL])
    main(["profiles", "use", "prod"])
    assert main(["profiles", "use", "-"]) == 0
    assert load_profiles().current is None


@pytest.mark.parametrize(
    ("options", "has_database_option", "environ", "url"),
    [
        (ServerOptions(), False, {}, URL),
        (ServerOptions(), True, {}, None),
        (ServerOptions(), True, {"COGRAIL_SERVER_URL": OTHER}, None),
        (ServerOptions(), False, {"COGRAIL_DATA_DIR": "/data"}, None),
        (ServerOptions(), False, {"COGRAIL_DATABASE_URL": "postgresql://db"}, None),
        (ServerOptions(), False, {"COGRAIL_DATA_DIR": "/data", "COGRAIL_SERVER_URL": OTHER}, OTHER),
        (ServerOptions(), False, {"COGRAIL_DATA_DIR": "/data", "COGRAIL_PROFILE": "prod"}, URL),
        (ServerOptions(profile="prod"), False, {"COGRAIL_SERVER_URL": OTHER}, URL),
        (ServerOptions(server=OTHER), False, {"COGRAIL_PROFILE": "prod"}, OTHER),
    ],
)
def test_the_nearest_choice_decides(
    options: ServerOptions, has_database_option: bool, environ: dict[str, str], url: str | None
) -> None:
    main(["profiles", "add", "prod", "--server", URL])
    main(["profiles", "use", "prod"])
    server = choose_server(options, has_database_option=has_database_option, environ=environ)
    assert (None if server is None else server.url) == url


def test_the_key_of_a_profile_is_not_replaced_by_the_variable(key_file: Path) -> None:
    main(["profiles", "add", "prod", "--server", URL, "--key-file", str(key_file)])
    environ = {"COGRAIL_API_KEY": "cog_other_key"}
    server = choose_server(ServerOptions(profile="prod"), has_database_option=False, environ=environ)
    assert server is not None
    assert server.key == SECRET


@pytest.mark.parametrize(
    ("options", "has_database_option", "message"),
    [
        (ServerOptions(server=URL, profile="prod"), False, "not both"),
        (ServerOptions(server=URL), True, "on this machine"),
        (ServerOptions(server="cograil.example.org"), False, "is not the URL of a server"),
        (ServerOptions(server="ftp://example.org"), False, "is not the URL of a server"),
        (ServerOptions(server="https://user:word@example.org"), False, "is not the URL of a server"),
        (ServerOptions(server=URL, key_file=Path("/nowhere/key")), False, "cannot be read"),
    ],
)
def test_a_wrong_choice_is_reported(options: ServerOptions, has_database_option: bool, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        choose_server(options, has_database_option=has_database_option, environ={})


def test_an_unknown_profile_is_reported_with_the_known_ones() -> None:
    main(["profiles", "add", "prod", "--server", URL])
    with pytest.raises(NotFound, match="there are prod"):
        choose_server(ServerOptions(profile="staging"), has_database_option=False, environ={})


@pytest.mark.parametrize("text", ["", "two words", "cog_é"])
def test_a_file_without_one_key_is_reported(home: Path, text: str) -> None:
    (home / "key").write_text(text)
    with pytest.raises(UsageError, match="does not contain one API key"):
        read_key(home / "key")


@pytest.mark.parametrize("text", ["current = ", "[profiles.prod]\nkey_file = 'x'", "profiles = 3"])
def test_a_damaged_file_is_reported_with_its_path(text: str) -> None:
    profiles_path().parent.mkdir(parents=True)
    profiles_path().write_text(text)
    with pytest.raises(UsageError, match=r"profiles\.toml"):
        load_profiles()


@pytest.mark.parametrize("name", ["", "-", "a b", "x" * 64, "../up"])
def test_a_name_that_cannot_stand_in_a_file_is_reported(name: str) -> None:
    assert main(["profiles", "add", "--server", URL, "--", name]) == 2


@pytest.mark.parametrize(
    "words",
    [
        ["--server", URL, "up"],
        ["up", "--server", URL],
        ["--profile", "prod", "run", "file.yaml"],
        ["--server", URL, "db", "migrate"],
        ["db", "migrate", "--server", URL],
        ["--server", URL, "documents", "watch"],
        ["--server", URL, "demo"],
        ["--server", URL, "init"],
        ["--server", URL, "keys", "create", "--role", "viewer"],
        ["keys", "revoke", "4kq2v7cn3xz6bdpa", "--server", URL],
    ],
)
def test_a_command_that_needs_the_machine_says_so(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert "without --s" in capsys.readouterr().err
