"""`cograil orchestrator` without its memory: `python -m bench.forgetful orchestrator`, for `bench.memory`."""

from __future__ import annotations

import sys
from functools import partial

from cograil.cli import main
from cograil.orchestrator import orchestrator_loop

if __name__ == "__main__":
    orchestrator_loop.Orchestrator = partial(orchestrator_loop.Orchestrator, caches_jobs=False)  # type: ignore[assignment,misc]
    sys.exit(main(sys.argv[1:]))
