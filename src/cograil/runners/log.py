"""The log lines of an attempt: bounded in length and number, safe to print, no secrets."""

from __future__ import annotations

import math
from collections.abc import Callable

from cograil import clock
from cograil.logs import LONGEST_SECRET, redacted
from cograil.model.workflow import Json


class Log:
    """Lines of one attempt. After `max_lines` one line says that the rest was dropped."""

    __slots__ = ("_left", "_max_line_bytes", "_max_lines", "_note")

    def __init__(
        self, note: Callable[[dict[str, Json]], None], max_lines: int = 1_000, max_line_bytes: int = 16 * 1024
    ) -> None:
        self._note = note
        self._left = self._max_lines = max_lines
        self._max_line_bytes = max_line_bytes

    def debug(self, message: object, **fields: Json) -> None:
        self._write("debug", message, fields)

    def info(self, message: object, **fields: Json) -> None:
        self._write("info", message, fields)

    def warning(self, message: object, **fields: Json) -> None:
        self._write("warning", message, fields)

    def error(self, message: object, **fields: Json) -> None:
        self._write("error", message, fields)

    def keep(self, level: str, logger: str, message: str) -> None:
        """A line of another logger, or of a stream that was printed to."""
        self._write(level, message, {}, logger)

    def close(self) -> None:
        """Drop all lines from now on, and let go of whoever took them."""
        self._note = _drop

    def _write(self, level: str, message: object, fields: dict[str, Json], logger: str = "") -> None:
        self._left -= 1
        if self._left >= 0:
            line = self._line(level, str(message), fields)
            self._note({**line, "logger": logger} if logger else line)
        elif self._left == -1:
            self._note(self._line("warning", f"log cut after {self._max_lines} lines", {}))

    def _line(self, level: str, message: str, fields: dict[str, Json]) -> dict[str, Json]:
        text = _one_line(message, self._max_line_bytes)
        line: dict[str, Json] = {"at": clock.now().isoformat(), "level": level, "message": text}
        if fields:
            line["fields"] = _bounded(fields, self._max_line_bytes - len(text.encode()))
        return line


def _drop(line: dict[str, Json]) -> None:
    """For lines that come after the end of their attempt."""


def _bounded(fields: dict[str, Json], room: int) -> dict[str, Json]:
    """The fields, in order, as far as `room` bytes go. What is not a scalar of JSON is shown by its repr."""
    kept: dict[str, Json] = {}
    for name, value in fields.items():
        room -= len(name.encode(errors="replace"))
        if room <= 0:
            break
        shown = (
            value if _is_scalar(value) else _one_line(value if isinstance(value, str) else repr(value), room)
        )
        room -= len(str(shown).encode())
        kept[escaped(name)] = shown
    return kept


def _is_scalar(value: object) -> bool:
    """Whether the value is a null, a boolean or a number that JSON can hold."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and -(2**63) <= value < 2**63)


def _one_line(text: str, max_bytes: int) -> str:
    kept = redacted(text[: max_bytes + LONGEST_SECRET])  # one that the end would cut into is gone as a whole
    return escaped(kept[:max_bytes]).encode()[:max_bytes].decode(errors="ignore")


_CONTROLS = (*range(0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: ascii(chr(code))[1:-1] for code in _CONTROLS}


def escaped(text: str) -> str:
    """The text on one line: control and direction characters and lone surrogates become escapes."""
    if text.isprintable():
        return text
    return text.translate(_ESCAPES).encode(errors="backslashreplace").decode()
