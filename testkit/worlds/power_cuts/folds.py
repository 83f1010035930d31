"""The state that follows from the records of a log alone, computed a second time: committed offsets, and visible
records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.offset_fetch import OffsetFetchRequestGroup
from kwire_protocol.records import Record, iter_records, read_header
from kwire_storage.producers.markers import decode_marker

from kwire.groups.offsets.records import read_offset
from kwire.names.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kwire.node.broker import Broker
from kwire.replicas.partition import Partition
from kwire.runtime.futures import at_once
from kwire.transactions.records import read_record as read_transaction_record
from kwire.transactions.transaction import COMPLETE, TransactionState
from testkit.scenes.direct.broker_driver import BrokerDriver
from testkit.scenes.direct.reading import read_all, visible
from testkit.scenes.partition_files import log_files
from testkit.worlds.power_cuts.checking import contents
from testkit.worlds.power_cuts.history import Batch

GROUPS = ("g", "h", "later")


def is_of_a_restart(topic: str, batch: Batch) -> bool:
    """True if a restart may append it by itself: it completes prepared transactions, and aborts overdue ones."""
    if topic != TRANSACTION_STATE:
        return read_header(batch.data).is_control
    changes = [read_transaction_record(bytes(it.key or b""), bytes(it.value or b"")) for it in _records(batch)]
    states = [it.transaction.state for it in changes if it is not None and it.transaction is not None]
    return len(states) == len(changes) and set(states) <= {*COMPLETE, TransactionState.PREPARE_ABORT}


def _records(batch: Batch) -> list[Record]:
    return list(iter_records(memoryview(batch.data)))


def decided(partition: Partition) -> Iterator[tuple[list[Record], bool | None]]:
    """The records of each batch that can be read, and whether they are committed: None if their transaction is open.

    They come in the order in which they are decided.
    """
    pending: defaultdict[int, list[list[Record]]] = defaultdict(list)
    for batch in contents(log_files(partition)):
        if batch.base >= partition.high_watermark:
            break
        header = read_header(batch.data)
        if header.is_control:
            marker = decode_marker(batch.data, 0, header)
            for records in pending.pop(header.producer_id, []):
                yield records, marker is not None and marker.committed
        elif header.is_transactional:
            pending[header.producer_id].append(_records(batch))
        else:
            yield _records(batch), True
    for batches in pending.values():
        for records in batches:
            yield records, None


def check_offsets(broker: Broker) -> None:
    """Checks that the groups' offsets are the fold over the records of `__consumer_offsets`, of which the last one
    counts.
    """
    newest: dict[tuple[str, str, int], tuple[int, int | None]] = {}
    unstable = set()
    for partition in broker.partitions:
        if partition.topic != CONSUMER_OFFSETS:
            continue
        for records, committed in decided(partition):
            for record in records:
                change = read_offset(bytes(record.key or b""), None if record.value is None else bytes(record.value))
                if change is None or committed is False:
                    continue
                key = change.group_id, change.topic, change.partition
                offset = None if change.offset is None else change.offset.offset
                if committed is None:
                    unstable.add(key)
                elif record.offset > newest.get(key, (-1, None))[0]:
                    newest[key] = record.offset, offset
    for group_id in GROUPS:
        expected = {key: offset for key, (_, offset) in newest.items() if key[0] == group_id and offset is not None}
        answered = {key: offset for key, (offset, _) in _answers(broker, group_id, stable=False).items() if offset >= 0}
        assert answered == expected, f"group {group_id}"
        held = {key for key, (_, error) in _answers(broker, group_id, stable=True).items() if error}
        # As in Kafka, a response with all offsets does not contain those that were never committed.
        assert held == unstable & expected.keys(), f"group {group_id}: pending offsets"


def _answers(broker: Broker, group_id: str, *, stable: bool) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Offset and error of each partition."""
    try:
        at_once(broker.groups.runtime.coordinator_of(group_id))
        answer = broker.groups.fetch_offsets(OffsetFetchRequestGroup(group_id, topics=None), require_stable=stable)
    except KafkaError as error:
        raise AssertionError(f"group {group_id}: {error}") from error
    answers = {
        (group_id, topic.name, it.partition_index): (it.committed_offset, it.error_code)
        for topic in answer.topics
        for it in topic.partitions
    }
    assert {error for _, error in answers.values()} <= {ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT}
    return answers


def committed_values(partition: Partition) -> list[bytes]:
    return [bytes(it.value or b"") for records, committed in decided(partition) if committed for it in records]


def check_readers(driver: BrokerDriver, partition: Partition) -> list[bytes]:
    """A read_committed reader is given what is committed below the first open transaction; returns the values."""
    start = partition.log_start_offset
    end = partition.high_watermark
    expected = []
    for records, committed in decided(partition):
        if committed is None:
            end = min(end, records[0].offset)
        elif committed:
            expected += [(it.offset, bytes(it.value or b"")) for it in records if it.offset >= start]
    assert partition.last_stable_offset == end, f"{partition.topic}: stable up to {partition.last_stable_offset}"
    seen, offset = [], start
    for fetched in read_all(driver, (partition.topic, partition.index), start, committed=True):
        seen += [(it.offset, bytes(it.value or b"")) for it in visible(fetched, offset)]
        offset = fetched.end or offset
    assert offset == end, f"{partition.topic}: readers are stuck at {offset}, and {end} is stable"
    assert seen == sorted(it for it in expected if it[0] < end), f"{partition.topic}: what readers are given"
    return [value for _, value in seen]
