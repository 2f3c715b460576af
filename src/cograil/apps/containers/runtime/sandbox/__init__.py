"""A runtime for machines without an engine: processes in sandboxes, by bubblewrap.

sandbox_runtime     Sandbox, the runtime; its isolation gaps
bwrap_arguments     arguments of bwrap, users, the plan of the supervisor
supervisor          the small process beside each sandbox; a program of its own that imports nothing of ours
sandbox_directory   the directory of a sandbox: found by labels, locked while it runs; its exit and its logs
cgroups, seccomp    resource limits, and denied system calls
sandbox_images      root file systems, imported from a tar
"""

from cograil.apps.containers.runtime.sandbox.sandbox_runtime import Sandbox

__all__ = ["Sandbox"]
