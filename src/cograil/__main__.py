"""`python -m cograil`: the command line, for systems where the script `cograil` is not on the path."""

import sys

from cograil.cli import main

if __name__ == "__main__":
    sys.exit(main())
