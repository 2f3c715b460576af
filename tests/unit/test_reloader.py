"""Edits of handlers and workflow files while `up --dev` runs."""

from __future__ import annotations

from pathlib import Path

from cograil.processes.reloader import Reloader


async def test_an_edit_before_the_first_look_is_seen(tmp_path: Path) -> None:
    module, workflow = tmp_path / "handlers.py", tmp_path / "flow.yaml"
    module.write_text("x = 1\n")
    workflow.write_text("workflow_id: flow\n")
    calls: list[str] = []

    async def publish() -> None:
        calls.append("publish")

    reloader = Reloader(
        tmp_path, lambda: [module], lambda: calls.append("restart"), lambda: [workflow], publish
    )
    module.write_text("x = 22\n")  # while the worker starts
    workflow.write_text("workflow_id: other_flow\n")
    await reloader.look()
    assert calls == ["restart", "publish"]
    await reloader.look()
    assert calls == ["restart", "publish"]
