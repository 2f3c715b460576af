"""The first start for callers elsewhere: a key before anything runs, an access log, an honest doctor."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
from tests.acceptance.instances import Running, Start
from tests.acceptance.shell import shell_in
from tests.conftest import Eventually


async def test_a_key_can_be_made_before_the_first_start(
    tmp_path: Path, start: Start, eventually: Eventually
) -> None:
    shell = shell_in(tmp_path)
    made = shell.run_process("keys", "create", "--role", "admin", "--json")
    assert made.code == 0, made.err
    up = start("up", "--host", "0.0.0.0", "--port", "0", "--access-log", "--json")
    await eventually(lambda: (tmp_path / "data" / "instance.json").exists() and up.process.poll() is None)
    url = up.url.replace("0.0.0.0", "127.0.0.1")
    assert httpx2.get(f"{url}/api/v1/jobs?limit=1").status_code == 401
    answer = httpx2.get(f"{url}/api/v1/jobs?limit=1", headers={"Authorization": f"Bearer {made.json['key']}"})
    assert answer.status_code == 200
    logged = await eventually(
        lambda: [request for request in requests(up) if request["path"] == "/api/v1/jobs"][:2]
    )
    assert [request["status"] for request in logged] == [401, 200]
    assert {"method", "bytes", "ms", "client"} <= set(logged[1])
    assert "limit=1" not in json.dumps(logged)


def requests(up: Running) -> list[dict[str, object]]:
    lines = [line for line in up.output.splitlines() if line.startswith("{") and line.endswith("}")]
    return [entry for entry in map(json.loads, lines) if entry["event"] == "request"]


def test_the_doctor_hides_empty_tables_and_warns_without_an_orchestrator(tmp_path: Path, dsn: str) -> None:
    shell = shell_in(tmp_path, COGRAIL_DATABASE_URL=dsn, COGRAIL_DATABASE__ALLOW_UNSAFE="true")
    short = shell.run("doctor").out
    assert "no orchestrator runs" in next(line for line in short.splitlines() if "L2" in line)
    assert "yellow" in next(line for line in short.splitlines() if "L2" in line)
    assert "company_documents" not in short
    assert "empty tables are not shown" in short
    assert "company_documents" in shell.run("doctor", "--all").out
