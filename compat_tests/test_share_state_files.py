"""The files of a share coordinator, read by Kafka's DumpLogSegments and by kwire's machine alike."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.records import iter_records
from kwire_protocol.wire import uuid_to_text

from kwire.share.coordinator.config import ShareStateConfig
from kwire.share.coordinator.records import Change, Snapshot, Update, read_record
from kwire.share.coordinator.shard import ShareStateShard
from kwire.share.coordinator.state import SharePartitionKey
from testkit.java.dumps import dump
from testkit.java.java_host import JavaHost
from testkit.raw import topics
from testkit.raw.share_states import Batch, SharePartition, share_partition
from testkit.servers.brokers import RestartableBroker

Answers = dict[SharePartitionKey, tuple[int, int, list[Batch]]]
"""State epoch, start offset and batches."""

_BATCH_OVERHEAD = 12


@attrs.frozen
class Left:
    """The log dir of a broker that was stopped, and what it had answered before that."""

    data_dir: Path
    answers: Answers

    def logs(self) -> list[Path]:
        return sorted(self.data_dir.glob("__share_group_state-*/*.log"))


def use(state: SharePartition) -> None:
    """Snapshots, updates, another leader, a reset, a tombstone."""
    assert state.initialize(start_offset=-1) == E.NONE
    assert state.write((0, 9, 0, 1), start_offset=0, complete=0) == E.NONE
    assert state.delete() == E.NONE
    assert state.initialize(state_epoch=1, start_offset=3) == E.NONE
    assert state.read(leader_epoch=2).error_code == E.NONE
    for number in range(9):
        batches = [(10 * number + 3, 10 * number + 7, 2, 1), (10 * number + 5, 10 * number + 9, 0, 2)]
        assert state.write(*batches, state_epoch=1, leader_epoch=2, start_offset=-1, complete=number) == E.NONE
    assert state.write(state_epoch=1, leader_epoch=2, start_offset=16, complete=-1) == E.NONE


@pytest.fixture(scope="module")
def left(restartable_broker: RestartableBroker) -> Iterator[Left]:
    broker = restartable_broker
    topics.create(broker.bootstrap, "dumped-shares")
    answers: Answers = {}
    for group in ("dumped-a", "dumped-b", "dumped-c"):
        with share_partition(broker.bootstrap, group, "dumped-shares") as state:
            use(state)
            if group == "dumped-b":
                assert state.initialize(state_epoch=2, start_offset=44) == E.NONE
            if group == "dumped-c":
                assert state.delete() == E.NONE
            else:
                result = state.read()
                key = SharePartitionKey(state.group, state.topic_id, state.partition)
                answers[key] = (result.state_epoch, result.start_offset, state.batches())
    broker.stop()
    yield Left(broker.data_dir, answers)
    broker.start()


def changes(log: Path) -> Iterator[tuple[int, tuple[bytes, bytes | None], Change]]:
    """Yields the offset of each record, its key and value, and the change that they encode."""
    data = memoryview(log.read_bytes())
    while data:
        size = int.from_bytes(data[8:12], "big") + _BATCH_OVERHEAD
        for record in iter_records(data[:size], max_decompressed_bytes=1 << 20):
            raw = bytes(record.key or b""), None if record.value is None else bytes(record.value)
            change = read_record(*raw)
            assert change is not None
            yield record.offset, raw, change
        data = data[size:]


def test_what_is_read_is_written_again_byte_for_byte(left: Left) -> None:
    read = [(raw, change) for log in left.logs() for _, raw, change in changes(log)]
    assert {type(change) for _, change in read} == {Snapshot, Update}
    for raw, change in read:
        assert change.record() == raw


def test_a_shard_that_replays_the_log_has_what_the_broker_returned(left: Left) -> None:
    found: Answers = {}
    for log in left.logs():
        shard = ShareStateShard(ShareStateConfig(), partition_count=lambda _: None)
        for offset, (key, value), _ in changes(log):
            shard.apply(key, value, -1, offset=offset)
        for name, entry in shard._entries.items():
            state = entry.state
            found[name] = (state.state_epoch, state.start_offset, [(*batch,) for batch in state.batches])
    assert {name: it for name, it in found.items() if name.group_id.startswith("dumped-")} == left.answers


def test_kafkas_tool_reads_the_same(left: Left, java: JavaHost) -> None:
    compared = 0
    for log in left.logs():
        output = dump(java, [log], "--deep-iteration", "--share-group-state-decoder")
        lines = re.findall(r"^\| offset: (\d+) .* key: (\{.*\}) payload: (.*)$", output, re.MULTILINE)
        read = list(changes(log))
        assert len(lines) == len(read)
        for (offset, key, payload), (our_offset, _, change) in zip(lines, read, strict=True):
            assert int(offset) == our_offset
            assert json.loads(key) == {
                "type": str(int(isinstance(change, Update))),
                "data": {
                    "groupId": change.key.group_id,
                    "topicId": uuid_to_text(change.key.topic_id),
                    "partition": change.key.partition,
                },
            }
            if isinstance(change, Snapshot) and change.state is None:
                assert payload == "<DELETE>"
            else:
                assert json.loads(payload)["data"] == fields(change)
            compared += 1
    assert compared > 3 * 13


def fields(change: Change) -> dict[str, Any]:
    """Returns the fields as the tool prints them."""
    if isinstance(change, Update):
        source: Any = change
        own: dict[str, Any] = {"snapshotEpoch": change.snapshot_epoch}
    else:
        assert change.state is not None
        source = change.state
        own = {
            "snapshotEpoch": source.snapshot_epoch,
            "stateEpoch": source.state_epoch,
            "createTimestamp": source.created_ms,
            "writeTimestamp": source.written_ms,
        }
    if source.delivery_complete_count != -1:
        own["deliveryCompleteCount"] = source.delivery_complete_count
    return own | {
        "leaderEpoch": source.leader_epoch,
        "startOffset": source.start_offset,
        "stateBatches": [
            {"firstOffset": first, "lastOffset": last, "deliveryState": state, "deliveryCount": count}
            for first, last, state, count in source.batches
        ],
    }
