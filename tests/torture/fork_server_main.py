"""The process that has imported everything and forks the ones to be killed, 20 ms each.

Orders to fork or to signal come in as JSON lines, what happens to the children goes out as JSON lines.
It has one thread and no event loop, so that a fork is a fork of all there is. When its standard input
ends, so does it, and the kernel ends its children.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
from typing import Any

from tests.torture import victims

children: set[int] = set()  # those not yet waited for: their ids cannot be anybody else's


def _say(**facts: Any) -> None:
    os.write(1, json.dumps(facts).encode() + b"\n")


def _fork(order: dict[str, Any], wakeup: int) -> None:
    pid = os.fork()
    if pid:
        children.add(pid)
        _say(number=order["number"], pid=pid)
        return
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.close(wakeup)
    victims.become(order)


def _obey(order: dict[str, Any], wakeup: int) -> None:
    if "signal" not in order:
        _fork(order, wakeup)
    elif order["pid"] in children:
        os.kill(order["pid"], order["signal"])


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if os.WIFSTOPPED(status):
            _say(pid=pid, stopped=True)
        else:
            children.discard(pid)
            _say(pid=pid, ended=os.waitstatus_to_exitcode(status))


def _orders(pending: bytes) -> tuple[list[dict[str, Any]], bytes, bool]:
    data = os.read(0, 65536)
    *lines, rest = (pending + data).split(b"\n")
    return [json.loads(line) for line in lines], rest, not data


def main() -> None:
    """Fork what is ordered until nobody orders any more."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.freeze()
    _say(ready=True)
    pending, is_over = b"", False
    while not is_over:
        readable, _, _ = select.select([0, read], [], [])
        if read in readable:
            os.read(read, 4096)
        _reap()
        if 0 in readable:
            orders, pending, is_over = _orders(pending)
            for order in orders:
                _obey(order, write)


if __name__ == "__main__":
    main()
