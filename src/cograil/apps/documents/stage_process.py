"""A stage in a process of its own, for the services: an order on stdin, lines of JSON on stdout.

`{"progress": [done, total, what]}` while it works; at last `{"done": {...}}` or `{"error": {...}}`. It is killed when
its parent dies.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from cograil.apps.documents import ocr, prep
from cograil.apps.documents.layout import FINAL_PDF, RAW_PDF
from cograil.apps.documents.stage_heartbeat import StageHeartbeat
from cograil.apps.documents.stage_log import log_stage

PR_SET_PDEATHSIG = 1


def run(order: dict[str, Any], tell: Any) -> dict[str, Any]:
    """Run this order; return the final message."""
    kind, work_dir = order["kind"], Path(order["work_dir"])
    heart = StageHeartbeat(work_dir / f"{kind}.heartbeat", order["pulse_seconds"], order["timeout_seconds"])

    def progress(done: int, total: int | None, what: str) -> None:
        heart.beat()
        tell({"progress": [done, total, what]})

    try:
        with log_stage(work_dir / f"{kind}.log"), heart.beating():
            return {"done": _work(order, work_dir, progress)}
    except prep.BadDocument as error:
        return {"error": {"type": error.code, "detail": str(error), "final": True}}
    except ocr.InvalidPdf as error:
        return {"error": {"type": "pdf_invalid", "detail": str(error), "final": False}}
    except Exception as error:
        kind = "heartbeat_timeout" if heart.is_stuck else type(error).__name__
        return {"error": {"type": kind, "detail": str(error)[:2000], "final": False}}


def _work(order: dict[str, Any], work_dir: Path, progress: prep.Progress) -> dict[str, Any]:
    source, is_resumed = Path(order["source"]), order["is_resumed"]
    if order["kind"] == "prep":
        prepared = prep.prepare(
            source,
            work_dir,
            run=order["run"],
            dpi=order["profile"].get("options", {}).get("dpi"),
            is_resumed=is_resumed,
            progress=progress,
        )
        return {
            "artifacts": {"rawPdf": str(work_dir / RAW_PDF)},
            "pages": prepared.pages,
            "is_reused": prepared.is_reused,
        }
    recognised = ocr.recognise(
        source,
        work_dir,
        order["profile"],
        run=order["run"],
        jobs=order["jobs"],
        min_bytes=order["min_bytes"],
        is_resumed=is_resumed,
        progress=progress,
    )
    counts = {"pages": recognised.pages, "words": recognised.words, "is_reused": recognised.is_reused}
    return {"artifacts": {"finalPdf": str(work_dir / FINAL_PDF)}, **counts}


def main() -> None:
    """The entry point of the process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not mix with the messages

    def tell(message: dict[str, Any]) -> None:
        lines.write(json.dumps(message) + "\n")
        lines.flush()

    tell(run(json.loads(sys.stdin.readline()), tell))


if __name__ == "__main__":
    main()
