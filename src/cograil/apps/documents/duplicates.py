"""What came twice: held, reported, and treated as somebody decides. Nothing is lost meanwhile.

`hold/duplicates/<key>` has the files and `status.json`; whoever decides puts `decision.json` beside them:
`{"action": ..., "nonce"?: ..., "file"?: ...}`, for one file or for all of this key. What was decided before
for other files, and is not done yet, is a list of the same under `also`. Every step can be repeated.
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
from cograil.apps.documents.file_claiming import STAMP, held
from cograil.errors import NotFound, UsageError

USE_EXISTING, DISCARD, FORCE = "USE_EXISTING_RESULT", "DISCARD", "FORCE_REPROCESS"
ACTIONS = (USE_EXISTING, DISCARD, FORCE)
PENDING, WAITING = "DUPLICATE_PENDING", "DUPLICATE_WAITING"
STATUS, DECISION = "status.json", "decision.json"
OURS = frozenset({STATUS, DECISION})


class Places(Protocol):
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
class Existing:
    """What is there of a key already."""

    facts: Mapping[str, Any]  # as reports show it
    is_running: bool = False
    pdf: Path | None = None


def hold(
    places: Places,
    key: str,
    incoming: Path,
    name: str,
    existing: Mapping[str, Any],
    profile: Mapping[str, Any],
    stamp: str = "",
) -> Path:
    """Hold this file, and report it; where it is now. Its stamp is that of its arrival, or of this moment.

    Whoever goes on for one who died must come to the same place: a copy across file systems may be there.
    """
    (places.held / key).mkdir(parents=True, exist_ok=True)
    stamp = stamp or datetime.now(UTC).strftime(STAMP)
    for place in _free_places(places.held / key, name, stamp):
        try:
            atomic_files.move(incoming, place, "hold")
        except FileExistsError:
            continue
        report(places, key, place, existing, profile)
        return place
    raise AssertionError("there is always another place")


def _free_places(held: Path, name: str, stamp: str) -> Iterator[Path]:
    """Several of one name may come within a second."""
    for number in range(1_000_000):
        mark = f"-{number}" if number else ""
        yield held / atomic_files.fitted_name(f"{stamp}{mark}__{name}", atomic_files.MAX_NAME)


def report(
    places: Places, key: str, incoming: Path, existing: Mapping[str, Any], profile: Mapping[str, Any]
) -> None:
    """Write the report of this key, and that a decision is wanted."""
    told = {
        "jobKey": key,
        "detectedAt": now_text(),
        "incoming": facts_of(incoming),
        "held": [facts for _, facts in held_facts(places, key)],
        "existing": dict(existing),
        "profile": dict(profile),
        "actions": list(ACTIONS),
    }
    atomic_files.write_json(places.reports / f"{key}.json", told)
    atomic_files.write_json(places.held / key / STATUS, {"state": PENDING})


def facts_of(path: Path) -> dict[str, Any]:
    """A held file, as reports show it."""
    shown = str(path).encode(errors="replace").decode()
    return {
        "fileName": atomic_files.cleaned(name_of(path)),
        "path": shown,
        "sizeBytes": atomic_files.size_of(path),
    }


def held_facts(places: Places, key: str) -> list[tuple[str, dict[str, Any]]]:
    """What is held of this key, by its name there; what goes meanwhile is left out."""
    found = []
    for path in held_files(places, key):
        with contextlib.suppress(FileNotFoundError):
            found.append((path.name, facts_of(path)))
    return found


def name_of(held: Path) -> str:
    """What a held file was called."""
    return held.name.partition("__")[2] or held.name


def held_keys(places: Places) -> list[str]:
    """The keys of which something is held."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(one.name for one in places.held.iterdir() if one.is_dir())
    return []


def held_files(places: Places, key: str) -> list[Path]:
    """What is held of this key, the oldest first."""
    with contextlib.suppress(FileNotFoundError):
        found = (places.held / key).iterdir()
        return sorted(
            one for one in found if one.name not in OURS and not one.name.startswith(atomic_files.HIDDEN)
        )
    return []


