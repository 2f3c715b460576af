"""The `cograil documents` commands: watch a folder, convert files, run the services, decide on duplicates."""

from __future__ import annotations

import asyncio
import signal
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from cograil import logs
from cograil.apps.documents.settings import DocumentSettings
from cograil.cli.display.output import err, plain, say, table, warn, write_json
from cograil.cli.display.output import out as to_stdout
from cograil.cli.options import json_option, read_settings
from cograil.embedded.data_directory import is_held, is_held_briefly
from cograil.errors import NotFound, UsageError
from cograil.processes import private_instance, run_async
from cograil.processes.lifecycle import stop_on_signals
from cograil.settings import Settings

ENGINE_DIR = ".cograil"
APP = "documents"
BARE_PARTS = (APP,)  # these commands also read DATA_DIR, OCR_LANG, ...
MIN_KEY = 12
Command = TypeVar("Command", bound=Callable[..., Any])

data_option = click.option(
    "--data",
    "data",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder, with `in` and `out`. [COGRAIL_DOCUMENTS__DATA_DIR]",
)


@click.group()
def documents() -> None:
    """Turn comics and scans into searchable PDFs.

    \b
    Examples:
      cograil documents watch --data ./comics
      cograil documents convert tintin.cbz scan.pdf -o ./pdfs
      cograil documents list --data ./comics
      cograil documents duplicates --data ./comics
    """


@documents.command()
@click.argument("sources", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("-o", "--out", "target", required=True, type=click.Path(file_okay=False, path_type=Path))
@click.option("-l", "--lang", help="The languages of the text, as tesseract calls them. [fra+eng]")
@json_option
def convert(sources: tuple[Path, ...], target: Path, lang: str | None, as_json: bool) -> int:
    """Convert comics, PDFs, pictures and folders of pictures to searchable PDFs in DIR.

    Nothing is overwritten and the originals stay. Exits 1 when a file failed.

    \b
    Examples:
      cograil documents convert tintin.cbz -o ./pdfs
      cograil documents convert *.cbr scans/ -o ./pdfs --lang eng
    """
    from cograil.apps.documents.requirements import require_tools  # noqa: PLC0415  help must be quick

    settings = read_settings({"documents.ocr_lang": lang}, BARE_PARTS)
    require_tools(settings.section(DocumentSettings).model_copy(update={"prep_url": None, "ocr_url": None}))
    from cograil.apps.documents.file_claims import locked  # noqa: PLC0415
    from cograil.apps.documents.one_shot import CONVERSION_PREFIX, remove_abandoned_dirs  # noqa: PLC0415

    for source in sources:
        if not source.exists():
            raise UsageError(f"{source} does not exist")
    try:
        target.mkdir(parents=True, exist_ok=True)
        remove_abandoned_dirs(target)
        conversion_dir = tempfile.TemporaryDirectory(prefix=CONVERSION_PREFIX, dir=target.absolute())
    except OSError as error:
        raise UsageError(f"{target} cannot be written to: {error.strerror or error}") from error
    with conversion_dir as path, locked(Path(path)), logs.service_name("convert"):
        try:
            return run_async(_convert(settings, list(sources), target, Path(path), as_json))
        except asyncio.CancelledError:  # by a signal: temporary files are removed, as after Ctrl-C
            raise click.Abort from None


async def _convert(
    settings: Settings, sources: list[Path], target: Path, conversion_dir: Path, as_json: bool
) -> int:
    from cograil.apps.documents.layout import Folder  # noqa: PLC0415
    from cograil.apps.documents.one_shot import Conversion, Item  # noqa: PLC0415  an extra

    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    items = [Item(source, number) for number, source in enumerate(sources, 1)]
    conversion = Conversion(
        Folder(conversion_dir), target, items, settings.section(DocumentSettings).max_input_size_mb
    )
    conversion.bring_in()
    if all(item.is_over for item in items):
        return _show_items(items, as_json)
    with tempfile.TemporaryDirectory(prefix="cograil-convert-") as engine:
        own = _for_one_run(settings, conversion_dir, Path(engine), len(items))
        async with private_instance(own) as db:
            with _bars(items, is_quiet=as_json) as show:
                await conversion.follow(db, show)
    return _show_items(items, as_json)


def _for_one_run(settings: Settings, conversion_dir: Path, engine: Path, count: int) -> Settings:
    """The settings with a temporary folder and engine, and without limits on documents in flight.

    In a shared database other workers could claim jobs on files that only this machine has; services see
    another folder. So both are left out.
    """
    changed = {
        "data_dir": conversion_dir.absolute(),
        "prep_url": None,
        "ocr_url": None,
        "poll_interval_ms": 100,
        "max_jobs_in_flight": max(count, 1),
        "keep_work_dir_days": 1.0,
        "quiet_seconds": 0.0,  # all files are complete before the watcher starts
    }
    return settings.model_copy(
        update={
            "data_dir": engine,
            "database": settings.database.model_copy(update={"url": None, "direct_url": None}),
            "documents": settings.section(DocumentSettings).model_copy(update=changed),
            "apps": (APP,),
        }
    )


class _bars:
    """A progress bar for each file; on a terminal only."""

    def __init__(self, items: list[Any], *, is_quiet: bool) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[stage]}"),
        )
        self._progress = Progress(*columns, console=err(), disable=is_quiet or not err().is_terminal)
        self._bars: dict[int, TaskID] = {
            item.number: self._progress.add_task(plain(item.source.name).plain, total=None, stage="")
            for item in items
        }

    def __enter__(self) -> Any:
        self._progress.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _show(self, items: list[Any]) -> None:
        for item in items:
            total = item.total or None
            self._progress.update(self._bars[item.number], completed=item.done, total=total, stage=item.stage)


