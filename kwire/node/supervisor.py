"""Several brokers of one machine under one command: starts them, repeats their log lines, restarts one that died.

Each node is a process of `kwire serve` with its own port and folder; they are one cluster (`kwire.cluster.dir`). A node
stops when its standard input ends, so none of them outlives the supervisor, even a killed one. They do not get the
terminal's signals, because the supervisor stops them one after the other: each hands its leadership over first.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from subprocess import PIPE
from typing import Final

import attrs
import trio

from kwire.backoff import Backoff

log = logging.getLogger(__name__)

PAUSES_S: Final = Backoff(first=0.5, longest=30.0)
"""The pauses before a node is started again, if it ends soon each time."""
SETTLED_S: Final = 60.0
"""The time after which a running node begins with the first pause again."""
LONGEST_LINE_BYTES: Final = 64 * 1024
STOP_TIMEOUT_S: Final = 60.0
"""The longest time that the supervisor waits for nodes that it no longer needs."""
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

Say = Callable[[str], None]


class NodeFailed(Exception):
    """A node could not be started for the first time. The text names the node; the node's log lines have the reason."""


@attrs.define(eq=False)
class _Node:
    node_id: int
    command: Sequence[str]
    is_up: trio.Event = attrs.field(factory=trio.Event)
    """Set when it has printed its address at least once."""
    line: str = ""
    """The line that it printed then."""
    process: trio.Process | None = None
    has_ended: trio.Event = attrs.field(factory=trio.Event)
    """Set when it has ended and is not started again."""
    stop: trio.Event = attrs.field(factory=trio.Event)
    """Set when it must stop."""


async def supervise(commands: Sequence[Sequence[str]], *, announce: Callable[[list[str]], None], say: Say) -> None:
    """Runs these commands as the nodes 1, 2, 3, ... until SIGINT or SIGTERM.

    `announce` gets the start-up line of each node when all of them run, and `say` gets each line of their logs. Raises
    NodeFailed.
    """
    nodes = [_Node(number, command) for number, command in enumerate(commands, start=1)]
    failures: list[str] = []
    with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:

            def fail(why: str) -> None:
                failures.append(why)
                nursery.cancel_scope.cancel()

            for node in nodes:
                nursery.start_soon(_run, node, say, fail)
            nursery.start_soon(_stop_when_signalled, nodes, signals)
            nursery.start_soon(_announce, nodes, announce)
            for node in nodes:
                await node.has_ended.wait()
            nursery.cancel_scope.cancel()
    if failures:
        raise NodeFailed(failures[0])


async def _announce(nodes: list[_Node], announce: Callable[[list[str]], None]) -> None:
    for node in nodes:
        await node.is_up.wait()
    announce([node.line for node in nodes])


async def _stop_when_signalled(nodes: list[_Node], signals: AsyncIterator[int]) -> None:
    number = await anext(signals)
    log.info("stopping %d nodes: received %s", len(nodes), signal.Signals(number).name)
    for node in nodes:
        node.stop.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_in_order, nodes, nursery.cancel_scope)
        await anext(signals)
        log.info("stopping all nodes at once")
        nursery.cancel_scope.cancel()
    for node in nodes:
        _terminate(node)


async def _stop_in_order(nodes: list[_Node], scope: trio.CancelScope) -> None:
    for node in reversed(nodes):
        _terminate(node)
        await node.has_ended.wait()
    scope.cancel()


def _terminate(node: _Node) -> None:
    if node.process is None:
        node.has_ended.set()
    else:
        node.process.terminate()


async def _run(node: _Node, say: Say, fail: Callable[[str], None]) -> None:
    """Runs the node, and starts it again when it ends."""
    failures = 0
    while not node.stop.is_set():
        began = trio.current_time()
        status = await _run_once(node, say)
        if node.stop.is_set():
            break
        if not node.is_up.is_set():
            fail(f"node {node.node_id} did not start")
            return
        failures = 1 if trio.current_time() - began >= SETTLED_S else failures + 1
        pause_s = PAUSES_S.after(failures)
        log.error("node %d ended (%s); starting it again in %g s", node.node_id, _described(status), pause_s)
        await trio.sleep(pause_s)
    node.has_ended.set()


async def _run_once(node: _Node, say: Say) -> int:
    """Runs the process once. Returns its exit status; if it was killed, the negative number of the signal."""
    process = await trio.lowlevel.open_process(
        node.command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    node.process = process
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_each_line, process.stderr, lambda line: say(f"node {node.node_id} | {line}"))
            nursery.start_soon(_each_line, process.stdout, partial(_started, node))
            if node.stop.is_set():
                process.terminate()
            return await process.wait()
    finally:
        node.process = None
        # The process must not remain in any case.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + STOP_TIMEOUT_S):
            await process.stdin.aclose()
            await process.wait()


def _started(node: _Node, line: str) -> None:
    if not node.is_up.is_set():
        node.line = line
        node.is_up.set()


async def _each_line(stream: trio.abc.ReceiveStream, call: Say) -> None:
    rest = b""
    async for data in stream:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            call(line.decode(errors="replace"))
        if len(rest) > LONGEST_LINE_BYTES:
            call(rest.decode(errors="replace"))
            rest = b""
    if rest:
        call(rest.decode(errors="replace"))


def _described(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def usable_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def node_command(arguments: Sequence[str]) -> list[str]:
    """The command of a process that is `kwire serve` with these arguments, and ends with its standard input."""
    return [sys.executable, "-m", "kwire", "serve", "--stop-with-stdin", *arguments]