def is_unreported(places: Places, key: str) -> bool:
    """Whether somebody died before he said that something is held."""
    is_told = (places.held / key / STATUS).exists() and (places.reports / f"{key}.json").exists()
    return bool(held_files(places, key)) and not is_told


def is_decided(places: Places, key: str) -> bool:
    return (places.held / key / DECISION).exists()


def decide(places: Places, key: str, action: str, nonce: str = "", file: str = "") -> None:
    """Decide what becomes of what is held of this key. Raises UsageError or NotFound.

    What was decided for other files stays; whoever decides for all decides anew.
    """
    if action not in ACTIONS:
        raise UsageError(f"{action[:80]!r} is no decision; there are {', '.join(ACTIONS)}")
    place = places.held / key
    with held(place, is_waiting=True) as is_there:
        names = [one.name for one in held_files(places, key)] if is_there else []
        if not names or (file and file not in names):
            raise NotFound(f"nothing {'of this name ' if file else ''}is held of {key[:200]}")
        wish = {"action": action} | ({"nonce": nonce} if nonce else {}) | ({"file": file} if file else {})
        before = [] if not file else [one for one in decisions(places, key) if isinstance(one, dict)]
        _write_decisions(place, [wish, *(one for one in before if one.get("file") != file)])


def decisions(places: Places, key: str) -> list[Any]:
    """What was decided of this key and is not done yet, whatever that is; those for single files first."""
    found = atomic_files.read_json(places.held / key / DECISION)
    if not isinstance(found, dict):
        return [found] if is_decided(places, key) else []
    first, more = {name: value for name, value in found.items() if name != "also"}, found.get("also")
    others = [one for one in more if isinstance(one, dict)] if isinstance(more, list) else []
    return sorted([first, *others], key=lambda one: not _file_of(one))


def _file_of(wish: Any) -> str:
    """The one file that it is for; "" for all."""
    return str(wish.get("file") or "") if isinstance(wish, dict) else ""


def decision_on(wishes: list[Any], name: str) -> dict[str, Any] | None:
    """What was decided for this file, by itself or with all the others."""
    return next((one for one in wishes if isinstance(one, dict) and _file_of(one) in ("", name)), None)


def _write_decisions(place: Path, wishes: list[Any]) -> None:
    first, *more = wishes
    atomic_files.write_json(place / DECISION, first | {"also": more} if more else first)


def apply_decision(places: Places, key: str, existing: Existing | None) -> bool:
    """Do what was decided for this key; whether that is done. What cannot be done is told in its status."""
    place = places.held / key
    with held(place) as is_mine:
        if not is_mine or not is_decided(places, key):
            return False
        wishes = decisions(places, key)
        troubles = [(wish, trouble) for wish in wishes if (trouble := _trouble(wish, existing))]
        kept = [wish for wish, _ in troubles]
        done = [wish for wish in wishes if wish not in kept]
        for wish in done:
            _carry_out(places, key, wish, wishes, existing)
        if done:
            _clean_up(places, key, existing, wishes, kept)
        if troubles:
            _tell(place, *troubles[0][1])
    return not troubles


def _carry_out(
    places: Places, key: str, wish: dict[str, Any], wishes: list[Any], existing: Existing | None
) -> None:
    """For its file, or for all of which nothing else was decided.

    The first comes last: the nonce that was given is its own, also for whoever repeats the rest of this.
    """
    chosen = [one for one in held_files(places, key) if decision_on(wishes, one.name) == wish]
    for number, one in reversed(list(enumerate(chosen))):
        with contextlib.suppress(FileNotFoundError):
            _apply(places, key, one, wish, existing, number)


