"""One contract for dockerd, podman and the sandbox.

What containers may use and do, how they end, and how they are found again.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.apps.containers.runtimes import POLICY, output, output_of, run, runtime_at, until_it_says

from cograil.apps.containers.runtime.container_runtime import (
    ContainerPolicy,
    EngineError,
    Runtime,
)

ROOT = Path(__file__).parents[3]
HUNGRY = "head -c 100000000 /dev/zero | tail -c 100000000 > /dev/null"
BUSY = """
look() { read -r stat < /proc/$$/stat; read -r up rest < /proc/uptime; echo "$up $stat"; }
look
read -r begin rest < /proc/uptime; until="${begin%.*}"; until=$((until + 2))
while true; do
  i=0; while [ $i -lt 500 ]; do i=$((i + 1)); done
  read -r up rest < /proc/uptime; [ "${up%.*}" -ge "$until" ] && break
done
look
"""


async def test_a_container_runs_in_its_room_and_its_exit_is_told(runtime: Runtime, room: Path) -> None:
    command = "pwd; echo $GREETING > out.txt; echo oops >&2; exit 3"
    container = await runtime.start(run(room, command, environment={"GREETING": "héllo $x"}), POLICY)
    state = await runtime.wait(container)
    assert (state.is_running, state.has_run, state.exit_code, state.is_out_of_memory) == (
        False,
        True,
        3,
        False,
    )
    assert await output(runtime, container) == ["/workspace"]
    assert await output(runtime, container, "stderr") == ["oops"]
    assert (room / "out.txt").read_text() == "héllo $x\n"


async def test_a_container_has_nothing_of_our_environment(
    runtime: Runtime, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COGRAIL_SECRET_OF_OURS", "x")
    output = await output_of(
        runtime, room, "env", environment={"LD_PRELOAD": "/workspace/x.so", "PATH": "/bin"}
    )
    names = {line.partition("=")[0] for line in output.splitlines()}
    assert names <= {"PATH", "HOME", "HOSTNAME", "LD_PRELOAD", "PWD", "SHLVL", "TERM", "container"}
    assert {"PATH=/bin", "LD_PRELOAD=/workspace/x.so"} <= set(output.splitlines())


async def test_variables_may_have_any_name(runtime: Runtime, room: Path) -> None:
    """Shells know fewer, and programs read them all the same."""
    environment = {"spring.datasource.url": "x=1", "A-B": "y"}
    output = await output_of(runtime, room, "cat /proc/$$/environ; echo", environment=environment)
    assert {"spring.datasource.url=x=1", "A-B=y"} <= set(output.split("\0"))


async def test_a_second_start_finds_the_running_container(runtime: Runtime, where: str, room: Path) -> None:
    request = run(room, "echo once >> runs; echo up; sleep 60")
    first = await runtime.start(request, POLICY)
    await until_it_says(runtime, first, "up")
    async with runtime_at(where) as another:
        assert await another.start(request, POLICY) == first
        assert (await another.state(first)).is_running
        await another.stop(first, 0)
        assert await another.start(request, POLICY) == first, "and one that has run is not run again"
        assert not (await another.state(first)).is_running
    assert (room / "runs").read_text() == "once\n"


async def test_two_starts_at_once_make_one_container(
    runtime: Runtime, where: str, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second had looked before the first was there: an attempt that was taken for dead, and the next."""
    request = run(room, "echo once >> runs; echo up; sleep 60")

    async def nobody(labels: Mapping[str, str]) -> None:
        return None

    async with runtime_at(where) as another:
        monkeypatch.setattr(another, "find", nobody)
        first = await runtime.start(request, POLICY)
        await until_it_says(runtime, first, "up")
        assert await another.start(request, POLICY) == first
    assert (room / "runs").read_text() == "once\n"


async def test_a_container_outlives_its_starter_and_is_found_again(
    runtime: Runtime, where: str, room: Path
) -> None:
    command = "echo one; until [ -e go ]; do sleep 0.1; done; echo two; exit 7"
    request = run(room, command)
    run_json = json.dumps(asdict(request) | {"room": str(room)})
    starter = [sys.executable, "-m", "tests.apps.containers.crashing_starter", where, run_json]
    process = subprocess.run(starter, cwd=ROOT, capture_output=True, check=False)
    assert process.returncode == -9, process.stderr.decode()
    container = await runtime.find(request.labels)
    assert container is not None
    assert [(container.container, container.labels) for container in await runtime.held(request.labels)] == [
        (container, request.labels)
    ]
    assert container == process.stdout.decode().strip()
    assert (await runtime.state(container)).is_running
    (room / "go").touch()
    async with asyncio.timeout(20):
        assert (await runtime.wait(container)).exit_code == 7
    assert await output(runtime, container) == ["one", "two"]


