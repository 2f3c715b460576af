"""Duplicates: a file whose key exists already is held and reported until an operator decides.

`hold/duplicates/<key>` has the files and `status.json`; a decision is `decision.json` beside them:
`{"action": ..., "nonce"?: ..., "file"?: ...}`, for one file or for all files of this key. Earlier decisions for
other files that are still pending are listed under `also`. Every step can be repeated.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from cograil.apps.documents import atomic_files
from cograil.apps.documents.core import now_text
from cograil.apps.documents.file_claims import STAMP, locked
from cograil.errors import NotFound, UsageError

USE_EXISTING, DISCARD, FORCE = "USE_EXISTING_RESULT", "DISCARD", "FORCE_REPROCESS"
ACTIONS = (USE_EXISTING, DISCARD, FORCE)
PENDING, WAITING = "DUPLICATE_PENDING", "DUPLICATE_WAITING"
STATUS, DECISION = "status.json", "decision.json"
OURS = frozenset({STATUS, DECISION})


class DuplicateFolders(Protocol):
    """The directories that a decision moves files between."""

    @property
    def has_plain_names(self) -> bool: ...
    def plain_pdf(self, name: str) -> Path: ...
    @property
    def held(self) -> Path: ...
    @property
    def reports(self) -> Path: ...
    @property
    def out(self) -> Path: ...
    @property
    def archive(self) -> Path: ...
    @property
    def arrivals(self) -> Path: ...
    def pdf(self, name: str, key: str) -> Path: ...


@dataclass(frozen=True, slots=True)
class ExistingDocument:
    """The document that a duplicate repeats."""

    entry: Mapping[str, Any]  # as reports show it
    is_running: bool = False
    pdf: Path | None = None


def hold(
    places: DuplicateFolders,
    key: str,
    incoming: Path,
    name: str,
    existing: Mapping[str, Any],
    profile: Mapping[str, Any],
    stamp: str = "",
) -> Path:
    """Hold this file and report it; return its new path. `stamp` is its arrival time, by default now.

    A process that continues after a crash must choose the same path: a copy across file systems may be there.
    """
    (places.held / key).mkdir(parents=True, exist_ok=True)
    stamp = stamp or datetime.now(UTC).strftime(STAMP)
    for target in _free_places(places.held / key, name, stamp):
        try:
            atomic_files.move(incoming, target, "hold")
        except FileExistsError:
            continue
        report(places, key, target, existing, profile)
        return target
    raise AssertionError("unreachable: one of a million names is free")


def _free_places(held: Path, name: str, stamp: str) -> Iterator[Path]:
    """The names under which a file can be held: several of one name may arrive within a second."""
    for number in range(1_000_000):
        mark = f"-{number}" if number else ""
        yield held / atomic_files.fitted_name(f"{stamp}{mark}__{name}", atomic_files.MAX_NAME)


def report(
    places: DuplicateFolders,
    key: str,
    incoming: Path,
    existing: Mapping[str, Any],
    profile: Mapping[str, Any],
) -> None:
    """Write the report of this key, and set its status to pending."""
    content = {
        "jobKey": key,
        "detectedAt": now_text(),
        "incoming": facts_of(incoming),
        "held": [facts for _, facts in held_facts(places, key)],
        "existing": dict(existing),
        "profile": dict(profile),
        "actions": list(ACTIONS),
    }
    atomic_files.write_json(places.reports / f"{key}.json", content)
    atomic_files.write_json(places.held / key / STATUS, {"state": PENDING})


def facts_of(path: Path) -> dict[str, Any]:
    """The entry of a held file in reports."""
    path_text = str(path).encode(errors="replace").decode()
    return {
        "fileName": atomic_files.cleaned(name_of(path)),
        "path": path_text,
        "sizeBytes": atomic_files.size_of(path),
    }


def held_facts(places: DuplicateFolders, key: str) -> list[tuple[str, dict[str, Any]]]:
    """The held files of this key as (name, report entry); files removed meanwhile are left out."""
    files = []
    for path in held_files(places, key):
        with contextlib.suppress(FileNotFoundError):
            files.append((path.name, facts_of(path)))
    return files


def name_of(held_file: Path) -> str:
    """The original name of a held file."""
    return held_file.name.partition("__")[2] or held_file.name


def held_keys(places: DuplicateFolders) -> list[str]:
    """The keys that have held files."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(path.name for path in places.held.iterdir() if path.is_dir())
    return []