def _trouble(wish: Any, existing: Existing | None) -> tuple[str, str] | None:
    """Why it cannot be done now: what the status is then, and why."""
    if not isinstance(wish, dict):
        return PENDING, "decision.json is no JSON object"
    action = wish.get("action")
    if action not in ACTIONS:
        return PENDING, f"{str(action)[:80]!r} is no decision; there are {', '.join(ACTIONS)}"
    if not isinstance(wish.get("nonce", ""), str) or not isinstance(wish.get("file", ""), str):
        return PENDING, "nonce and file of a decision are texts"
    if action != USE_EXISTING:
        return None
    if existing is not None and existing.is_running:
        return WAITING, "the existing job is not done yet"
    if existing is None or existing.pdf is None or not existing.pdf.exists():
        return PENDING, "there is no PDF of the existing job; decide otherwise"
    return None


def _tell(place: Path, state: str, reason: str) -> None:
    told = {"state": state, "reason": reason}
    if atomic_files.read_json(place / STATUS) != told:
        atomic_files.write_json(place / STATUS, told)


def _apply(
    places: Places, key: str, one: Path, wish: dict[str, Any], existing: Existing | None, number: int
) -> None:
    name = name_of(one)
    if wish["action"] == DISCARD:
        atomic_files.remove(one)
    elif wish["action"] == USE_EXISTING:
        assert existing is not None
        assert existing.pdf is not None
        _copy_out(places, name, key, existing.pdf)
        places.archive.mkdir(parents=True, exist_ok=True)
        atomic_files.move_to_free(one, places.archive / name, "archive_held")
    else:
        places.arrivals.mkdir(parents=True, exist_ok=True)
        atomic_files.move(one, places.arrivals / forced_name(name, _nonce(wish, key, one, number)), "force")


def _copy_out(places: Places, name: str, key: str, pdf: Path) -> None:
    """A copy of this PDF under the name of the held file, unless it is there."""
    if not places.has_plain_names:
        with contextlib.suppress(FileExistsError):
            if not places.pdf(name, key).exists():
                atomic_files.copy_whole(pdf, places.pdf(name, key), "out_copy")
        return
    for place in atomic_files.names_like(places.plain_pdf(name)):
        try:
            if not place.exists():
                atomic_files.copy_whole(pdf, place, "out_copy")
            elif atomic_files.hash_of(place) != atomic_files.hash_of(pdf):
                continue
        except FileExistsError:
            continue
        return


def _nonce(wish: dict[str, Any], key: str, one: Path, number: int) -> str:
    """Eight letters: those that were given, for the first; the same ones again for whoever repeats this."""
    given = str(wish.get("nonce") or "").replace("-", "").lower()
    is_plain = len(given) >= 8 and all(letter in "0123456789abcdef" for letter in given[:8])
    if is_plain and number == 0:
        return given[:8]
    return hashlib.sha256(f"{given}/{key}/{one.name}".encode()).hexdigest()[:8]


def forced_name(name: str, nonce: str) -> str:
    """The name under which a file is worked on again."""
    stem, ending = os.path.splitext(name)
    mark = f"__force-{nonce}{ending}"
    return atomic_files.fitted(stem, atomic_files.MAX_INPUT - len(mark.encode())) + mark


def _clean_up(
    places: Places, key: str, existing: Existing | None, wishes: list[Any], kept: list[Any]
) -> None:
    """When nothing is held any more, nothing is said of it either; the decision goes last."""
    place = places.held / key
    if left := held_files(places, key):
        before = atomic_files.read_json(places.reports / f"{key}.json")
        known = before if isinstance(before, dict) else {}
        facts = existing.facts if existing else known.get("existing") or {}
        report(places, key, left[-1], facts, known.get("profile") or {})
    else:
        atomic_files.remove(places.reports / f"{key}.json")
        atomic_files.remove(place / STATUS)
    if decisions(places, key) == wishes:  # else somebody without our lock has decided anew
        _write_decisions(place, kept) if kept and left else atomic_files.remove(place / DECISION)
    atomic_files.remove_left(place, f"{atomic_files.GONE}*")
    atomic_files.remove_if_empty(place)
