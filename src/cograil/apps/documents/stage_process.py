"""One stage in a process of its own, for the services: an order comes in on stdin, lines of JSON go out.

`{"progress": [done, total, what]}` while it works; at last `{"done": {...}}` or `{"error": {...}}`. It ends
with whoever started it, and with all that it started.
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
from cograil.apps.documents.stage_heartbeat import Heart
from cograil.apps.documents.stage_log import kept

PR_SET_PDEATHSIG = 1


def run(order: dict[str, Any], tell: Any) -> dict[str, Any]:
    """Do what was ordered; what to answer."""
    kind, room = order["kind"], Path(order["work_dir"])
    heart = Heart(room / f"{kind}.heartbeat", order["pulse_seconds"], order["timeout_seconds"])

    def progress(done: int, total: int | None, what: str) -> None:
        heart.beat()
        tell({"progress": [done, total, what]})

    try:
        with kept(room / f"{kind}.log"), heart.beating():
            return {"done": _work(order, room, progress)}
    except prep.BadDocument as error:
        return {"error": {"type": error.code, "detail": str(error), "final": True}}
    except ocr.InvalidPdf as error:
        return {"error": {"type": "pdf_invalid", "detail": str(error), "final": False}}
    except Exception as error:
        kind = "heartbeat_timeout" if heart.is_stuck else type(error).__name__
        return {"error": {"type": kind, "detail": str(error)[:2000], "final": False}}


def _work(order: dict[str, Any], room: Path, progress: prep.Progress) -> dict[str, Any]:
    source, is_resumed = Path(order["source"]), order["is_resumed"]
    if order["kind"] == "prep":
        made = prep.prepare(
            source,
            room,
            run=order["run"],
            dpi=order["profile"].get("options", {}).get("dpi"),
            is_resumed=is_resumed,
            progress=progress,
        )
        return {
            "artifacts": {"rawPdf": str(room / RAW_PDF)},
            "pages": made.pages,
            "is_reused": made.is_reused,
        }
    found = ocr.recognise(
        source,
        room,
        order["profile"],
        run=order["run"],
        jobs=order["jobs"],
        min_bytes=order["min_bytes"],
        is_resumed=is_resumed,
        progress=progress,
    )
    told = {"pages": found.pages, "words": found.words, "is_reused": found.is_reused}
    return {"artifacts": {"finalPdf": str(room / FINAL_PDF)}, **told}


def main() -> None:
    """The process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is not for whoever reads us

    def tell(message: dict[str, Any]) -> None:
        lines.write(json.dumps(message) + "\n")
        lines.flush()

    tell(run(json.loads(sys.stdin.readline()), tell))


if __name__ == "__main__":
    main()