def _show_items(items: list[Any], as_json: bool) -> int:
    if as_json:
        write_json(
            [
                {
                    "source": str(item.source),
                    "pdf": str(item.pdf) if item.pdf else None,
                    "pages": item.total or None,
                    "error": item.error or None,
                }
                for item in items
            ]
        )
    for item in items:
        if item.error:
            warn(f"{plain(item.source).plain}: {plain(item.error).plain}")
        elif not as_json:
            to_stdout().print(plain(item.pdf), soft_wrap=True)
    return 1 if any(item.error for item in items) else 0


json_lines_option = click.option(
    "--json", "is_json", is_flag=True, help="Log JSON lines, also on a terminal."
)
place_options = click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Where the engine keeps its data. [FOLDER/.cograil]"
)


@documents.command()
@data_option
@click.option("--host", help="The address to listen on. [127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Also serve the documents API at the root of this port, such as 18083; 0: a free one.",
)
@place_options
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="What to log.")
@json_lines_option
def watch(
    data: Path | None,
    host: str | None,
    port: int | None,
    data_dir: Path | None,
    log_level: str | None,
    is_json: bool,
) -> None:
    """Watch a folder: what is dropped in its `in` becomes a searchable PDF in its `out`.

    Runs a complete instance until Ctrl-C or SIGTERM, and continues where it stopped when started again.
    If an instance already runs on the data directory, this adds one more watcher and worker to it.

    \b
    Examples:
      cograil documents watch --data ./comics
      OCR_LANG=eng cograil documents watch --data ./comics --port 18083
    """
    from cograil.app_registry import require_apps  # noqa: PLC0415  help must be quick
    from cograil.processes.up import up as run  # noqa: PLC0415

    flags = {"data_dir": data_dir, "log.level": log_level, "log.format": "json" if is_json else None}
    settings = _settings(data, host=host, **flags)
    folder = settings.section(DocumentSettings).data_dir
    assert folder is not None
    is_given = settings.origin_of("data_dir") != "default" or bool(settings.database.url)
    own = settings.model_copy(update={"data_dir": settings.data_dir if is_given else folder / ENGINE_DIR})
    require_apps(settings)  # before the folder is created
    _make_folder(folder)
    with logs.service_name("orchestrator"):  # the name in existing log filters
        if not own.database.url and is_held(own.data_dir) and not is_held_briefly(own.data_dir):
            _watch_beside(own, port)
        else:
            run(own.model_copy(update={"port": _pages_port(own)}), front=front_of(port))


