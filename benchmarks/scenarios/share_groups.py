"""Share groups of KIP-932: records fetched and accepted, redelivery after a lock's end, and the share coordinator.

Members send raw requests (`load/share_members.py`). Sessions do not end while another broker has its turn: they last an
hour. All else that differs from the brokers' defaults is in a scenario's settings.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from itertools import count

from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest, InitializeStateData
from kwire_protocol.messages.initialize_share_group_state import PartitionData as NewState
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.write_share_group_state import (
    PartitionData,
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from kwire_protocol.wire import Uuid, uuid_to_text

from benchmarks.bench import Bench, Figures, Round, latencies, scenario, work
from benchmarks.load.answers import check_produce, check_write_share_state
from benchmarks.load.connection import Connection
from benchmarks.load.members import wait_for_coordinator
from benchmarks.load.replay import Replayer
from benchmarks.load.requests import encode, numbered, produce, value_batch
from benchmarks.load.share_members import ShareGroup, wait_until_served

CONSUMERS, PARTITIONS = 10, 10
RECORDS, RECORDS_OF_BATCH, VALUE_BYTES = 1_000_000, 100, 100
LOCK_MS, REDELIVERIES = 1_000, 10
REDELIVERY_WAIT_MS = 10_000
WRITERS, SHARE_PARTITIONS = 8, 64
SHARE, FIND_VERSION = 2, 6

HOUR_MS = "3600000"
LONG_SESSIONS = {"group.share.max.session.timeout.ms": HOUR_MS, "group.share.session.timeout.ms": HOUR_MS}
SHORT_LOCKS = {"group.share.min.record.lock.duration.ms": "1000", "group.share.record.lock.duration.ms": str(LOCK_MS)}

_numbers = count()


def _group(bench: Bench, members: int, partitions: int) -> ShareGroup:
    """A new group that has joined, and fetches a topic of its own."""
    number = next(_numbers)
    name, topic = f"share-{number}", f"shared-{number}"
    bench.create({topic: partitions})
    wait_for_coordinator(bench.broker.port, name)
    group = ShareGroup(name, topic, _topic_id(bench, topic), bench.connect(members))
    group.join(partitions)
    return group


def _topic_id(bench: Bench, topic: str) -> Uuid:
    with Connection(bench.broker.port) as connection:
        (found,) = connection.request(MetadataRequest([MetadataRequestTopic(name=topic)])).topics
    topic_id: Uuid = found.topic_id
    return topic_id


def _produce(bench: Bench, group: ShareGroup, partitions: int, batches: int, batch: bytes) -> None:
    """So many batches to each partition."""
    frame = produce(group.topic, range(partitions), batch)
    replayer = Replayer(bench.connect(1), numbered([frame] * 64), check_produce(group.topic, partitions), depth=2)
    try:
        replayer.send(batches)
    finally:
        replayer.close()


@scenario(
    "share-consume",
    f"{CONSUMERS} members of a share group fetch and accept {RECORDS:,} records of {VALUE_BYTES} bytes from "
    f"{PARTITIONS} partitions, {RECORDS_OF_BATCH} in a batch",
    settings=LONG_SESSIONS,
)
def share_consume(bench: Bench) -> Round:
    partitions = bench.options.scaled(PARTITIONS)
    group = _group(bench, bench.options.scaled(CONSUMERS), partitions)
    batch = value_batch(RECORDS_OF_BATCH, VALUE_BYTES)

    def consume(batches: int) -> Figures:
        _produce(bench, group, partitions, batches, batch)
        bench.drop_cached()
        records = batches * partitions * RECORDS_OF_BATCH
        start = bench.meter.read()
        group.consume(records)
        return work(bench.meter.since(start), records=records)

    batches = bench.options.scaled(RECORDS // PARTITIONS // RECORDS_OF_BATCH)
    warmed, start = 0.0, time.monotonic()
    while warmed < bench.options.warm_cpu_s and time.monotonic() - start < bench.options.warm_s:
        before = bench.meter.read()
        consume(batches)
        warmed += bench.meter.since(before).cpu_s
    return lambda: consume(batches)


@scenario(
    "share-redelivery",
    f"a record whose lock of {LOCK_MS:,} ms ends goes to another member: how long after that end; "
    f"median of {REDELIVERIES}",
    settings=LONG_SESSIONS | SHORT_LOCKS,
)
def share_redelivery(bench: Bench) -> Round:
    group = _group(bench, 2, 1)
    holder, taker = group.members
    batch = value_batch(1, VALUE_BYTES)

    def measure() -> Figures:
        late_ms = []
        for _ in range(bench.options.scaled(REDELIVERIES)):
            _produce(bench, group, 1, 1, batch)
            while not group.fetch(holder, max_records=1):
                pass
            held_s = time.monotonic()
            group.begin_fetch(taker, wait_ms=REDELIVERY_WAIT_MS, max_records=1)
            got = group.take(taker, taker.await_reply())
            late_ms.append((time.monotonic() - held_s) * 1e3 - LOCK_MS if got else REDELIVERY_WAIT_MS)
            holder.fetched = {}  # its lock is over
            if got:
                group.accept(taker)
        return {"redelivered_after_ms": statistics.median(late_ms), "last_redelivered_after_ms": max(late_ms)}

    return measure


@scenario(
    "share-state",
    f"WriteShareGroupState: {SHARE_PARTITIONS} share-partitions in turn, on {WRITERS} connections, one in flight on "
    "each",
)
def share_state(bench: Bench) -> Round:
    bench.create({"t": bench.options.scaled(SHARE_PARTITIONS)})
    topic_id = _topic_id(bench, "t")
    partitions = range(bench.options.scaled(SHARE_PARTITIONS))
    with Connection(bench.broker.port) as connection:
        for partition in partitions:
            wait_until_served(partial(_found, connection, f"g:{uuid_to_text(topic_id)}:{partition}"))
            wait_until_served(partial(_initialized, connection, topic_id, partition))
    requests = numbered(encode(_write(topic_id, partition)) for partition in partitions)
    check = check_write_share_state(topic_id)
    bench.warm(requests, check)

    def measure() -> Figures:
        played = bench.replay(requests, check, connections=bench.options.scaled(WRITERS), depth=1)
        return work(played.usage, requests=played.requests) | latencies(played.latencies_ns)

    return measure


def _found(connection: Connection, key: str) -> int:
    answer = connection.request(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), FIND_VERSION)
    code: int = answer.coordinators[0].error_code
    return code


def _initialized(connection: Connection, topic_id: Uuid, partition: int) -> int:
    state = InitializeStateData(topic_id, [NewState(partition, 0, 0)])
    answer = connection.request(InitializeShareGroupStateRequest("g", [state]))
    code: int = answer.results[0].partitions[0].error_code
    return code


def _write(topic_id: Uuid, partition: int) -> WriteShareGroupStateRequest:
    """Returns the write after a fetch of 500 records: some before are accepted, these are acquired."""
    batches = [StateBatch(0, 499, 2, 1), StateBatch(500, 999, 0, 1)]
    state = PartitionData(partition, 0, 0, 0, 500, batches)
    return WriteShareGroupStateRequest("g", [WriteStateData(topic_id, [state])])
