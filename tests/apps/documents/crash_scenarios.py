"""Documents whose watcher or worker is killed at a fault-injection point."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.apps.documents import sample_documents
from tests.apps.documents.document_site import DocumentSite
from tests.apps.documents.watcher_process import look_after
from tests.conftest import Databases
from tests.support.harness import open_harness, quick_settings

from cograil import fault_injection
from cograil.apps.documents import atomic_files, file_claims
from cograil.apps.documents.layout import SIDECAR

MAX_VISITS = 4
TEXT = "what was recognised"
Prepare = Callable[[DocumentSite], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """What is there before, how a victim works on it, and what must be where in the end."""

    name: str
    prepare: Prepare
    what: str
    sample: tuple[str, ...]  # points that are struck in `make test`, in turn
    documents: int
    expected: dict[str, int]  # how many files are where
    elsewhere: tuple[str, ...] = ()  # directories on another file system


async def arriving(site: DocumentSite) -> None:
    """Comics and a folder of pictures, one of each again, and what is none."""
    site.drop("a.cbz")
    site.drop("b.cbz")
    site.drop("c.cbz", 7)
    (site.folder.arrivals / "d.cbz").write_bytes(b"nothing")
    site.drop_folder("scans")
    site.drop_folder("scans again")
    site.drop_folder("e.cbz", 7)


async def in_work(site: DocumentSite) -> None:
    """A document whose PDFs and text are there: only the end is left to do."""
    dropped = site.drop("a.cbz")
    await site.prepare_results(dropped)
    (site.folder.work_dir(await site.key_of(dropped)) / SIDECAR).write_text(TEXT)


async def folder_in_work(site: DocumentSite) -> None:
    """The same of a folder of pictures."""
    await site.prepare_results(site.drop_folder("scans"))


async def hopeless(site: DocumentSite) -> None:
    """An archive that tries to get out: its job fails, and its input goes to `error`."""
    sample_documents.comic(site.folder.arrivals / "a.cbz", {"../1.png": sample_documents.dot()})


async def hopeless_folder(site: DocumentSite) -> None:
    """Whose pages are none."""
    for page in site.drop_folder("scans").iterdir():
        page.write_bytes(f"no picture: {page.name}".encode())


async def to_be_used(site: DocumentSite) -> None:
    await _held(site, {"action": "USE_EXISTING_RESULT"})


async def to_be_forced(site: DocumentSite) -> None:
    """With a nonce, which one of the two gets, and the other must not get after a crash."""
    await _held(site, {"action": "FORCE_REPROCESS", "nonce": "deadbeef-0000-4000-8000-000000000000"})


async def _held(site: DocumentSite, decision: dict[str, str]) -> None:
    """Two files are held of a document that is done, and it was decided what becomes of them."""
    for name in ("a.cbz", "b.cbz", "c.cbz"):
        site.drop(name)
        await site.look()
    (document,) = await site.documents()
    room = site.folder.work_dir(document.key)
    atomic_files.move(room / "a.cbz", site.folder.archive / "a.cbz")
    pdf = site.folder.pdf("a.cbz", document.key)
    pdf.write_bytes(b"%PDF-")
    await site.lab.rows(
        "update cograil_documents.documents set state = 'DONE', out_pdf = %(pdf)s, changed_at = now()",
        pdf=pdf.name,
    )
    atomic_files.write_json(site.folder.held / document.key / "decision.json", decision)


SCENARIOS = [
    Scenario(
        "arrivals",
        arriving,
        "look",
        ("documents.stage.after", "documents_admit.commit.after", "documents.hold.after"),
        3,
        {"work": 3, "hold": 2, "error": 2},
    ),
    Scenario(
        "arrivals from another file system",
        arriving,
        "look",
        (
            "documents.claim.after",
            "documents.stage.moved",
            "documents.stage.gone",
            "documents.refuse.moved",
            "documents.refuse.gone",
            "documents.hold.moved",
            "documents.hold.gone",
        ),
        3,
        {"work": 3, "hold": 2, "error": 2},
        ("in", "hold", "error"),
    ),
    Scenario(
        "the end of a document",
        in_work,
        "work",
        ("documents.out_text.after", "documents.out.after", "documents.archive.after"),
        1,
        {"archive": 1, "out": 1, "texts": 1},
    ),
    Scenario(
        "the text of a document on another file system",
        in_work,
        "work",
        ("documents.out_text.copied", "documents.out_text.moved", "documents.out_text.after"),
        1,
        {"archive": 1, "out": 1, "texts": 1},
        ("out",),
    ),
    Scenario(
        "the end of a document on other file systems",
        in_work,
        "work",
        (
            "documents.out.copied",
            "documents.out.moved",
            "documents.archive.moved",  # the third worker dies: the job is given up, a watcher ends it
            "documents.archive.after",
            "documents_settle.commit.before",
            "documents_settle.commit.after",
        ),
        1,
        {"archive": 1, "out": 1, "texts": 1},
        ("out", "archive"),
    ),
    Scenario(
        "a document that fails",
        hopeless,
        "work",
        ("documents.error.moved", "documents_settle.commit.before", "documents_settle.commit.after"),
        1,
        {"error": 1},
        ("error",),
    ),
    Scenario(
        "the end of a folder on other file systems",
        folder_in_work,
        "work",
        ("documents.archive.moved", "documents.archive.gone"),
        1,
        {"archive": 1, "out": 1},
        ("out", "archive"),
    ),
    Scenario(
        "a folder that fails",
        hopeless_folder,
        "work",
        ("documents.error.moved", "documents.error.gone"),
        1,
        {"error": 1},
        ("error",),
    ),
    Scenario(
        "a result that is used again",
        to_be_used,
        "look",
        ("documents.out_copy.after", "documents.archive_held.moved"),
        1,
        {"archive": 3, "out": 3},
        ("archive",),
    ),
    Scenario(
        "runs that are forced",
        to_be_forced,
        "look",
        ("documents.force.after",),
        3,
        {"work": 2, "archive": 1, "out": 1},
    ),
]


def other_file_system(root: Path) -> str:
    return next(place for place in ("/tmp", "/dev/shm") if os.stat(place).st_dev != root.stat().st_dev)


def run_victim(dsn: str, root: Path, what: str, fault: str = "", log: Path | None = None) -> int:
    """Fork, so that nothing has to be imported again; how it ended."""
    victim = os.fork()
    if not victim:
        code = 1
        try:
            fault_injection.arm(fault)
            fault_injection.record(str(log) if log else None)
            asyncio.run(look_after(dsn, root, what))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(victim, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), f"the victim ended with {code}"
    return code


class Range:
    """Where victims are struck."""

    def __init__(self, databases: Databases, place: Path, scenario: Scenario) -> None:
        self._fresh = databases
        self._place = place
        self._scenario = scenario
        self._count = 0

    def points(self) -> list[str]:
        """The points that a victim passes, with how manieth time: `name:2`."""
        log = self._place / "points.txt"
        with self._stage() as (dsn, root):
            assert run_victim(dsn, root, self._scenario.what, log=log) == 0
            self._judge(dsn, root)
        passed: Counter[str] = Counter()
        visits = []
        for name in log.read_text().splitlines():
            passed[name] += 1
            is_often = name.startswith("documents") and passed[name] <= MAX_VISITS
            if is_often or passed[name] == 1:
                visits.append(f"{name}:{passed[name]}")
        return visits

    def strike(self, point: str) -> bool:
        """Kill a victim there, let another go on, and see that all is well; whether the point was passed."""
        with self._stage() as (dsn, root):
            code = run_victim(dsn, root, self._scenario.what, f"{point}:kill9")
            self._judge_after_crash(root)
            run_victim(dsn, root, self._scenario.what)
            self._judge(dsn, root)
        return code != 0

    def strike_in_turn(self, points: Sequence[str]) -> None:
        """Kill one at the first of these, its successor at the second, and so on; then let one end it."""
        with self._stage() as (dsn, root):
            for point in points:
                code = run_victim(dsn, root, self._scenario.what, f"{point}:1:kill9")
                assert code == -signal.SIGKILL, f"{point} is passed no more"
                self._judge_after_crash(root)
            run_victim(dsn, root, self._scenario.what)
            self._judge(dsn, root)

    def starve(self) -> None:
        """A victim that cannot write a byte, then one that can."""
        with self._stage() as (dsn, root):
            run_victim(dsn, root, "starve")
            self._judge_after_crash(root)
            run_victim(dsn, root, self._scenario.what)
            self._judge(dsn, root)

    @contextlib.contextmanager
    def _stage(self) -> Iterator[tuple[str, Path]]:
        self._count += 1
        root = self._place / str(self._count)
        root.mkdir()
        elsewhere = tempfile.TemporaryDirectory(dir=other_file_system(root))
        with elsewhere as other, self._fresh() as dsn:
            for name in self._scenario.elsewhere:
                (Path(other) / name).mkdir()
                (root / name).symlink_to(Path(other) / name)
            asyncio.run(self._prepare(dsn, root))
            self._before = contents(root)
            yield dsn, root
        shutil.rmtree(root)

    async def _prepare(self, dsn: str, root: Path) -> None:
        settings = quick_settings(documents={"data_dir": root}, apps=("documents",))
        async with open_harness(dsn, settings) as lab:
            await self._scenario.prepare(DocumentSite(lab, settings))

    def _judge_after_crash(self, root: Path) -> None:
        """Right after the crash every input is still there; a copy may be, where it was copied."""
        now = contents(root)
        assert not self._before - now, "lost"

    def _judge(self, dsn: str, root: Path) -> None:
        assert contents(root) == self._before, f"lost or doubled: {inputs(root)}"
        left = [place for place, _, _ in os.walk(root, followlinks=True) if atomic_files.GONE in place]
        assert left == [], "nobody removed what was to be"
        counts = Counter(path.relative_to(root).parts[0] for path in inputs(root))
        counts["out"] = len(list((root / "out").glob("[!.]*.pdf")))
        texts = [path.read_text() for path in (root / "out").glob("[!.]*.txt")]
        counts["texts"] = texts.count(TEXT)
        assert dict(+counts) == self._scenario.expected, [str(path) for path in inputs(root)]
        asyncio.run(self._judge_rows(dsn, root))

    async def _judge_rows(self, dsn: str, root: Path) -> None:
        async with open_harness(dsn, quick_settings()) as lab:
            rows = await lab.rows("select count(*), count(distinct job_id) from cograil_documents.documents")
            jobs = await lab.rows("select count(*) from cograil.jobs")
            assert (rows, jobs) == ([(self._scenario.documents,) * 2], [(self._scenario.documents,)])
            if self._scenario.what == "look":
                refused = self._scenario.expected.get("error", 0)
                assert len(list((root / "reports/rejected").glob("[!.]*"))) == refused
                counted = await lab.rows(
                    "select coalesce(sum(count), 0)::int from cograil_documents.document_counts"
                )
                assert counted == [(refused,)]
            if self._scenario.what == "work":
                state = "DONE" if "out" in self._scenario.expected else "ERROR_PREP"
                assert await lab.rows("select state from cograil_documents.documents") == [(state,)]
            assert [str(finding) for finding in await lab.findings()] == []


def inputs(root: Path) -> list[Path]:
    """Every file and folder that somebody dropped, wherever it is; also one that is being taken."""
    paths = []
    for place, names, of_files in os.walk(root, followlinks=True):
        names[:] = [name for name in names if not is_scratch(name)]
        if any(name.startswith("scan-") for name in of_files):
            paths.append(Path(place))
        paths += [Path(place, name) for name in of_files if name.endswith(".cbz")]
    return paths


def is_scratch(name: str) -> bool:
    """Whether it is half a copy, or what is about to be removed."""
    return name.startswith(atomic_files.HIDDEN) and not name.startswith(file_claims.CLAIM)


def contents(root: Path) -> Counter[str]:
    return Counter(atomic_files.hash_of(path) for path in inputs(root))
