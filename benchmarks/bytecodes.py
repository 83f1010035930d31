"""Bytecodes that the broker executes for a request, and where: a cost that no other work on the machine moves.

CPU time on a busy machine scatters by more than a change of a few per cent, and of a request's time most is the
interpreter's. So for changes to the code on a request's way this counts, in a broker in this process, every bytecode
that its thread executes from the moment at which the processor calls a connection until that returns. What leads to
the call is not in it, since connections share it and trio's part depends on the clock. Neither is what the kernel and C
code cost: a figure to compare commits by, not brokers.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import attrs
from kwire_protocol.messages.create_acls import AclCreation, CreateAclsRequest

import kwire.network.connection
from benchmarks.load.answers import Tailing
from benchmarks.load.connection import Connection
from benchmarks.load.consumer_members import ConsumerGroup, Subscription
from benchmarks.load.members import wait_for_coordinator
from benchmarks.load.replay import connect
from benchmarks.load.requests import encode, fetch, list_offsets, produce, value_batch
from benchmarks.load.transactions import Producers
from kwire.config.tables.access import STANDARD_AUTHORIZER
from kwire.security.acls.acl import PatternType, Permission
from kwire.security.authorizer import Operation, ResourceType
from kwire.testing import Broker
from testkit.raw.client import RawClient

ROUNDS = 100
_CONNECTION = kwire.network.connection.Connection
_ENTRIES = {_CONNECTION._on_ready.__code__, _CONNECTION._resume.__code__}
_WARM_UP = 50
_PARTITIONS = 6
PATIENCE_S = 30.0
_WITH_ACLS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    # Until a resource has an ACL, anybody may create one, and the topic.
    "allow.everyone.if.no.acl.found": "true",
}


@attrs.frozen
class Count:
    """Bytecodes for one request: all, and those of each function, the dearest first."""

    request: str
    total: float
    functions: list[tuple[str, float]]


class _Tracer:
    """Counts while `counting`; `trace` is installed before the broker's thread starts."""

    def __init__(self) -> None:
        self.counting = False
        self._calls = self._returns = 0
        """Of the connections by the processor."""
        self._moved = threading.Condition()
        self._is_in_connection = False
        self.counts: Counter[CodeType] = Counter()

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "opcode":
            if self._is_in_connection:
                self.counts[frame.f_code] += 1
            return self.trace
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if frame.f_code in _ENTRIES:
            self._is_in_connection = event != "return" and self.counting
            if event in ("call", "return"):
                self._note(is_call=event == "call")
        return self.trace

    def _note(self, *, is_call: bool) -> None:
        with self._moved:
            self._calls += is_call
            self._returns += not is_call
            self._moved.notify_all()

    def until_handled(self, send: Callable[[], object]) -> None:
        """Returns when the broker has looked at what `send` sends, and has nothing to do until more comes."""
        before = self._calls
        send()
        with self._moved:
            self._moved.wait_for(lambda: self._returns == self._calls > before, PATIENCE_S)


def requests(record: bytes) -> dict[str, bytes]:
    """Returns the measured requests by name; the topic `t` has some records."""
    return {
        "Produce, one record of 100 B": produce("t", [0], record),
        f"Produce, {_PARTITIONS} partitions": produce("t", range(_PARTITIONS), record),
        "Fetch from the start of a partition": fetch("t", 0, 0),
        f"ListOffsets, {_PARTITIONS} partitions": list_offsets({"t": range(_PARTITIONS)}),
    }


