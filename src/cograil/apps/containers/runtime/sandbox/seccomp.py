"""Calls of the kernel that nothing in a sandbox needs and that holes were found in, as a filter for bwrap.

Engines list what is allowed; this lists what is not, which is less. The numbers are those of the kernel's
tables for each processor.
"""

from __future__ import annotations

import platform
import struct
from errno import ENOSYS, EPERM
from typing import NamedTuple

_ANYWHERE = {  # newer calls have one number on all processors
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
}
_NAMES = (
    "mount", "umount2", "pivot_root", "chroot", "swapon", "swapoff", "reboot", "kexec_load",
    "kexec_file_load", "init_module", "finit_module", "delete_module", "acct", "settimeofday",
    "clock_settime", "add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd",
    "unshare", "setns", "open_by_handle_at", "quotactl", "syslog", "move_pages", "kcmp",
)  # fmt: skip
_X86 = (165, 166, 155, 161, 167, 168, 169, 246, 320, 175, 313, 176, 163, 164, 227, 248, 249, 250, 321, 298,
        323, 272, 308, 304, 179, 103, 279, 312)  # fmt: skip
_ARM = (40, 39, 41, 51, 224, 225, 142, 104, 294, 105, 273, 106, 89, 170, 112, 217, 218, 219, 280, 241, 282,
        97, 268, 265, 60, 116, 239, 272)  # fmt: skip


class _Processor(NamedTuple):
    audit: int
    numbers: tuple[int, ...]
    clone: int


_PROCESSORS = {
    "x86_64": _Processor(0xC000003E, _X86, 56),
    "aarch64": _Processor(0xC00000B7, _ARM, 220),
}
_CLONE3, _NEW_USERS, _OTHER_ABI = 435, 0x10000000, 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000


def denied() -> dict[str, int]:
    """The calls that are refused, by name; none on a processor whose numbers we do not know."""
    processor = _PROCESSORS.get(platform.machine())
    return {} if processor is None else dict(zip(_NAMES, processor.numbers, strict=True)) | _ANYWHERE


def seccomp_filter() -> bytes:
    """The filter as the kernel reads it; empty on a processor whose numbers we do not know."""
    processor = _PROCESSORS.get(platform.machine())
    if processor is None:
        return b""
    refuse = _step(_RETURN, _ERROR | EPERM)
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, processor.audit, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _OTHER_ABI, 0, 1),
        refuse,
    ]
    for number in denied().values():
        steps += [_step(_EQUAL, number, 0, 1), refuse]
    # Its flags cannot be read by a filter; without it, programs use the older call.
    steps += [_step(_EQUAL, _CLONE3, 0, 1), _step(_RETURN, _ERROR | ENOSYS)]
    steps += [_step(_EQUAL, processor.clone, 0, 3), _step(_LOAD, _FIRST_ARGUMENT)]
    steps += [_step(_ANY_BIT, _NEW_USERS, 0, 1), refuse]
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
