"""The decisions: what a job does next after a set of inputs.

`advance.advance` is the only entry point; the other modules hold one topic each (attempts,
fan-outs, approvals, timers, the end of a job). `model/states.py` lists the states and the moves
between them.

The package is pure: it does no I/O, reads no clock and draws no random numbers. The caller passes
the time and a source of random numbers. Code here must not import the store, the verbs, the workers
or the YAML reader.
"""

from cograil.engine.advance import advance

__all__ = ["advance"]
