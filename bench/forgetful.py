"""`cograil orchestrator` without its memory: `python -m bench.forgetful orchestrator`, for `bench.memory`."""

from __future__ import annotations

import sys
from functools import partial

from cograil.intake.cli import main
from cograil.orchestrator import loop

if __name__ == "__main__":
    loop.Orchestrator = partial(loop.Orchestrator, remembers=False)  # type: ignore[assignment,misc]
    sys.exit(main(sys.argv[1:]))
