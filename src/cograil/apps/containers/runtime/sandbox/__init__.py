"""A runtime for machines without an engine: processes in sandboxes, by bubblewrap.

runtime.py     Sandbox, the same deeds as an engine; what it does not keep apart
planning.py    what a sandbox is made of: arguments of bwrap, users, the plan of the supervisor
supervisor.py  the small process beside each sandbox; a program of its own that imports nothing of ours
places.py      the directory of a sandbox: found by labels, locked while it runs, its end and its logs
groups.py      control groups; seccomp.py calls of the kernel that are refused
images.py      root file systems, made from a tar
"""

from cograil.apps.containers.runtime.sandbox.sandbox_runtime import Sandbox

__all__ = ["Sandbox"]
