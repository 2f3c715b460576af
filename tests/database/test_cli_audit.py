"""Who did what by commands: each change is in the audit log, with the change or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cograil.cli import main

ASK = "workflow_id: ask\nnodes: {q: {type: approval, approval: {message: well?}}}"


class Shell:
    """`cograil ...` on the database of a test, in this process."""

    def __init__(self, dsn: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.dsn = dsn
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> Any:
        exit_code = main([*arguments, "--json"])
        output = self._capsys.readouterr()
        assert exit_code == code, output
        return json.loads(output.out)

    def dead_letter(self) -> str:
        """The id of one."""
        with psycopg.connect(self.dsn) as conn:
            made = conn.execute(
                "insert into cograil.deliveries (id, type, destination, origin, url, sending, body, state,"
                " ended_at) values (gen_random_uuid(), 't', 'callback', '', '', '{}', '{}', 'dead', now())"
                " returning id::text"
            ).fetchone()
            assert made is not None
            return str(made[0])

    def audit(self) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as conn:
            query = "select tenant_id, role, action, target, data from cograil.audit_log order by id"
            return conn.execute(query).fetchall()


@pytest.fixture
def shell(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COGRAIL_DATABASE__URL", dsn)
    monkeypatch.setenv("COGRAIL_DATABASE__ALLOW_UNSAFE", "true")
    monkeypatch.setattr("cograil.cli.instance_client.getpass.getuser", lambda: "ann")
    return Shell(dsn, capsys)


def test_keys_are_made_and_ended_by_somebody(shell: Shell) -> None:
    key = shell("keys", "create", "--role", "viewer", "--tenant", "acme", "--name", "shop")["key_id"]
    shell("keys", "revoke", key)
    shell("keys", "revoke", key, code=3)
    shell("keys", "delete", key)
    facts = {"session_user": "postgres", "by": "ann", "role": "viewer", "name": "shop"}
    assert shell.audit() == [
        ("acme", "cli", f"{what} key", key, facts) for what in ("create", "revoke", "delete")
    ]


def test_every_command_that_changes_something_leaves_a_row(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "ask.yaml").write_text(ASK, "utf-8")
    shell("publish", "ask.yaml")
    shell("publish", "ask.yaml")  # which changes nothing
    first, second = (shell("submit", "ask")["job_id"] for _ in range(2))
    for verb in ("pause", "resume"):
        for kind, name in (("queue", "gpu"), ("workflow", "ask"), ("job", first)):
            shell(verb, kind, name)
    shell("approve", first, "q", "--reason", "fine")
    shell("cancel", second)
    shell("cancel", second, code=4)
    shell("retry", second)
    subscription = shell("subscriptions", "add", "https://a.test/")["subscription_id"]
    shell("subscriptions", "rotate", subscription)
    shell("subscriptions", "enable", subscription)
    shell("subscriptions", "remove", subscription)
    shell("subscriptions", "remove", subscription, code=3)
    many = shell("bulk", "cancel", "--status", "pending")["job_id"]
    letter = shell.dead_letter()
    shell("deliveries", "resend", letter)
    shell("deliveries", "resend", letter, code=4)
    assert [(action, target) for _, _, action, target, _ in shell.audit()] == [
        ("publish", "ask 1"),
        *[("submit", job_id) for job_id in (first, second)],
        *[
            (f"{verb} {kind}", name)
            for verb in ("pause", "resume")
            for kind, name in (("queue", "gpu"), ("workflow", "ask"), ("job", first))
        ],
        ("signal approve", first),
        ("cancel", second),
        ("retry", second),
        *[(what, subscription) for what in ("subscribe", "rotate subscription", "enable subscription")],
        ("unsubscribe", subscription),
        ("bulk cancel", many),
        ("resend", letter),
    ]