async def test_a_log_is_read_on_where_it_was_left(runtime: Runtime, room: Path) -> None:
    container = await runtime.start(run(room, "seq 1 200"), POLICY)
    await runtime.wait(container)
    lines = [line async for line in runtime.lines(container, "stdout")]
    assert [text for _, text in lines] == [str(number) for number in range(1, 201)]
    for read in (1, 77, 200):
        rest = await output(runtime, container, after=lines[read - 1][0])
        assert rest == [str(number) for number in range(read + 1, 201)]


async def test_a_log_ends_with_what_has_no_newline(runtime: Runtime, room: Path) -> None:
    assert await output_of(runtime, room, "printf 'a\\n\\nb'") == "a\n\nb"


async def test_a_line_is_whole_however_it_was_written(runtime: Runtime, room: Path) -> None:
    """Some engines tell it in pieces, each with a stamp of theirs."""
    command = "printf one; sleep 0.1; printf ' žlu'; printf 'ť '; echo two; printf 'end '; printf .; seq 1 3"
    container = await runtime.start(run(room, command), POLICY)
    live = [line async for line in runtime.lines(container, "stdout")]
    await runtime.wait(container)
    lines = [line async for line in runtime.lines(container, "stdout")]
    assert [text for _, text in lines] == ["one žluť two", "end .1", "2", "3"]
    assert live == lines
    for read, (place, _) in enumerate(lines, 1):
        assert await output(runtime, container, after=place) == [text for _, text in lines[read:]]


async def test_a_line_that_is_too_long_comes_in_pieces_of_nothing_else(runtime: Runtime, room: Path) -> None:
    command = f"head -c {3 * 65536 + 100} /dev/zero | tr '\\0' x; echo; echo next; printf '\\n'; echo last"
    container = await runtime.start(run(room, command), POLICY)
    await runtime.wait(container)
    lines = [line async for line in runtime.lines(container, "stdout")]
    texts = [text for _, text in lines]
    assert [len(text) for text in texts] == [65536, 65536, 65536, 100, 4, 0, 4]
    assert set("".join(texts[:4])) == {"x"}
    for read in (1, 3, 5):
        assert await output(runtime, container, after=lines[read - 1][0]) == texts[read:]


async def test_log_lines_come_while_a_container_runs(runtime: Runtime, room: Path) -> None:
    container = await runtime.start(run(room, "echo ready; sleep 60"), POLICY)
    await until_it_says(runtime, container, "ready")
    assert (await runtime.state(container)).is_running
    gc.collect()  # a connection that nobody closed would be told now


async def test_a_container_told_to_stop_may_end_by_itself(runtime: Runtime, room: Path) -> None:
    command = "trap 'echo bye; exit 5' TERM; echo up; while true; do sleep 0.1; done"
    container = await runtime.start(run(room, command), POLICY)
    await until_it_says(runtime, container, "up")
    await runtime.stop(container, 15)
    assert (await runtime.wait(container)).exit_code == 5
    assert await output(runtime, container) == ["up", "bye"]


async def test_a_container_that_does_not_stop_is_killed(runtime: Runtime, room: Path) -> None:
    command = "trap '' TERM; echo up; sleep 600 & while true; do sleep 1; done"
    container = await runtime.start(run(room, command), POLICY)
    await until_it_says(runtime, container, "up")
    await runtime.stop(container, 1)
    async with asyncio.timeout(10):
        state = await runtime.wait(container)
    assert (state.exit_code, state.is_out_of_memory) == (137, False)


async def test_processes_left_running_end_with_their_container(runtime: Runtime, room: Path) -> None:
    container = await runtime.start(run(room, "sleep 600 & echo gone"), POLICY)
    async with asyncio.timeout(20):
        assert (await runtime.wait(container)).exit_code == 0
        assert await output(runtime, container) == ["gone"]


async def test_a_container_out_of_memory_is_reported_as_such(runtime: Runtime, room: Path) -> None:
    container = await runtime.start(run(room, HUNGRY, memory_mb=16), POLICY)
    async with asyncio.timeout(60):
        state = await runtime.wait(container)
    assert (state.exit_code, state.is_out_of_memory) == (137, True)
    container = await runtime.start(run(room, HUNGRY, memory_mb=512), POLICY)
    assert (await runtime.wait(container)).exit_code == 0, "and enough is enough"


async def test_a_container_that_survives_a_killed_child_has_not_failed(runtime: Runtime, room: Path) -> None:
    container = await runtime.start(run(room, f"{HUNGRY}; exit 0", memory_mb=64), POLICY)
    async with asyncio.timeout(60):
        state = await runtime.wait(container)
    assert (state.exit_code, state.is_out_of_memory) == (0, False)


