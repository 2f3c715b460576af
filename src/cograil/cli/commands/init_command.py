"""`cograil init`: a new project whose files run without changes."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from cograil.cli.display.output import say, write_json
from cograil.cli.options import json_option
from cograil.errors import Conflict, UsageError
from cograil.processes.invocation import program

HANDLERS = '''\
"""Handlers: functions and coroutines. `--app handlers` loads them."""

from cograil import handler


@handler("greet")
def greet(ctx, name: str, loud: bool = False):
    ctx.log.info("greeting", name=name)
    message = f"Hello, {name}!"
    return {"message": message.upper() if loud else message}
'''

WORKFLOW = """\
# Two nodes: the second one is retried with growing delays when it fails.
workflow_id: greet
inputs:
  name: {type: string, default: World}
nodes:
  hello:
    handler: greet
    params: {name: "{{ inputs.name }}"}
    next: shout
  shout:
    handler: greet
    params: {name: "{{ inputs.name }}", loud: true}
    retry: {max_attempts: 3, initial_delay_seconds: 1}
"""

TEST = '''\
"""Tests that need no database."""

from pathlib import Path

from cograil import Retry
from cograil.testing import Context, run_workflow

import handlers

WORKFLOW = Path(__file__).parent / "workflows" / "greet.yaml"


def test_the_handler():
    ctx = Context()
    assert handlers.greet(ctx, "Ada", loud=True) == {"message": "HELLO, ADA!"}
    assert ctx.logged[0].message == "greeting"


def test_the_workflow():
    job = run_workflow(WORKFLOW, {"name": "Ada"})
    assert job.status == "completed"
    assert job.output("shout") == {"message": "HELLO, ADA!"}


def test_the_node_is_retried():
    answers = [{"message": "hello"}, Retry("busy"), {"message": "HELLO"}]
    job = run_workflow(WORKFLOW, handlers={"greet": answers})
    assert job.nodes["shout"].attempt == 2
'''

SETTINGS = """\
# Settings of cograil; `cograil config` shows all of them with their origins.
data_dir = "data"

[worker]
concurrency = 50
"""

README = """\
# {name}

```sh
cograil run workflows/greet.yaml --app handlers --input name=Ada    # run a workflow once
cograil up --dev --workflows workflows --app handlers               # run everything; edits take effect at once
python -m pytest                                                    # test it without a database
```
"""

FILES = {
    "handlers.py": HANDLERS,
    "workflows/greet.yaml": WORKFLOW,
    "test_greet.py": TEST,
    "cograil.toml": SETTINGS,
    "README.md": README,
    ".gitignore": "data/\n__pycache__/\n",
}


@click.command()
@click.argument("directory", default=".", type=click.Path(file_okay=False, path_type=Path))
@json_option
def init(directory: Path, as_json: bool) -> None:
    """Create a project in DIRECTORY: a handler, a workflow, a test, a settings file and a README.

    No file is overwritten: exits 4 when one of them exists.

    \b
    Examples:
      cograil init my_project
      cd my_project && cograil run workflows/greet.yaml --app handlers --input name=Ada
    """
    if existing := [name for name in FILES if (directory / name).exists()]:
        raise Conflict(f"{directory} already has {', '.join(existing)}; name another directory")
    command = program(is_elsewhere=directory.resolve() != Path.cwd())
    try:
        for name, text in FILES.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            is_readme = name == "README.md"
            content = text.format(name=directory.resolve().name) if is_readme else text
            path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{directory} cannot be written to: {error.strerror or error}") from error
    if as_json:
        write_json({"directory": str(directory), "files": list(FILES)})
        return
    say(f"created {', '.join(FILES)} in {directory}")
    say(f"\nNext steps:{_change_directory(directory)}")
    say(f"  {command} run workflows/greet.yaml --app handlers --input name=Ada")
    say(f"  {command} up --dev --workflows workflows --app handlers")
    python = shlex.quote(sys.executable)
    say(f"  {python} -m pytest    (after `{python} -m pip install pytest`)")


def _change_directory(directory: Path) -> str:
    is_current = directory.resolve() == Path.cwd()
    return "" if is_current else f"\n  cd {shlex.quote(str(directory))}"