def held_files(places: DuplicateFolders, key: str) -> list[Path]:
    """The held files of this key, the oldest first."""
    with contextlib.suppress(FileNotFoundError):
        paths = (places.held / key).iterdir()
        return sorted(
            path for path in paths if path.name not in OURS and not path.name.startswith(atomic_files.HIDDEN)
        )
    return []


def is_unreported(places: DuplicateFolders, key: str) -> bool:
    """Whether a process died between holding a file and reporting it."""
    is_told = (places.held / key / STATUS).exists() and (places.reports / f"{key}.json").exists()
    return bool(held_files(places, key)) and not is_told


def is_decided(places: DuplicateFolders, key: str) -> bool:
    return (places.held / key / DECISION).exists()


def decide(places: DuplicateFolders, key: str, action: str, nonce: str = "", file: str = "") -> None:
    """Record the decision on the held files of this key. Raises UsageError or NotFound.

    A decision for one file keeps those for other files; a decision for all files replaces them.
    """
    if action not in ACTIONS:
        raise UsageError(f"{action[:80]!r} is not a decision: use one of {', '.join(ACTIONS)}")
    directory = places.held / key
    with locked(directory, is_waiting=True) as is_there:
        names = [entry.name for entry in held_files(places, key)] if is_there else []
        if not names or (file and file not in names):
            raise NotFound(f"nothing {'of this name ' if file else ''}is held of {key[:200]}")
        decision = {"action": action} | ({"nonce": nonce} if nonce else {}) | ({"file": file} if file else {})
        others = [] if not file else [entry for entry in decisions(places, key) if isinstance(entry, dict)]
        _write_decisions(directory, [decision, *(entry for entry in others if entry.get("file") != file)])


def decisions(places: DuplicateFolders, key: str) -> list[Any]:
    """The pending decisions on this key, unvalidated; those for single files first."""
    content = atomic_files.read_json(places.held / key / DECISION)
    if not isinstance(content, dict):
        return [content] if is_decided(places, key) else []
    first_decision, also = (
        {name: value for name, value in content.items() if name != "also"},
        content.get("also"),
    )
    others = [decision for decision in also if isinstance(decision, dict)] if isinstance(also, list) else []
    return sorted([first_decision, *others], key=lambda decision: not _file_of(decision))


def _file_of(decision: Any) -> str:
    """The file that a decision is for; "" for all files."""
    return str(decision.get("file") or "") if isinstance(decision, dict) else ""


def decision_on(decided: list[Any], name: str) -> dict[str, Any] | None:
    """The decision on this file: its own, or the one for all files."""
    return next(
        (decision for decision in decided if isinstance(decision, dict) and _file_of(decision) in ("", name)),
        None,
    )


def _write_decisions(directory: Path, decided: list[Any]) -> None:
    first, *more = decided
    atomic_files.write_json(directory / DECISION, first | {"also": more} if more else first)


def apply_decision(places: DuplicateFolders, key: str, existing: ExistingDocument | None) -> bool:
    """Carry out the decisions on this key; return whether all are done. The status says why one is not."""
    directory = places.held / key
    with locked(directory) as is_mine:
        if not is_mine or not is_decided(places, key):
            return False
        decided = decisions(places, key)
        problems = [(decision, problem) for decision in decided if (problem := _trouble(decision, existing))]
        remaining = [decision for decision, _ in problems]
        done = [decision for decision in decided if decision not in remaining]
        for decision in done:
            _carry_out(places, key, decision, decided, existing)
        if done:
            _clean_up(places, key, existing, decided, remaining)
        if problems:
            _tell(directory, *problems[0][1])
    return not problems


def _carry_out(
    places: DuplicateFolders,
    key: str,
    decision: dict[str, Any],
    decided: list[Any],
    existing: ExistingDocument | None,
) -> None:
    """Apply a decision to its file, or to all files without a decision of their own.

    The first file comes last: it gets the given nonce, also when a crash makes another process repeat the rest.
    """
    files = [
        held_file for held_file in held_files(places, key) if decision_on(decided, held_file.name) == decision
    ]
    for number, held_file in reversed(list(enumerate(files))):
        with contextlib.suppress(FileNotFoundError):
            _apply(places, key, held_file, decision, existing, number)