def front_of(port: int | None) -> tuple[str, int] | None:
    """The front app and port of the documents API; None without `--port`."""
    return None if port is None else ("documents", port)


def _pages_port(settings: Settings) -> int:
    """The default port for the pages if it is free; otherwise 0, any port."""
    if settings.origin_of("port") != "default":
        return settings.port
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError:
            return 0
    return settings.port


def _watch_beside(settings: Settings, port: int | None) -> None:
    """Add a watcher and worker to the instance that runs on this data directory."""
    from cograil.processes.standalone import worker  # noqa: PLC0415

    say(f"an instance runs on {settings.data_dir}: this is one more watcher and worker of it")
    if port is not None:
        warn(f"--port {port} is not served here: the API of the instance has the documents")
    worker(settings)


def _make_folder(root: Path) -> None:
    """Create the folder before the instance starts, so that files can be dropped at once. Raises UsageError."""
    from cograil.apps.documents.layout import Folder  # noqa: PLC0415

    try:
        Folder(root).make()
    except OSError as error:
        raise UsageError(f"{root} cannot be used: {error.strerror or error}") from error


def _settings(data: Path | None, **flags: Any) -> Settings:
    """The settings with a folder. Raises UsageError without one."""
    settings = read_settings({"documents.data_dir": data, **flags}, BARE_PARTS)
    if settings.section(DocumentSettings).data_dir is None:
        raise UsageError("which folder? Name it with --data, or COGRAIL_DOCUMENTS__DATA_DIR")
    return settings.with_app(APP)


def _service_options(port: int) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        command = click.option("--port", type=click.IntRange(0, 65535), default=port, show_default=True)(
            command
        )
        command = click.option("--host", default="127.0.0.1", show_default=True)(command)
        return data_option(json_lines_option(command))

    return decorate


@documents.command()
@_service_options(18081)
def prep(data: Path | None, host: str, port: int, is_json: bool) -> None:
    """Run the PREP service: archives, PDFs and pictures become a raw PDF.

    A watcher uses it when PREP_URL names it. Both need the same data directory, under the same path. It has no
    authentication: keep it on a private network.

    \b
    Examples:
      cograil documents prep --data ./comics
    """
    _serve_stage("prep", data, host, port, is_json)


@documents.command()
@_service_options(18082)
def ocr(data: Path | None, host: str, port: int, is_json: bool) -> None:
    """Run the OCR service: a raw PDF becomes a searchable one.

    A watcher uses it when OCR_URL names it. Both need the same data directory, under the same path. It has no
    authentication: keep it on a private network.

    \b
    Examples:
      cograil documents ocr --data ./comics --port 18082
    """
    _serve_stage("ocr", data, host, port, is_json)


def _serve_stage(kind: Any, data: Path | None, host: str, port: int, is_json: bool) -> None:
    from cograil.apps.documents.requirements import require_tools  # noqa: PLC0415
    from cograil.apps.documents.services import serve  # noqa: PLC0415

    settings = _settings(data, **{"log.format": "json" if is_json else None})
    other = {"prep": "ocr_url", "ocr": "prep_url"}[kind]  # its tools are not needed here
    require_tools(
        settings.section(DocumentSettings).model_copy(
            update={"prep_url": None, "ocr_url": None} | {other: "-"}
        )
    )
    with logs.service_name(f"{kind}-service"):
        logs.configure(settings.log.level, settings.log.format)
        run_async(serve(kind, settings, host, port, stop_on_signals))


