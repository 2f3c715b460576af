"""`cograil demo`: a private instance, the example workflows, and one job."""

from __future__ import annotations

import shlex
import tempfile
import time
from pathlib import Path

import click

from cograil.cli.backends.database_backend import DatabaseBackend
from cograil.cli.commands.job_commands import run_published
from cograil.cli.commands.workflow_file_commands import find_files, read_file
from cograil.cli.display.formatting import duration
from cograil.cli.display.output import say
from cograil.cli.instance_client import InstanceClient, private_client
from cograil.cli.options import json_option
from cograil.errors import NotFound
from cograil.processes import private_instance, run_async
from cograil.processes.invocation import program
from cograil.settings import Settings, load_settings
from cograil.verbs.publish import publish

WORKFLOW = "demo"
REPOSITORY = Path(__file__).parents[4]
PACKAGE = Path(__file__).parents[2]

NEXT_STEPS = """
Next steps:
  {program} init my_project      create a project: a handler, a workflow, a test
  {program} run {examples}/hello.yaml --input name=Ada
  {program} up --workflows {examples}      run everything until Ctrl-C, with pages at {pages}
then, in another terminal:
  {program} submit demo --input failure_rate=0.9 --wait
  {program} jobs"""


@click.command()
@json_option
def demo(as_json: bool) -> int:
    """Run a demo job with a condition, a fan-out, retries and a fan-in, on its own database.

    Everything is in a temporary directory, which is removed at the end.

    \b
    Examples:
      cograil demo
    """
    files = find_files([find_examples()])
    with tempfile.TemporaryDirectory(prefix="cograil-demo-") as directory:
        settings = load_settings({"data_dir": Path(directory) / "data"})
        code = run_async(_demo(use_embedded_database(settings), files, as_json))
    if not as_json:
        pages = f"http://{settings.host}:{settings.port}/ui/"
        say(NEXT_STEPS.format(program=program(), examples=_shell_path(find_examples()), pages=pages))
    return code


def find_examples() -> Path:
    """Return the directory of the example workflows: in the working directory, the source or the package."""
    for directory in (Path.cwd(), REPOSITORY, PACKAGE):
        if (directory / "examples" / f"{WORKFLOW}.yaml").is_file():
            return directory / "examples"
    raise NotFound(f"examples/{WORKFLOW}.yaml does not exist; run this command in a checkout of cograil")


def _shell_path(path: Path) -> str:
    """Return the path relative to the working directory, quoted for a shell."""
    current = Path.cwd()
    return shlex.quote(str(path.relative_to(current) if path.is_relative_to(current) else path))


def use_embedded_database(settings: Settings) -> Settings:
    """Remove the database of the environment from the settings: the demo must not change real data."""
    database = settings.database.model_copy(update={"url": None, "direct_url": None, "pooled": None})
    return settings.model_copy(update={"database": database})


async def _demo(settings: Settings, files: list[Path], as_json: bool) -> int:
    began = time.monotonic()
    say("starting PostgreSQL, an orchestrator and a worker ...", style="dim")
    async with private_instance(settings, report=say) as db:
        client = private_client(db, settings)
        names = await _publish(client, files)
        seconds = duration(time.monotonic() - began)
        say(f"ready after {seconds}; published {', '.join(names)}", style="dim")
        return await run_published(DatabaseBackend(client), WORKFLOW, as_json=as_json)


async def _publish(client: InstanceClient, files: list[Path]) -> list[str]:
    async with client.db.transaction("publish") as tx:
        return [(await publish(tx, *read_file(file))).workflow_id for file in files]
