from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from cograil.errors import InvalidSettings
from cograil.setting_sources import OTHER_VARIABLES, unknown_variables
from cograil.settings import (
    LogSettings,
    Settings,
    describe,
    load_settings,
    mask_password,
    setting_names,
    variable_of,
)


@pytest.fixture(autouse=True)
def no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("COGRAIL_")]:
        monkeypatch.delenv(variable)


def origins(settings: Settings) -> dict[str, str]:
    return {name: origin for name, _, origin in describe(settings)}


def shown(settings: Settings) -> dict[str, object]:
    return {name: value for name, value, _ in describe(settings)}


def test_defaults_are_the_promised_ones() -> None:
    settings = load_settings()
    lease = settings.lease
    assert (lease.seconds, lease.pulse_seconds, lease.scan_seconds) == (15, 5, 5)
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)
    assert settings.database.url is None
    assert settings.data_dir.name == "cograil"
    assert set(origins(settings).values()) == {"default"}


def test_the_data_directory_is_in_the_xdg_data_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert load_settings().data_dir == tmp_path / "cograil"


def test_a_flag_wins_over_the_environment_which_wins_over_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COGRAIL_PORT", "1111")
    monkeypatch.setenv("COGRAIL_LEASE__SECONDS", "30")
    settings = load_settings({"port": 2222, "lease.pulse_seconds": 4, "host": None})
    assert (settings.port, settings.lease.seconds, settings.lease.pulse_seconds) == (2222, 30, 4)
    assert settings.host == "127.0.0.1"
    found = origins(settings)
    assert found["port"] == "flag"
    assert found["lease.seconds"] == "environment COGRAIL_LEASE__SECONDS"
    assert found["lease.pulse_seconds"] == "flag"
    assert found["host"] == "default"


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_PORT", "")
    assert load_settings().port == 8080


def test_settings_do_not_change() -> None:
    settings = load_settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 1  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        settings.lease.seconds = 1  # type: ignore[misc]


@pytest.mark.parametrize("variable", ["COGRAIL_DATABASE_URL", "COGRAIL_DATABASE__URL"])
def test_the_database_url_has_two_names(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "postgresql://somewhere/db")
    settings = load_settings()
    assert settings.database.url == "postgresql://somewhere/db"
    assert origins(settings)["database.url"] == f"environment {variable}"


def test_two_names_with_different_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_DATABASE_URL", "postgresql://one/db")
    monkeypatch.setenv("COGRAIL_DATABASE__URL", "postgresql://two/db")
    with pytest.raises(InvalidSettings, match=r"COGRAIL_DATABASE_URL and COGRAIL_DATABASE__URL .* differ"):
        load_settings()


def test_queue_names_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_QUEUES__NAMES", "fast, slow,,")
    assert load_settings().queues.names == ("fast", "slow")
    assert load_settings({"queues.names": ["only"]}).queues.names == ("only",)


def test_a_tilde_is_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_DATA_DIR", "~/here")
    assert load_settings().data_dir == Path.home() / "here"


def test_a_level_may_be_written_in_capitals(monkeypatch: pytest.MonkeyPatch) -> None:
    for level in get_args(LogSettings.model_fields["level"].annotation):
        monkeypatch.setenv("COGRAIL_LOG__LEVEL", level.upper())
        assert load_settings().log.level == level


def test_every_problem_is_told_at_once_and_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_PORT", "http")
    monkeypatch.setenv("COGRAIL_WORKER__CONCURRENCY", "0")
    monkeypatch.setenv("COGRAIL_LOG__FORMAT", "xml")
    with pytest.raises(InvalidSettings) as caught:
        load_settings({"host": 5})
    lines = sorted(str(caught.value).splitlines())
    assert [line.split(":")[0] for line in lines] == [
        "COGRAIL_LOG__FORMAT",
        "COGRAIL_PORT",
        "COGRAIL_WORKER__CONCURRENCY",
        "the flag for host",
    ]
    assert "not 'http'" in lines[1]
    assert "greater than 0" in lines[2]


def test_a_lease_survives_one_missed_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_LEASE__SECONDS", "10")
    load_settings()
    monkeypatch.setenv("COGRAIL_LEASE__SECONDS", "9.9")
    with pytest.raises(InvalidSettings, match=r"^COGRAIL_LEASE__SECONDS \(9.9\) must be at least twice"):
        load_settings()


def test_a_lost_lease_is_seen_within_another() -> None:
    with pytest.raises(InvalidSettings, match="COGRAIL_LEASE__SCAN_SECONDS"):
        load_settings({"lease.scan_seconds": 16})


def test_a_flag_without_a_setting_is_a_bug() -> None:
    with pytest.raises(ValueError, match=r"lease\.secondz"):
        load_settings({"lease.secondz": 1})


