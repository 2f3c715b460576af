"""Handlers that run in child processes of a worker; each child imports this module."""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cograil import Context, handler

LEAKED: list[bytes] = []


@handler("child_pid", process=True)
def child_pid(number: int = 0) -> dict[str, Any]:
    return {"pid": os.getpid(), "parent": os.getppid(), "number": number, "main": sys.argv[0]}


@handler("child_spin", process=True)
def child_spin(file: str) -> None:
    Path(file).write_text(str(os.getpid()))
    while True:
        pass


@handler("child_holds", process=True)
def child_holds(file: str) -> None:
    """Like a library that computes without letting any other thread of Python run."""
    Path(file).write_text(str(os.getpid()))
    ctypes.PyDLL(None).sleep(600)


@handler("child_babbles", process=True)
def child_babbles(how: str) -> None:
    """It does to the link what it should not."""
    links = [int(fd) for fd in os.listdir("/proc/self/fd") if _is_socket(int(fd))]
    for link in links:
        if how == "close":
            os.close(link)
        else:
            os.write(link, b"\0\0\0\4abcd" if how == "nonsense" else b"\xff" * 64)
    time.sleep(600)


def _is_socket(fd: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


@handler("child_talk", process=True)
def child_talk(ctx: Context) -> dict[str, Any]:
    ctx.log.info("talking", attempt=ctx.attempt)
    ctx.progress(1, 2, "half")
    pid = ctx.step("pid", os.getpid)
    checkpoint_data = ctx.checkpoint_data
    ctx.checkpoint({"attempt": ctx.attempt}, phase="first")
    if ctx.attempt == 1:
        raise OSError("once more")
    return {"pid": pid, "me": os.getpid(), "found": checkpoint_data, "key": ctx.idempotency_key}


@handler("child_async", process=True)
async def child_async(ctx: Context) -> dict[str, Any]:
    await ctx.checkpoint({"here": True})
    return {"two": await ctx.step("two", lambda: 2)}


@handler("child_obeys", process=True)
def child_obeys(file: str, ctx: Context) -> None:
    Path(file).write_text(str(os.getpid()))
    while not ctx.cancelled:
        time.sleep(0.01)
    Path(file).write_text("obeyed")


@handler("child_dies", process=True)
def child_dies(how: str, ctx: Context) -> dict[str, Any]:
    if ctx.attempt > 1:
        return {"attempt": ctx.attempt}
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), getattr(signal, how))
    return {}


@handler("child_eats", process=True)
def child_eats(mib: int, small: bool = False) -> dict[str, Any]:
    if small:
        eaten: list[str] = []
        while True:
            eaten.append("x" * 100 + str(len(eaten)))
    return {"length": len(bytearray(mib * 1024 * 1024))}


@handler("child_leaks", process=True)
def child_leaks(mib: int) -> dict[str, Any]:
    LEAKED.append(b"x" * (mib * 1024 * 1024))
    return {"pid": os.getpid()}


@handler("child_starts_another", process=True)
def child_starts_another(file: str) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(file).write_text(str(other.pid))
    other.wait()


@handler("child_transaction", process=True)
async def child_transaction(ctx: Context) -> None:
    ctx.transaction()


@handler("child_tells", process=True)
def child_tells(ctx: Context) -> dict[str, Any]:
    ctx.tell("shop.counted", {"number": 1}, checkpoint={"at": 1})
    return {}
