"""What `up` says of a worker that cannot start, and of a handler that nobody has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cograil.processes.apps import import_apps, summarize
from cograil.processes.greeting import tell_worker_error, tell_worker_runs
from cograil.settings import load_settings

ERROR = """the app 'handlers' cannot be imported:
  File "/srv/shop/handlers.py", line 3
    def broken(:
               ^
SyntaxError: invalid syntax"""


def test_people_see_the_error_as_python_prints_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    tell_worker_error(load_settings({"log.format": "text"}), ERROR, is_reloading=True)
    lines = capsys.readouterr().err.splitlines()
    assert f"The worker cannot start: {ERROR}".splitlines() == lines[1:6]
    assert "Jobs wait until the module is corrected; the worker then starts by itself." in lines
    tell_worker_runs(load_settings({"log.format": "text"}))
    assert "The worker runs again." in capsys.readouterr().err


def test_a_log_has_the_error_in_a_field() -> None:
    with capture_logs() as lines:
        tell_worker_error(load_settings({"log.format": "json"}), ERROR, is_reloading=True)
    assert lines == [{"event": "worker cannot start", "error": ERROR, "log_level": "error"}]


def test_the_summary_of_an_error_has_its_last_line_and_its_place() -> None:
    assert summarize(ERROR) == (
        "the app 'handlers' cannot be imported: SyntaxError: invalid syntax (handlers.py, line 3)"
    )
    assert summarize("there is no module 'x'") == "there is no module 'x'"


def test_the_summary_of_an_exception_names_the_line_of_the_users_code(tmp_path: Path) -> None:
    (tmp_path / "raises_on_import.py").write_text("x = 1\n1 / 0\n")
    with pytest.raises(Exception, match="cannot be imported") as caught:
        import_apps(["raises_on_import"], str(tmp_path))
    sys.path.remove(str(tmp_path))
    assert summarize(str(caught.value)) == (
        "the app 'raises_on_import' cannot be imported: "
        "ZeroDivisionError: division by zero (raises_on_import.py, line 2)"
    )