def count() -> list[Count]:
    """Each request ROUNDS times, one at a time."""
    tracer = _Tracer()
    record = value_batch(1, 100)
    threading.settrace(tracer.trace)  # for threads that start from here on
    try:
        with ExitStack() as stack:
            broker = stack.enter_context(Broker(on_disk=True))
            connection = stack.enter_context(Connection(broker.port))
            connection.create({"t": _PARTITIONS, "tail": 1})
            heartbeat = _steady_heartbeat(broker.port)
            counts = [_count(tracer, name, partial(connection.call, frame)) for name, frame in requests(record).items()]
            counts.append(_count(tracer, "ConsumerGroupHeartbeat, nothing new", partial(connection.call, heartbeat)))
            consumer = stack.enter_context(RawClient(f"127.0.0.1:{broker.port}"))
            tail = partial(
                _tail, tracer, consumer, Tailing("tail", 0, 0), partial(connection.call, produce("tail", [0], record))
            )
            counts.append(_count(tracer, "A fetch that waits, and the Produce that ends the wait", tail))
            sockets = [stack.enter_context(sock) for sock in connect(broker.port, 1)]
            batch = value_batch(100, 100, transactional=True)
            producer = Producers(broker.port, sockets, "t", _PARTITIONS, batch)
            stack.callback(producer.close)
            # One transaction: none follows when no time is left.
            counts.append(_count(tracer, "A transaction: Produce, EndTxn", partial(producer.run, 0.0)))
        return [*counts, *_count_with_acls(tracer, record)]
    finally:
        threading.settrace(None)


def _count_with_acls(tracer: _Tracer, record: bytes) -> list[Count]:
    """The same requests to a broker with an authorizer, which has some ACLs that concern the topic."""
    with Broker(on_disk=True, settings=_WITH_ACLS) as broker, Connection(broker.port) as connection:
        connection.create({"t": _PARTITIONS})
        acls = [
            AclCreation(
                ResourceType.TOPIC, name, pattern, principal, "*", Operation.READ + number % 2, Permission.ALLOW
            )
            for number, (name, pattern, principal) in enumerate(
                itertools.product(("t", "*"), PatternType, ("User:ANONYMOUS", "User:alice", "User:*"))
            )
            if pattern is not PatternType.MATCH
        ]
        with RawClient(f"127.0.0.1:{broker.port}") as admin:
            created = admin.call(CreateAclsRequest(acls), 3)
        assert not any(it.error_code for it in created.results)
        return [
            _count(tracer, f"{name}, with ACLs", partial(connection.call, frame))
            for name, frame in requests(record).items()
        ]


def _steady_heartbeat(port: int) -> bytes:
    """Returns the heartbeat of a member that has all partitions of `t`."""
    wait_for_coordinator(port, "readers")
    with ExitStack() as stack:
        sockets = [stack.enter_context(sock) for sock in connect(port, 1)]
        group = stack.enter_context(ConsumerGroup("readers", Subscription(_PARTITIONS, ["t"]), sockets))
        group.join(1)
        [request] = group.steady_requests()
        return encode(request)


def _tail(tracer: _Tracer, consumer: RawClient, tailing: Tailing, produce: Callable[[], object]) -> None:
    """Appends a record to a partition at whose end a consumer waits: it gets the record, and seeks behind it."""
    tracer.until_handled(lambda: consumer.send(tailing.frame))
    produce()
    [(base_offset, count)] = tailing.batches(bytearray(consumer.read_frame()))
    tailing.seek(base_offset + count)


def _count(tracer: _Tracer, name: str, request: Callable[[], object]) -> Count:
    for _ in range(_WARM_UP):
        request()
    tracer.counts.clear()
    tracer.counting = True
    for _ in range(ROUNDS):
        request()
    tracer.counting = False
    functions = [(code, number / ROUNDS) for code, number in tracer.counts.most_common()]
    return Count(
        name,
        sum(number for _, number in functions),
        [(f"{Path(code.co_filename).name}: {code.co_qualname}", number) for code, number in functions],
    )


def render(counts: list[Count], functions: int) -> str:
    """A table of the requests, and the dearest functions of each."""
    lines = ["| request | bytecodes |", "|---|--:|"]
    lines += [f"| {it.request} | {it.total:,.0f} |" for it in counts]
    for it in counts if functions else ():
        lines += ["", f"**{it.request}**", "", "| function | bytecodes |", "|---|--:|"]
        lines += [f"| {name} | {number:,.0f} |" for name, number in it.functions[:functions]]
    return "\n".join(lines)