@documents.command("list")
@data_option
@click.option("--user", default="", help="Documents of this user; default: the common folder.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most this many.")
@json_option
def list_all(data: Path | None, user: str, limit: int, as_json: bool) -> None:
    """List the documents of a folder, the last changed first, and the files that are ignored in `in`.

    Reads `index/jobs.json`, which the watcher writes; the watcher need not run.

    \b
    Examples:
      cograil documents list --data ./comics
      cograil documents list --data ./comics --json
    """
    from cograil.apps.documents import file_claims  # noqa: PLC0415
    from cograil.apps.documents.status_files import indexed  # noqa: PLC0415

    folder = _folder(data, user)
    entries = indexed(folder)[:limit]
    if as_json:
        write_json(entries)
        return
    rows = table("FILE", "STATE", "PDF", "CHANGED")
    for entry in entries:
        state = f"{entry['state']}: {entry['message']}" if entry["message"] else entry["state"]
        rows.add_row(
            plain(entry["inputName"]), plain(state), plain(entry["outPdf"] or ""), plain(entry["updatedAt"])
        )
    to_stdout().print(rows)
    if not entries:
        say(f"no document was taken from {folder.arrivals} yet")
    for name in sorted(file_claims.ignored(folder)):
        warn(f"{plain(name).plain} in {folder.arrivals} is ignored: {file_claims.WHY_IGNORED}")


@documents.command()
@data_option
@click.option("--user", default="", help="Documents of this user; default: the common folder.")
@json_option
def duplicates(data: Path | None, user: str, as_json: bool) -> None:
    """List duplicates that are held until somebody decides.

    \b
    Examples:
      cograil documents duplicates --data ./comics
    """
    from cograil.apps.documents.routes import held_of  # noqa: PLC0415

    groups = held_of(_folder(data, user))
    if as_json:
        write_json(groups)
        return
    rows = table("KEY", "FILE", "STATUS")
    for group in groups:
        status = group["status"].get("reason") or group["status"].get("state", "")
        key = _short(group["jobKey"], [other["jobKey"] for other in groups])
        for file in group["held"]:
            rows.add_row(plain(key), plain(file["file"]), plain(file["decision"] or status))
    to_stdout().print(rows)
    if not groups:
        say("nothing is held")


def _short(key: str, keys: list[str]) -> str:
    """The shortest unique prefix of this key; the whole key if another key begins with it."""
    lengths = range(MIN_KEY, len(key))
    return next((key[:n] for n in lengths if sum(other.startswith(key[:n]) for other in keys) == 1), key)


@documents.command()
@click.argument("key")
@click.argument("action", type=click.Choice(["use-existing", "discard", "force"]))
@data_option
@click.option("--user", default="", help="Files of this user; default: the common folder.")
@click.option("--file", "name", default="", help="Only this file, as `duplicates` names it.")
@json_option
def decide(key: str, action: str, data: Path | None, user: str, name: str, as_json: bool) -> None:
    """Decide on held duplicates: use the existing PDF, discard the files, or process them again.

    KEY is the key of the document or a unique prefix of it. The watcher carries the decision out.

    \b
    Examples:
      cograil documents decide 3f2a91c0 use-existing --data ./comics
      cograil documents decide 3f2a91c0 force --data ./comics
    """
    from cograil.apps.documents import duplicates as held  # noqa: PLC0415

    folder = _folder(data, user)
    keys = held.held_keys(folder)
    matches = [key] if key in keys else [candidate for candidate in keys if candidate.startswith(key)]
    if not matches:
        raise NotFound(
            f"no key of a held file begins with {key!r}; `cograil documents duplicates` lists them"
        )
    if len(matches) > 1:
        raise UsageError(f"{len(matches)} keys of held files begin with {key!r}: {', '.join(matches)}")
    actions = {"use-existing": held.USE_EXISTING, "discard": held.DISCARD, "force": held.FORCE}
    held.decide(folder, matches[0], actions[action], uuid4().hex if action == "force" else "", name)
    if as_json:
        write_json({"jobKey": matches[0], "action": actions[action], "file": name or None})
    else:
        say(f"decided: {actions[action]}")


def _folder(data: Path | None, user: str) -> Any:
    from cograil.apps.documents.layout import folder_of  # noqa: PLC0415

    root = _settings(data).section(DocumentSettings).data_dir
    assert root is not None
    return folder_of(root, f"users/{user}" if user else "")
