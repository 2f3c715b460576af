"""`python -m cograil.intake.cli`, where the script `cograil` is not on the path."""

from __future__ import annotations

import sys

from cograil.intake.cli import main

if __name__ == "__main__":
    sys.exit(main())
