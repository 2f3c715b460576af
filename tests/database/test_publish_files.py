"""The workflow files of `cograil up`: what is said of handlers that nobody has."""

from __future__ import annotations

from pathlib import Path

from lab import Lab
from structlog.testing import capture_logs

from cograil.processes.publishing import publish_files

FLOW = "workflow_id: flow\nnodes:\n  a: {handler: anwser}\n  b: {handler: hello_world, depends_on: [a]}\n"


async def test_a_misspelt_handler_comes_with_the_one_that_was_probably_meant(
    lab: Lab, tmp_path: Path
) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    with capture_logs() as lines:
        for is_dev in (False, True):
            handlers = ["answer", "hello_world"]
            (published,) = await publish_files(lab.db, lab.decider, [file], handlers, is_dev=is_dev)
            assert published.problem == ""
            assert published.warnings == (
                "node 'a': no worker here has a handler 'anwser'; did you mean 'answer'?",
            )
    warnings = [line["warning"] for line in lines if line["event"] == "a handler of a workflow is missing"]
    assert warnings == [*published.warnings] * 2
