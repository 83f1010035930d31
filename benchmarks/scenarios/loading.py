"""A start on many committed offsets: the cost of loading the groups for other requests."""

from __future__ import annotations

import time

from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.list_groups import ListGroupsRequest
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from benchmarks.bench import Bench, Figures, Round, latencies, scenario
from benchmarks.load.answers import BadAnswer, check_produce
from benchmarks.load.connection import Connection
from benchmarks.load.replay import Replayer, percentiles_ms
from benchmarks.scenarios.raw import small_produce

GROUPS, OFFSETS = 10_000, 100
LOOK_EVERY_S = 0.2
LOADED_WITHIN_S = 300.0

_COORDINATOR_LOAD_IN_PROGRESS = 14
_COORDINATOR_ERRORS = (_COORDINATOR_LOAD_IN_PROGRESS, 15, 16)


@scenario(
    "load-offsets",
    f"a stop, and a start on {GROUPS * OFFSETS:,} committed offsets; raw-rtt until all are loaded, and after that",
)
def load_offsets(bench: Bench) -> Round:
    groups = bench.options.scaled(GROUPS)
    bench.create({"read": OFFSETS, "t": 1})
    with Connection(bench.broker.port) as connection:
        connection.request_until_accepted(FindCoordinatorRequest(key="group-0"))
        for number in range(groups):
            _commit(connection, f"group-{number}")
    bench.drop_cached()
    # Each round starts another process, the last of which is stopped before its data goes.
    bench.keep.callback(lambda: bench.broker.stop())

    def measure() -> Figures:
        bench.broker.stop()
        bench.broker = bench.lab.start(bench.spec, bench.broker.root)
        began_s = time.monotonic()
        beside_ns: list[int] = []
        with Connection(bench.broker.port) as connection:
            while not _lists(connection, groups):
                beside_ns += _produce(bench, LOOK_EVERY_S)
                if time.monotonic() > began_s + LOADED_WITHIN_S:
                    raise BadAnswer(f"the groups were not loaded within {LOADED_WITHIN_S:.0f} s")
        load_s = bench.broker.startup_s + time.monotonic() - began_s
        alone_ns = _produce(bench, bench.options.run_s)
        # A broker that had loaded all when it first answered held nobody up afterwards.
        figures = latencies(beside_ns or alone_ns)
        alone_p99_ms, alone_worst_ms = percentiles_ms(alone_ns, 0.99, 1.0)
        return figures | {
            "restart_s": bench.broker.startup_s,
            "load_s": load_s,
            "worst_ms": max(beside_ns or alone_ns) / 1e6,
            "alone_p99_ms": alone_p99_ms,
            "alone_worst_ms": alone_worst_ms,
        }

    return measure


def _produce(bench: Bench, seconds: float) -> list[int]:
    """Latencies of small requests, one at a time."""
    (sock,) = sockets = bench.connect(1)
    replayer = Replayer(sockets, small_produce(), check_produce("t", 1), 1)
    try:
        return list(replayer.measure(bench.meter, lead_s=0.0, run_s=seconds).latencies_ns)
    finally:
        replayer.close()
        sock.close()


def _commit(connection: Connection, group: str) -> None:
    offsets = [OffsetCommitRequestPartition(index, committed_offset=index) for index in range(OFFSETS)]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic("read", partitions=offsets)])
    deadline_s = time.monotonic() + LOADED_WITHIN_S
    while True:
        errors = {it.error_code for topic in connection.request(request).topics for it in topic.partitions}
        if errors == {0}:
            return
        if not errors <= set(_COORDINATOR_ERRORS) or time.monotonic() > deadline_s:
            raise BadAnswer(f"OffsetCommit: {errors}")


def _lists(connection: Connection, groups: int) -> bool:
    """Returns whether the broker has loaded all groups: before that, it does not list any."""
    answer = connection.request(ListGroupsRequest())
    if answer.error_code == _COORDINATOR_LOAD_IN_PROGRESS:
        return False
    if answer.error_code:
        raise BadAnswer(f"ListGroups: {answer.error_code}")
    return len(answer.groups) >= groups
