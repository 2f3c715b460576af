"""See it work: a private instance, the example workflows, one job of them."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click

from cograil.errors import NotFound
from cograil.intake.cli.client import Client, private_client
from cograil.intake.cli.files import find_files, read_file
from cograil.intake.cli.options import json_option
from cograil.intake.cli.output import say
from cograil.intake.cli.words import duration
from cograil.intake.cli.work import run_published
from cograil.processes import private_instance, run_async
from cograil.settings import Settings, load_settings
from cograil.verbs.publish import publish

WORKFLOW = "demo"
REPOSITORY = Path(__file__).parents[4]
PACKAGE = Path(__file__).parents[2]

NEXT_STEPS = """
What to try next:
  cograil run examples/hello.yaml --input name=Ada     a file, without publishing it
  cograil up --workflows examples                      everything, until Ctrl-C; then, elsewhere:
  cograil submit demo --input failure_rate=0.9 --wait  a job that has to try harder
  cograil jobs                                         what there is
  cograil explain JOB                                  why a job does not move"""


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
        say(NEXT_STEPS)
    return code


def find_examples() -> Path:
    """The directory with the example workflows: here, beside the source, or in the package."""
    for place in (Path.cwd(), REPOSITORY, PACKAGE):
        if (place / "examples" / f"{WORKFLOW}.yaml").is_file():
            return place / "examples"
    raise NotFound(f"examples/{WORKFLOW}.yaml is not here; run this in a checkout of cograil")


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