async def test_a_container_that_kills_itself_is_not_out_of_memory(runtime: Runtime, room: Path) -> None:
    container = await runtime.start(run(room, "sh -c 'kill -9 $$'; exit $?"), POLICY)
    state = await runtime.wait(container)
    assert (state.exit_code, state.is_out_of_memory) == (137, False)


async def test_a_container_gets_its_share_of_a_processor(runtime: Runtime, room: Path) -> None:
    output = await output_of(runtime, room, BUSY, cpus=0.2)
    (first, *begin), (last, *end) = (line.split() for line in output.splitlines())
    ticks = sum(int(end[at]) - int(begin[at]) for at in (13, 14))
    assert ticks / 100 <= 0.27 * (float(last) - float(first))


async def test_a_container_may_do_nothing_to_the_machine(runtime: Runtime, room: Path) -> None:
    command = """
    grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status
    mount -t tmpfs x /tmp && echo mounted; mknod x b 8 0 && echo made
    echo x > /proc/sys/kernel/core_pattern && echo written
    """
    output = await output_of(runtime, room, command)
    assert "CapEff:\t0000000000000000" in output
    assert "CapBnd:\t0000000000000000" in output
    assert "NoNewPrivs:\t1" in output
    assert output.splitlines()[-1] == "Seccomp:\t2", "and nothing of the rest was done"
    assert not (room / "x").exists()


async def test_a_container_without_network_has_only_loopback(runtime: Runtime, room: Path) -> None:
    output = await output_of(runtime, room, "cat /proc/net/dev")
    assert [line.split(":")[0].strip() for line in output.splitlines()[2:]] == ["lo"]


async def test_the_network_of_the_machine_is_given_by_the_operator_alone(
    runtime: Runtime, room: Path
) -> None:
    output = await output_of(runtime, room, "cat /proc/net/dev", ContainerPolicy(network="host"))
    here = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    assert {line.split(":")[0].strip() for line in output.splitlines()[2:]} == {
        line.split(":")[0].strip() for line in here
    }


async def test_a_container_sees_only_its_own_processes(runtime: Runtime, room: Path) -> None:
    output = await output_of(runtime, room, "ls /proc")
    assert len([name for name in output.split() if name.isdigit()]) <= 4


async def test_limits_of_processes_are_real(runtime: Runtime, room: Path) -> None:
    command = "for i in $(seq 1 40); do sleep 5 & done; echo started"
    container = await runtime.start(run(room, command), ContainerPolicy(network="none", processes=10))
    await runtime.wait(container)
    assert "can't fork" in "\n".join(await output(runtime, container, "stderr"))


async def test_an_image_does_not_change_by_what_runs_in_it(runtime: Runtime, room: Path) -> None:
    command = "exec 2>&1; [ -e /etc/mine ] && echo old; echo x > /etc/mine && echo new"
    assert await output_of(runtime, room, command) == "new"
    assert await output_of(runtime, room, command) == "new"


async def test_operators_may_tighten_the_policy_of_containers(runtime: Runtime, room: Path) -> None:
    policy = ContainerPolicy(network="none", user="65534:65534", is_root_read_only=True)
    command = "id; touch /x; touch /etc/x; touch /tmp/x && echo tmp; touch y && echo room"
    output = await output_of(runtime, room, command, policy)
    assert "uid=65534" in output
    assert output.splitlines()[1:] == ["tmp", "room"]


async def test_a_user_is_known_by_the_name_in_the_image(runtime: Runtime, room: Path) -> None:
    policy = ContainerPolicy(network="none", user="worker")
    output = await output_of(runtime, room, "id; touch /etc/x && echo etc; touch y && echo room", policy)
    assert "uid=1234" in output
    assert "gid=1235" in output
    assert output.splitlines()[1:] == ["room"], "and is not root"


async def test_an_image_that_cannot_be_had_is_named(runtime: Runtime, room: Path) -> None:
    for pull in ("never", "missing"):
        with pytest.raises(EngineError, match="nowhere/nothing") as caught:
            await runtime.start(
                run(room, "x", image="nowhere/nothing:1"), ContainerPolicy(network="none", pull=pull)
            )
        assert caught.value.code == "image_not_found"


async def test_a_container_that_cannot_start_is_not_left_behind(runtime: Runtime, room: Path) -> None:
    request = run(room, "echo")
    with pytest.raises(EngineError, match="nobody-here"):
        await runtime.start(request, ContainerPolicy(network="none", user="nobody-here"))
    assert await runtime.find(request.labels) is None


async def test_removing_a_removed_container_is_fine(runtime: Runtime, room: Path) -> None:
    container = await runtime.start(run(room, "sleep 60"), POLICY)
    await runtime.remove(container)
    await runtime.remove(container)
    assert await runtime.find({"cograil.test": "yes"}) is None
    with pytest.raises(EngineError) as caught:
        await runtime.state(container)
    assert caught.value.code == "not_found"
