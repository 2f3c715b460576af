"""`prep.log` and `ocr.log` of a document: when each try began, what its tools said, how it ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TOOLS = ("ocrmypdf", "img2pdf", "pikepdf", "PIL")
_own = logging.getLogger("cograil.documents.stage")


class _Lines(logging.FileHandler):
    """Lines of a file; a log that cannot be written ends nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "a", encoding="utf-8", errors="replace")
        form = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        form.converter = time.gmtime
        self.setFormatter(form)

    def handleError(self, record: logging.LogRecord) -> None:
        pass


@contextmanager
def kept(path: Path) -> Iterator[None]:
    """Keep what is said in this block."""
    lines: logging.Handler = logging.NullHandler()
    with suppress(OSError):
        lines = _Lines(path)
    loggers = [_own, *(logging.getLogger(name) for name in TOOLS)]
    _own.propagate = False
    _own.setLevel(logging.INFO)
    for logger in loggers:
        logger.addHandler(lines)
    try:
        _own.info("begins")
        yield
        _own.info("done")
    except Exception as error:
        _own.error("failed: %s: %s", type(error).__name__, error)
        raise
    finally:
        for logger in loggers:
            logger.removeHandler(lines)
        lines.close()