def _trouble(decision: Any, existing: ExistingDocument | None) -> tuple[str, str] | None:
    """Why a decision cannot be carried out now: the new status and the reason; None if it can."""
    if not isinstance(decision, dict):
        return PENDING, "decision.json is not a JSON object"
    action = decision.get("action")
    if action not in ACTIONS:
        return PENDING, f"{str(action)[:80]!r} is not a decision: use one of {', '.join(ACTIONS)}"
    if not isinstance(decision.get("nonce", ""), str) or not isinstance(decision.get("file", ""), str):
        return PENDING, "nonce and file of a decision must be strings"
    if action != USE_EXISTING:
        return None
    if existing is not None and existing.is_running:
        return WAITING, "the existing job is not done yet"
    if existing is None or existing.pdf is None or not existing.pdf.exists():
        return PENDING, "the existing job has no PDF; choose another action"
    return None


def _tell(directory: Path, state: str, reason: str) -> None:
    status = {"state": state, "reason": reason}
    if atomic_files.read_json(directory / STATUS) != status:
        atomic_files.write_json(directory / STATUS, status)


def _apply(
    places: DuplicateFolders,
    key: str,
    held_file: Path,
    decision: dict[str, Any],
    existing: ExistingDocument | None,
    number: int,
) -> None:
    name = name_of(held_file)
    if decision["action"] == DISCARD:
        atomic_files.remove(held_file)
    elif decision["action"] == USE_EXISTING:
        assert existing is not None
        assert existing.pdf is not None
        _copy_out(places, name, key, existing.pdf)
        places.archive.mkdir(parents=True, exist_ok=True)
        atomic_files.move_to_free(held_file, places.archive / name, "archive_held")
    else:
        places.arrivals.mkdir(parents=True, exist_ok=True)
        atomic_files.move(
            held_file, places.arrivals / forced_name(name, _nonce(decision, key, held_file, number)), "force"
        )


def _copy_out(places: DuplicateFolders, name: str, key: str, pdf: Path) -> None:
    """Copy this PDF under the name of the held file, unless the copy exists."""
    if not places.has_plain_names:
        with contextlib.suppress(FileExistsError):
            if not places.pdf(name, key).exists():
                atomic_files.copy_whole(pdf, places.pdf(name, key), "out_copy")
        return
    for candidate in atomic_files.names_like(places.plain_pdf(name)):
        try:
            if not candidate.exists():
                atomic_files.copy_whole(pdf, candidate, "out_copy")
            elif atomic_files.hash_of(candidate) != atomic_files.hash_of(pdf):
                continue
        except FileExistsError:
            continue
        return


def _nonce(decision: dict[str, Any], key: str, held_file: Path, number: int) -> str:
    """Eight hexadecimal letters: the given nonce for the first file, and a repeatable hash for the others."""
    nonce = str(decision.get("nonce") or "").replace("-", "").lower()
    is_plain = len(nonce) >= 8 and all(letter in "0123456789abcdef" for letter in nonce[:8])
    if is_plain and number == 0:
        return nonce[:8]
    return hashlib.sha256(f"{nonce}/{key}/{held_file.name}".encode()).hexdigest()[:8]


def forced_name(name: str, nonce: str) -> str:
    """The name under which a file is processed again."""
    stem, ending = os.path.splitext(name)
    mark = f"__force-{nonce}{ending}"
    return atomic_files.fitted(stem, atomic_files.MAX_INPUT - len(mark.encode())) + mark


def _clean_up(
    places: DuplicateFolders,
    key: str,
    existing: ExistingDocument | None,
    decided: list[Any],
    remaining: list[Any],
) -> None:
    """Rewrite the report, or remove it when no file is held any more; the decision is removed last."""
    directory = places.held / key
    if files := held_files(places, key):
        previous_report = atomic_files.read_json(places.reports / f"{key}.json")
        previous = previous_report if isinstance(previous_report, dict) else {}
        facts = existing.entry if existing else previous.get("existing") or {}
        report(places, key, files[-1], facts, previous.get("profile") or {})
    else:
        atomic_files.remove(places.reports / f"{key}.json")
        atomic_files.remove(directory / STATUS)
    if decisions(places, key) == decided:  # otherwise a new decision was written without our lock
        _write_decisions(directory, remaining) if remaining and files else atomic_files.remove(
            directory / DECISION
        )
    atomic_files.remove_left(directory, f"{atomic_files.GONE}*")
    atomic_files.remove_if_empty(directory)
