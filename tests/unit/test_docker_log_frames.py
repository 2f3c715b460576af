"""The log of an engine: frames as they come, told as whole lines behind a place."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator

from cograil.apps.containers.runtime.container_runtime import BEGINNING, MAX_LINE, ContainerLogCursor
from cograil.apps.containers.runtime.docker_log_frames import frames_of, lines_behind, seconds_of

AT = "2026-11-18T01:02:03"


async def each(*frames: str) -> AsyncIterator[bytes]:
    for frame in frames:
        yield frame.encode()


async def told(*frames: str, after: ContainerLogCursor = BEGINNING) -> list[tuple[ContainerLogCursor, str]]:
    return [line async for line in lines_behind(each(*frames), after)]


async def texts(*frames: str, after: ContainerLogCursor = BEGINNING) -> list[str]:
    return [text for _, text in await told(*frames, after=after)]


async def test_a_line_may_come_in_several_frames_and_a_frame_may_hold_several_lines() -> None:
    frames = [f"{AT}.1Z one, ", f"{AT}.2Z still one\n", f"{AT}.3Z two\r\nthree\n", f"{AT}.4Z the rest"]
    assert await texts(*frames) == ["one, still one", "two", "three", "the rest"]


async def test_a_reader_that_resumes_at_any_line_gets_the_rest_and_nothing_twice() -> None:
    frames = [f"{AT}.1Z a\nb\nc\n", f"{AT}.2Z d", f"{AT}.3Z e\n", f"{AT}.3Z f\n", f"{AT}.300000001Z g\n"]
    every = await told(*frames)
    for number, (place, _) in enumerate(every):
        since = seconds_of(place.stamp)
        kept = [frame for frame in frames if seconds_of(frame.split(" ")[0]) >= since]
        assert await texts(*kept, after=place) == [text for _, text in every[number + 1 :]]


async def test_zeros_that_are_left_out_and_zones_that_change_do_not_hide_lines() -> None:
    assert await texts(f"{AT}.500000001Z x\n", after=ContainerLogCursor(f"{AT}.5Z", 1)) == ["x"]
    summer, winter = "2026-10-25T02:59:59.9+02:00", "2026-10-25T02:00:00.1+01:00"
    assert await texts(f"{winter} x\n", after=ContainerLogCursor(summer, 1)) == ["x"]
    assert await texts(f"{summer} x\n", after=ContainerLogCursor(winter, 1)) == []


async def test_a_clock_that_goes_back_hides_nothing_behind_a_new_line() -> None:
    after = ContainerLogCursor(f"{AT}.5Z", 1)
    assert await texts(f"{AT}.5Z known\n", f"{AT}.6Z new\n", f"{AT}.1Z back\n", after=after) == [
        "new",
        "back",
    ]


async def test_a_line_without_an_end_is_told_in_pieces() -> None:
    lines = await texts(*(f"{AT}.{number:03}Z {'é' * 8192}" for number in range(12)))
    assert "".join(lines) == "é" * 8192 * 12
    assert max(len(text.encode()) for text in lines) <= MAX_LINE


async def test_a_log_that_is_cut_short_ends() -> None:
    content = asyncio.StreamReader()
    content.feed_data(struct.pack(">BxxxL", 1, 3) + b"one" + struct.pack(">BxxxL", 1, 9) + b"tw")
    content.feed_eof()
    assert [frame async for frame in frames_of(content)] == [b"one"]
