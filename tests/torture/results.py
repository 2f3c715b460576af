"""The figures of an enumeration, kept for docs/explanation/crash-points.md when TORTURE_RESULTS names a directory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.torture.enumeration import Tally


def keep(name: str, tally: Tally, **more: Any) -> None:
    """Write these figures down, if anybody wants them."""
    directory = os.environ.get("TORTURE_RESULTS")
    if directory:
        figures = {"points": tally.points, "runs": tally.runs, "missed": tally.missed}
        figures |= {"violations": tally.violations, "seconds": tally.seconds, "names": sorted(tally.names())}
        Path(directory).mkdir(parents=True, exist_ok=True)
        (Path(directory) / f"{name}.json").write_text(json.dumps({"name": name} | figures | more, indent=1))
