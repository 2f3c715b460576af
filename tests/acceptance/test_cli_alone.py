"""The commands that need no running instance, or bring their own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import click
import pytest
from shell import CONTROL, Shell, shell_in

from cograil.intake.cli import ENTRIES, cli
from cograil.intake.cli.demo import of_its_own
from cograil.settings import load_settings


@pytest.fixture
def empty_shell(tmp_path: Path) -> Shell:
    """A shell where nothing runs."""
    return shell_in(tmp_path)


@pytest.mark.parametrize("name", [name for name in ENTRIES if name not in ("db", "bulk")])
def test_every_command_has_help_with_examples_and_speaks_json(name: str) -> None:
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    assert "Examples:" in (command.help or "")
    for one in command.commands.values() if isinstance(command, click.Group) else [command]:
        assert "Examples:" in (one.help or ""), one.name
        assert any("--json" in parameter.opts for parameter in one.params), one.name


@pytest.mark.parametrize(
    "words",
    [["jobs"], ["show", "00000000"], ["submit", "greet"], ["workflows"], ["doctor"], ["db", "status"]],
)
def test_without_an_instance_a_command_says_that_nothing_runs_there(
    empty_shell: Shell, words: list[str]
) -> None:
    answer = empty_shell.run(*words)
    assert answer.code == 3
    assert answer.out == ""
    assert "nothing runs on" in answer.err
    assert "cograil up" in answer.err


@pytest.mark.parametrize("url", ["postgres//u:hunter2@h/x", "hunter2", "u:hunter2@h/x"])
def test_a_wrong_database_url_is_told_without_showing_it(empty_shell: Shell, url: str) -> None:
    shell = empty_shell.with_environment(COGRAIL_DATABASE_URL=url)
    for command in ("jobs", "config"):
        answer = shell.run(command)
        assert answer.code == 2
        assert answer.err.startswith("error: COGRAIL_DATABASE_URL is neither")
        assert "hunter2" not in answer.out + answer.err


def test_run_of_a_container_says_why_none_can_run_here(empty_shell: Shell) -> None:
    text = 'workflow_id: c\nnodes:\n  shout: {type: container, container: {image: "x", command: "true"}}\n'
    (empty_shell.directory / "container.yaml").write_text(text)
    answer = empty_shell.with_environment(COGRAIL_CONTAINERS__RUNTIME="none").run("run", "container.yaml")
    assert answer.code == 2
    assert "node 'shout' runs a container: containers do not run here: COGRAIL_CONTAINERS" in answer.err


def test_run_of_a_file_with_a_handler_nobody_has_says_so_and_does_not_wait_for_ever(
    empty_shell: Shell,
) -> None:
    (empty_shell.directory / "nobody.yaml").write_text("workflow_id: n\nnodes:\n  a: {handler: nobody_has}\n")
    answer = empty_shell.run("run", "nobody.yaml")
    assert answer.code == 2
    assert "no handler 'nobody_has'" in answer.err


def test_a_data_directory_one_may_not_read_is_told_in_a_sentence(empty_shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked" / "lock").mkdir()  # cannot be opened and locked, not even by root
    answer = empty_shell.run("jobs", "--data-dir", str(tmp_path / "locked"))
    assert answer.code in (1, 3)
    assert "Traceback" not in answer.err


def test_run_shows_only_the_trace_of_an_app_that_fails(empty_shell: Shell) -> None:
    (empty_shell.directory / "brokenapp.py").write_text("1 / 0\n")
    process = empty_shell.start("run", "greet.yaml", "--app", "brokenapp")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said.count("Traceback") == 1
    assert re.findall(r'File ".*?(\w+)\.py"', said) == ["brokenapp"]


# -- files -----------------------------------------------------------------------------------------


def test_check_lists_all_problems_with_line_and_column(empty_shell: Shell) -> None:
    answer = empty_shell.run("check", "wrong.txt", "greet.yaml")
    assert answer.code == 2
    places = [line.split(": ")[0] for line in answer.out.splitlines()]
    assert len(places) >= 3
    assert all(re.fullmatch(r"wrong\.txt:\d+:\d+", place) for place in places)
    assert "greet.yaml: ok" in answer.err


def test_check_finds_the_byte_that_is_not_utf_8(empty_shell: Shell) -> None:
    (empty_shell.directory / "latin.yaml").write_bytes(b"workflow_id: w\nname: \xc3\xbc caf\xe9\n")
    answer = empty_shell.run("check", "latin.yaml")
    assert answer.code == 2
    assert answer.out.startswith("latin.yaml:2:12: the byte 0xE9 is not UTF-8")


def test_check_speaks_json_about_good_and_bad_files(empty_shell: Shell) -> None:
    wrong, greet = empty_shell.run("check", "wrong.txt", "greet.yaml", "--json").json["files"]
    assert (wrong["file"], wrong["ok"], greet["ok"], greet["problems"]) == ("wrong.txt", False, True, [])
    for problem in wrong["problems"]:
        assert problem.keys() >= {"code", "message", "pointer", "line", "column"}


def test_check_warns_of_handlers_that_the_app_does_not_have(empty_shell: Shell) -> None:
    (empty_shell.directory / "mine.py").write_text(
        "from cograil import handler\n\n@handler('nobody_has_this')\ndef mine(): return {}\n"
    )
    (empty_shell.directory / "other.py").write_text("")
    assert "warning" not in empty_shell.run_process("check", "nobody.yaml", "--app", "mine").err
    answer = empty_shell.run_process("check", "nobody.yaml", "--app", "other")
    assert answer.code == 0
    assert "no handler 'nobody_has_this'" in answer.err


def test_a_file_that_is_not_text_is_a_problem_and_not_a_crash(empty_shell: Shell) -> None:
    (empty_shell.directory / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    answer = empty_shell.run("check", "bytes.yaml")
    assert answer.code == 2
    assert "not UTF-8" in answer.out


# -- run -------------------------------------------------------------------------------------------


def test_run_without_an_instance_starts_one_for_the_job_and_stops_it(empty_shell: Shell) -> None:
    answer = empty_shell.run_process("run", "greet.yaml", "--input", "name=Ada")
    assert answer.code == 0
    assert answer.json["hello"] == {"message": "Hello, Ada!"}
    assert "hello  completed" in answer.err
    assert not CONTROL.search(answer.err)
    assert empty_shell.run("submit", "greet").code == 3  # nothing runs any more
    assert "completed" in empty_shell.run("jobs").out  # the data stays, and can be looked at
    again = empty_shell.run_process("run", "broken.yaml", "--json")
    assert (again.code, again.json["status"]) == (1, "failed")


def test_a_retry_is_previewed_where_nothing_runs(empty_shell: Shell) -> None:
    job = empty_shell.run_process("run", "broken.yaml", "--json").json["job_id"]
    preview = empty_shell.run_process("retry", job, "--preview", "--json")
    assert (preview.code, preview.json["kept"], preview.json["again"]) == (0, ["fine"], ["wrong", "after"])
    refusal = empty_shell.run_process("retry", job)
    assert (refusal.code, "nothing runs on" in refusal.err) == (3, True)  # it would wait for an orchestrator


def test_run_uses_the_handlers_of_an_app(empty_shell: Shell) -> None:
    (empty_shell.directory / "mine.py").write_text(
        "from cograil import handler\n\n@handler('nobody_has_this')\ndef mine(): return {'found': True}\n"
    )
    answer = empty_shell.run_process("run", "nobody.yaml", "--app", "mine")
    assert answer.json == {"lost": {"found": True}}


def test_what_cannot_be_written_is_one_line_and_no_bug(empty_shell: Shell) -> None:
    said = "error: the output cannot be written: No space left on device\n"
    with Path("/dev/full").open("w") as full:
        for words in (["schema"], ["config"], ["config", "--json"]):
            process = empty_shell.start(*words, stdout=full.fileno())
            assert (process.communicate(timeout=90)[1], process.returncode) == (said, 74)


def test_trouble_that_is_no_failed_job_does_not_look_like_one(tmp_path: Path, dsn: str) -> None:
    nowhere = shell_in(tmp_path, COGRAIL_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert [nowhere.run(*words).code for words in (["jobs"], ["submit", "greet"], ["db", "status"])] == [
        3,
        3,
        3,
    ]
    here = shell_in(tmp_path)
    assert here.run("up", "--data-dir", "/proc/nope").code == 2
    unsafe = shell_in(tmp_path, COGRAIL_DATABASE_URL=dsn)
    answer = unsafe.run("up", "--port", "0")
    assert (answer.code, "fsync" in answer.err) == (2, True)


# -- operating -------------------------------------------------------------------------------------


def test_the_doctor_is_red_on_a_database_that_may_forget(tmp_path: Path, dsn: str) -> None:
    unsafe = shell_in(tmp_path, COGRAIL_DATABASE_URL=dsn, COGRAIL_DATABASE__ALLOW_UNSAFE="true")
    answer = unsafe.run("doctor", "--json")
    assert answer.code == 1
    assert answer.json["status"] == "red"
    assert "fsync" in unsafe.run("doctor").out


def test_the_doctor_says_when_it_could_not_look(tmp_path: Path) -> None:
    nowhere = shell_in(tmp_path, COGRAIL_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    answer = nowhere.run("doctor")
    assert answer.code == 2
    assert "could not check" in answer.err


def test_the_schema_is_planned_migrated_and_compared(tmp_path: Path, empty_dsn: str) -> None:
    fresh = shell_in(tmp_path, COGRAIL_DATABASE_URL=empty_dsn, COGRAIL_DATABASE__ALLOW_UNSAFE="true")
    assert fresh.run("jobs").code == 2
    assert fresh.run("db", "status").code == 1
    planned = fresh.run("db", "migrate", "--plan", "--json").json["pending"]
    assert planned[0] == {"version": 1, "name": "core"}
    assert fresh.run("db", "migrate", "--json").json["applied"] == planned
    status = fresh.run("db", "status", "--json")
    assert status.code == 0
    newest = planned[-1]["version"]  # numbers may have gaps
    expected = {"current": newest, "known": newest, "pending": [], "problems": [], "roles_complete": True}
    assert status.json.items() >= expected.items()
    assert fresh.run("jobs", "--json").json == {"jobs": []}


def test_config_tells_values_and_where_they_come_from_and_hides_passwords(tmp_path: Path) -> None:
    url = "postgresql://me:secret@db/cograil"
    shell = shell_in(tmp_path, COGRAIL_DATABASE_URL=url)
    (tmp_path / "cograil.toml").write_text("[worker]\nthreads = 3\n")
    answer = shell.run("config", "--json")
    settings = {one["name"]: one for one in answer.json["settings"]}
    assert settings["database.url"]["origin"] == "environment COGRAIL_DATABASE_URL"
    assert settings["lease.seconds"] == {
        "name": "lease.seconds",
        "value": 15.0,
        "origin": "default",
        "variable": "COGRAIL_LEASE__SECONDS",
    }
    assert settings["worker.threads"]["origin"] == "file cograil.toml:2"
    assert "secret" not in answer.out + shell.run("config").out
    (tmp_path / "other.toml").write_text("port = 1\n")
    other = shell.run("config", "--config", "other.toml", "--json").json["settings"]
    assert [one["origin"] for one in other if one["name"] == "port"] == ["file other.toml:1"]


@pytest.mark.parametrize(
    "words", [["config"], ["jobs"], ["up"], ["worker"], ["documents", "convert", "x", "-o", "y"]]
)
def test_a_misspelt_setting_is_an_error(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "x").write_text("")
    answer = shell_in(tmp_path, COGRAIL_WORKER__CONCURENCY="5").run(*words)
    assert answer.code == 2
    assert (
        "COGRAIL_WORKER__CONCURENCY is not a setting; did you mean COGRAIL_WORKER__CONCURRENCY?" in answer.err
    )


def test_a_project_is_made_and_all_of_it_works_as_printed(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    made = shell.run("init", "my project")
    assert made.code == 0
    steps = [line.strip() for line in made.err.splitlines() if line.startswith("  ")]
    assert steps[0] == "cd 'my project'"
    environment = {name: value for name, value in shell.environment.items() if name != "COGRAIL_DATA_DIR"}
    for step in (steps[1], steps[3].split("  ")[0] + " -q -p no:cacheprovider"):
        script = f"{steps[0]} && {step}"
        done = subprocess.run(
            script, check=False, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "my project" / "data").is_dir()  # as its cograil.toml says
    again = shell.run("init", "my project")
    assert again.code == 4
    assert "handlers.py" in again.err


def test_schema_prints_the_json_schema(empty_shell: Shell) -> None:
    for words in (["schema"], ["schema", "--json"]):
        assert "workflow_id" in empty_shell.run(*words).json["properties"]


def test_the_demo_leaves_the_database_of_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_DATABASE_URL", "postgresql://pooler/work")
    monkeypatch.setenv("COGRAIL_DATABASE__DIRECT_URL", "postgresql://server/work")
    database = of_its_own(load_settings()).database
    assert (database.url, database.direct_url) == (None, None)


def test_the_demo_draws_its_nodes_and_bars_and_ends_well(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    code, drawn = shell.run_on_terminal("demo")
    assert code == 0, drawn[-3000:]
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    assert "━━━━" in plain
    assert re.search(r"✓ split .* 12/12", plain)
    assert re.search(r"- at_once .* not taken", plain)
    assert '"message": "Hello, medium delivery of 12 parts!"' in plain
    assert "What to try next" in plain
    assert list(tmp_path.glob("data")) == []