def test_every_setting_is_described_and_has_its_own_variable() -> None:
    names = [name for name, _, _ in describe(load_settings())]
    assert names == setting_names()
    assert len({variable_of(name) for name in names}) == len(names)
    assert variable_of("lease.seconds") == "COGRAIL_LEASE__SECONDS"
    assert variable_of("database.url") == "COGRAIL_DATABASE_URL"


@pytest.mark.parametrize(
    "conninfo",
    [
        "postgresql://me:hush@host/db",
        "postgresql://me:hu:hush@hush@host:5432/db?connect_timeout=1",
        "postgresql://me:hush/hush@host/db",
        "postgresql://host/db?user=me&password=hush&connect_timeout=1",
        "postgresql://host/db?sslpassword=hush",
        "host=h user=me password=hush",
        r"host=h password = 'hush \' hush' user=me",
        r"host=h password=hush\ hush user=me",
    ],
)
def test_passwords_are_not_shown(monkeypatch: pytest.MonkeyPatch, conninfo: str) -> None:
    monkeypatch.setenv("COGRAIL_DATABASE_URL", conninfo)
    settings = load_settings()
    assert settings.database.url == conninfo
    assert "hush" not in str(shown(settings)["database.url"])
    assert "hush" not in repr(settings)


def test_secrets_of_sources_are_shown_as_stars(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("INPI_PASSWORD", "RCS_TOKEN"):
        monkeypatch.setenv(f"COGRAIL_COMPANIES__{name}", "hush-hush")
    settings = load_settings()
    assert settings.companies.rcs_token == "hush-hush"
    shown = {one.name: one.value for one in describe(settings)}
    assert (shown["companies.inpi_password"], shown["companies.rcs_token"]) == ("***", "***")
    assert "hush-hush" not in repr(settings)


def test_a_lock_outlives_the_calls_of_a_source_and_no_secret_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_COMPANIES__RCS_TOKEN", "hush-hush")
    monkeypatch.setenv("COGRAIL_COMPANIES__LOCK_SECONDS", "10")
    with pytest.raises(InvalidSettings, match="COGRAIL_COMPANIES__LOCK_SECONDS must be") as refused:
        load_settings()
    assert "hush-hush" not in str(refused.value)


def test_a_token_of_a_file_is_used_and_one_that_cannot_be_sent_is_refused_untold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COGRAIL_COMPANIES__RCS_TOKEN", "hush-hush\r\n")
    assert load_settings().companies.rcs_token == "hush-hush"
    monkeypatch.setenv("COGRAIL_COMPANIES__RCS_TOKEN", "hush\nhush")
    with pytest.raises(InvalidSettings, match="COGRAIL_COMPANIES__RCS_TOKEN: must be a token") as refused:
        load_settings()
    assert "hush" not in str(refused.value)


def test_what_is_not_secret_is_shown() -> None:
    assert mask_password("postgresql://me:hush@host:5432/db") == "postgresql://me:***@host:5432/db"
    assert mask_password("postgresql://me@host/db") == "postgresql://me@host/db"
    assert (
        mask_password("host=/run/pg dbname=x password=hush port=1")
        == "host=/run/pg dbname=x password=*** port=1"
    )


@pytest.mark.parametrize(
    "conninfo",
    ["postgres//me:hush@host/db", "me:hush@host/db", "hush", "postgresql://me:hush@host/db?colour=hush"],
)
def test_what_is_no_connection_string_is_refused_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, conninfo: str
) -> None:
    monkeypatch.setenv("COGRAIL_DATABASE_URL", conninfo)
    with pytest.raises(InvalidSettings, match=r"^COGRAIL_DATABASE_URL is neither") as caught:
        load_settings()
    assert "hush" not in "".join(traceback.format_exception(caught.value))
    assert mask_password(conninfo) == "***"


def test_a_misspelt_variable_is_an_error_with_the_name_that_was_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COGRAIL_WORKER__CONCURENCY", "5")
    monkeypatch.setenv("COGRAIL_XYZZY", "1")
    with pytest.raises(InvalidSettings) as caught:
        load_settings()
    assert str(caught.value).splitlines() == [
        "COGRAIL_WORKER__CONCURENCY is not a setting; did you mean COGRAIL_WORKER__CONCURRENCY?",
        "COGRAIL_XYZZY is not a setting",
    ]


@pytest.mark.parametrize("variable", ["COGRAIL_WORKER", "COGRAIL_WORKER__", "cograil_worker"])
def test_a_section_is_not_a_setting_and_its_settings_are_named(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "5")
    with pytest.raises(InvalidSettings) as caught:
        load_settings()
    message = str(caught.value)
    assert message.startswith(f"{variable} is a section and not a setting; its settings are COGRAIL_WORKER__")
    assert "COGRAIL_WORKER__CONCURRENCY" in message


