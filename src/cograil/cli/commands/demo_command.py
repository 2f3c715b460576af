"""See it work: a private instance, the example workflows, one job of them."""

from __future__ import annotations

import shlex
import tempfile
import time
from pathlib import Path

import click

from cograil.cli.commands.job_commands import run_published
from cograil.cli.commands.workflow_file_commands import find_files, read_file
from cograil.cli.display.formatting import duration
from cograil.cli.display.output import say
from cograil.cli.instance_client import Client, private_client
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
What to try next:
  {program} init my_project      a project of your own: a handler, a workflow, a test
  {program} run {examples}/hello.yaml --input name=Ada
  {program} up --workflows {examples}      everything, until Ctrl-C: see it at {pages}
then, in another terminal:
  {program} submit demo --input failure_rate=0.9 --wait
  {program} jobs"""


@click.command()
@json_option
def demo(as_json: bool) -> int:
    """See it work: a job with a condition, a fan-out, retries and a fan-in, on a database of its own.

    Everything happens in a temporary directory that is removed at the end.

    \b
    Examples:
      cograil demo
    """
    files = find_files([find_examples()])
    with tempfile.TemporaryDirectory(prefix="cograil-demo-") as directory:
        settings = load_settings({"data_dir": Path(directory) / "data"})
        code = run_async(_demo(of_its_own(settings), files, as_json))
    if not as_json:
        pages = f"http://{settings.host}:{settings.port}/ui/"
        say(NEXT_STEPS.format(program=program(), examples=_shown(find_examples()), pages=pages))
    return code


def find_examples() -> Path:
    """The directory with the example workflows: here, beside the source, or in the package."""
    for place in (Path.cwd(), REPOSITORY, PACKAGE):
        if (place / "examples" / f"{WORKFLOW}.yaml").is_file():
            return place / "examples"
    raise NotFound(f"examples/{WORKFLOW}.yaml is not here; run this in a checkout of cograil")


def _shown(path: Path) -> str:
    """As it can be typed here."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def of_its_own(settings: Settings) -> Settings:
    """Without the database of the environment: the demo must not touch what somebody works with."""
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
        return await run_published(client, WORKFLOW, as_json=as_json)


async def _publish(client: Client, files: list[Path]) -> list[str]:
    async with client.db.transaction("publish") as tx:
        return [(await publish(tx, *read_file(file))).workflow_id for file in files]
