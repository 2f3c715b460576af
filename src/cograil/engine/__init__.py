"""The decisions: what a job does next, given what happened.

Pure. No I/O, no clock, no randomness: time and dice come in. `model/states.py` lists the
states and moves, `advance.py` the only door. Nothing here knows PostgreSQL, workers or YAML.
"""

from cograil.engine.advance import advance

__all__ = ["advance"]