@pytest.mark.parametrize("variable", ["cograil_worker__concurrency", "Cograil_Worker__Concurrency"])
def test_a_variable_in_small_letters_is_an_error_with_the_right_spelling(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "5")
    with pytest.raises(InvalidSettings) as caught:
        load_settings()
    assert str(caught.value) == (
        f"{variable} is not read: variables are written in capitals; set COGRAIL_WORKER__CONCURRENCY"
    )


def test_a_misspelt_variable_in_small_letters_has_a_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("cograil_worker__concurency", "5")
    with pytest.raises(InvalidSettings, match="did you mean COGRAIL_WORKER__CONCURRENCY"):
        load_settings()


def test_single_underscores_are_told_from_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_LEASE_SECONDS", "5")
    with pytest.raises(InvalidSettings, match="did you mean COGRAIL_LEASE__SECONDS"):
        load_settings()


def test_every_variable_there_is_is_known() -> None:
    known = {variable_of(name) for name in setting_names()} | {"COGRAIL_DATABASE__URL", *OTHER_VARIABLES}
    assert unknown_variables(dict.fromkeys(known, "1"), setting_names()) == []


def test_variables_of_a_kubernetes_service_are_not_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_PORT", "tcp://10.0.0.7:80")
    monkeypatch.setenv("COGRAIL_SERVICE_HOST", "10.0.0.7")
    monkeypatch.setenv("COGRAIL_SERVER_SERVICE_PORT_HTTP", "80")
    monkeypatch.setenv("COGRAIL_PORT_80_TCP_ADDR", "10.0.0.7")
    assert load_settings().port == 8080


BARE = {"DATA_DIR": "/srv/other", "DATABASE_URL": "postgresql://other/db", "LOG_JSON": "1", "OCR_LANG": "deu"}


def test_variables_of_other_programs_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, text in BARE.items():
        monkeypatch.setenv(variable, text)
    assert set(origins(load_settings()).values()) == {"default"}


def test_bare_variables_count_for_their_own_command_or_in_compatible_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, text in BARE.items():
        monkeypatch.setenv(variable, text)
    documents = load_settings(bare_parts=["documents"])
    assert documents.documents.data_dir == Path("/srv/other")
    assert documents.log.format == "json"
    assert documents.gateway.database_url is None
    assert load_settings(bare_parts=["gateway"]).gateway.database_url == "postgresql://other/db"
    monkeypatch.setenv("COGRAIL_COMPAT", "1")
    assert origins(load_settings())["documents.ocr_lang"] == "environment OCR_LANG"


def test_a_settings_file_is_read_and_the_environment_wins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cograil.toml").write_text(
        'port = 9000\ndata_dir = "data"\n\n[worker]\nconcurrency = 7  # few\n\n[queues]\nnames = ["a", "b"]\n'
    )
    monkeypatch.setenv("COGRAIL_PORT", "9001")
    settings = load_settings()
    assert (settings.port, settings.worker.concurrency, settings.queues.names) == (9001, 7, ("a", "b"))
    assert settings.data_dir == Path("data")
    found = origins(settings)
    assert found["port"] == "environment COGRAIL_PORT"
    assert found["worker.concurrency"] == "file cograil.toml:5"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert load_settings().worker.concurrency == 200
    named = load_settings(config=tmp_path / "cograil.toml")
    assert named.data_dir == tmp_path / "data"
    monkeypatch.setenv("COGRAIL_CONFIG", str(tmp_path / "cograil.toml"))
    assert load_settings().worker.concurrency == 7


def test_every_mistake_in_a_settings_file_has_its_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "cograil.toml"
    file.write_text("prot = 1\n[worker]\nconcurency = 7\n[wrker]\nthreads = 1\n")
    with pytest.raises(InvalidSettings) as caught:
        load_settings()
    assert str(caught.value).splitlines() == [
        "cograil.toml:1: prot is not a setting; did you mean port?",
        "cograil.toml:3: worker.concurency is not a setting; did you mean worker.concurrency?",
        "cograil.toml:5: wrker.threads is not a setting; did you mean worker.threads?",
    ]
    file.write_text('[worker]\nconcurrency = "many"\n')
    with pytest.raises(InvalidSettings, match=r"^cograil.toml:2: worker.concurrency: .* not 'many'$"):
        load_settings()
    file.write_text("[worker\n")
    with pytest.raises(InvalidSettings, match=r"cograil.toml cannot be read: .*line 1"):
        load_settings()
    with pytest.raises(InvalidSettings, match="there is no settings file"):
        load_settings(config=tmp_path / "none.toml")
