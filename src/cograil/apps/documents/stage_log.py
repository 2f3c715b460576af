"""`prep.log` and `ocr.log` of a document: the beginning, tool messages and end of each attempt."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

TOOLS = ("ocrmypdf", "img2pdf", "pikepdf", "PIL")
_own = logging.getLogger("cograil.documents.stage")


class _Lines(logging.FileHandler):
    """A log file; errors while writing it are ignored."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "a", encoding="utf-8", errors="replace")
        form = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        form.converter = time.gmtime
        self.setFormatter(form)

    def handleError(self, record: logging.LogRecord) -> None:
        pass


@contextmanager
def log_stage(path: Path) -> Iterator[None]:
    """Log tool messages of this block to this file only: tools warn about each page with few words."""
    try:
        lines = _Lines(path)
    except OSError:
        yield
        return
    with closing(lines), _redirect_loggers(lines):
        _own.info("begins")
        try:
            yield
        except Exception as error:
            _own.error("failed: %s: %s", type(error).__name__, error)
            raise
        _own.info("done")


@contextmanager
def _redirect_loggers(lines: logging.Handler) -> Iterator[None]:
    loggers = [_own, *(logging.getLogger(name) for name in TOOLS)]
    before = [(logger, logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.addHandler(lines)
        logger.propagate = False
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, propagate, level in before:
            logger.removeHandler(lines)
            logger.propagate = propagate
            logger.setLevel(level)
