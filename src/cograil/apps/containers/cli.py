"""The `cograil containers` commands: the container runtime, and images of the sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import click

from cograil.apps.containers.runtime.runtime_selection import choose_runtime
from cograil.apps.containers.runtime.sandbox import Sandbox
from cograil.apps.containers.runtime.sandbox.bwrap_arguments import owner_of_images
from cograil.apps.containers.runtime.sandbox.sandbox_images import image_names, import_image
from cograil.cli.display.output import out, plain, say, warn, write_json
from cograil.cli.options import instance_options, settings_for
from cograil.errors import Conflict
from cograil.processes import run_async
from cograil.settings import Settings


@click.group()
def containers() -> None:
    """Show the container runtime, and manage images of the sandbox.

    \b
    Examples:
      cograil containers runtime
      docker export $(docker create alpine) | cograil containers import alpine -
      cograil containers images
    """


@containers.command()
@instance_options
def runtime(data_dir: Path | None, as_json: bool) -> int:
    """Show the container runtime, why it was chosen, and its isolation gaps. Exits 1 without a runtime.

    \b
    Examples:
      cograil containers runtime
      COGRAIL_CONTAINERS__RUNTIME=sandbox cograil containers runtime --json
    """
    is_there, why, shortcomings = run_async(_look(settings_for(data_dir)))
    if as_json:
        write_json({"is_there": is_there, "why": why, "shortcomings": shortcomings})
    else:
        out().print(plain(why), soft_wrap=True)
        for sentence in shortcomings:
            out().print(plain(f"- {sentence}"), soft_wrap=True)
    return 0 if is_there else 1


async def why_no_containers(settings: Settings) -> str:
    """The reason why no runtime is available; empty when one is."""
    is_there, why, _ = await _look(settings)
    return "" if is_there else why


async def _look(settings: Settings) -> tuple[bool, str, list[str]]:
    chosen = await choose_runtime(settings)
    if chosen.runtime is None:
        return False, chosen.why, []
    async with chosen.runtime as runtime:
        return True, chosen.why, list(runtime.shortcomings)


@containers.command("import")
@click.argument("name")
@click.argument("archive", metavar="TAR", type=click.File("rb"))
@instance_options
def import_(name: str, archive: BinaryIO, data_dir: Path | None, as_json: bool) -> None:
    """Make an image of the sandbox from the tar or tar.gz of a root file system; `-` reads stdin.

    Run it as the user of the worker. An image of the same name is replaced, unless a container runs in
    it (exit 4). Devices and file owners are left out.

    \b
    Examples:
      mmdebstrap --variant=minbase bookworm root.tar && cograil containers import debian root.tar
      docker export $(docker create alpine) | cograil containers import alpine -
    """
    settings = settings_for(data_dir)
    if running := Sandbox(settings.data_dir).running_with(name):
        raise Conflict(f"{len(running)} containers run in the image {name!r}, such as {running[0]}")
    extracted = import_image(settings.data_dir / "images", name, archive, owner_of_images())
    if as_json:
        counts = {
            "files": extracted.files,
            "links": extracted.links,
            "bytes": extracted.bytes,
            "skipped": extracted.skipped,
        }
        write_json({"image": name} | counts)
        return
    say(f"image {name}: {extracted.files} files, {extracted.links} links, {extracted.bytes:,} bytes")
    if extracted.skipped:
        warn(f"skipped, since they are not files, directories or links: {', '.join(extracted.skipped[:10])}")


@containers.command()
@instance_options
def images(data_dir: Path | None, as_json: bool) -> None:
    """List the images of the sandbox.

    \b
    Examples:
      cograil containers images
    """
    names = list(image_names(settings_for(data_dir).data_dir / "images"))
    if as_json:
        write_json({"images": names})
        return
    for name in names:
        out().print(plain(name), soft_wrap=True)
    if not names:
        say("no images; see `cograil containers import`")
