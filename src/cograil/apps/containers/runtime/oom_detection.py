"""Detect containers killed for their memory in the kernel log, where it is readable."""

from __future__ import annotations

import os

KERNEL_LOG = "/dev/kmsg"
MAX_RECORD = 8192


def was_out_of_memory(container: str) -> bool | None:
    """Whether the kernel killed a process of this container; None if its log is not readable."""
    try:
        log = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _is_logged(log, container.encode())
    finally:
        os.close(log)


def _is_logged(log: int, container: bytes) -> bool | None:
    while True:
        try:
            record = os.read(log, MAX_RECORD)
        except BlockingIOError:  # that was the last one
            return False
        except BrokenPipeError:  # some were overwritten before we read them
            continue
        except OSError:
            return None
        if b"oom_memcg=" in record and container in record.partition(b"oom_memcg=")[2].partition(b",")[0]:
            return True
