"""Ids of ours."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from cograil.model.ids import DRAWN, is_id, new_id


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = UUID(new_id())
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert is_id(str(made))


def test_later_ids_sort_after_earlier_ones() -> None:
    made = []
    for _ in range(100):
        made.append(new_id())
        while new_id()[:18] <= made[-1][:18]:  # the time in it has moved on
            pass
    assert made == sorted(made)


def test_threads_never_get_the_same_id() -> None:
    with ThreadPoolExecutor(4) as threads:
        made = [
            generated
            for ids in threads.map(lambda _: [new_id() for _ in range(3 * DRAWN)], range(8))
            for generated in ids
        ]
    assert len(set(made)) == len(made)


def test_a_forked_process_draws_its_own_chances() -> None:
    new_id()
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, "".join(new_id()[19:] for _ in range(20)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        theirs = stream.read()
    assert not any(new_id()[19:] in theirs for _ in range(DRAWN))
