"""The bytes of `__share_group_state`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import ProtocolError, UnsupportedVersion, uuid_from_text

from kwire.share.coordinator.batches import combined
from kwire.share.coordinator.records import Snapshot, Update, read_record
from kwire.share.coordinator.state import SharePartitionKey, StateBatch, StoredState

int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
keys = st.builds(SharePartitionKey, st.text(max_size=20), st.binary(min_size=16, max_size=16), int32s)
batches = st.lists(
    st.builds(StateBatch, int64s, int64s, st.integers(-128, 127), st.integers(-(2**15), 2**15 - 1)), max_size=4
)
states = st.builds(
    StoredState, int32s, int32s, int32s, int64s, int32s, batches.map(lambda it: combined((), it)), int64s, int64s
)
snapshots = st.builds(Snapshot, keys, st.none() | states)
updates = st.builds(Update, keys, int32s, int32s, int64s, int32s, batches.map(tuple))

KEY = SharePartitionKey("g", uuid_from_text("29OSbHfbQdu6zskB19vRhw"), 0)
NAMED = "000167dbd3926c77db41dbbacec901d7dbd18700000000"
"""The rest of its key in a record."""
WRITTEN_MS = 1_795_604_440_042


@pytest.mark.parametrize(
    ("change", "kind", "value"),
    [
        (
            Snapshot(KEY, StoredState(0, 0, 0, -1, -1, (), WRITTEN_MS, WRITTEN_MS)),
            "0000",
            "0000000000000000000000000000ffffffffffffffff000001a2125d63ea000001a2125d63ea0100",
        ),
        (
            Snapshot(
                KEY,
                StoredState(
                    5,
                    4,
                    5,
                    2,
                    -1,
                    (StateBatch(2, 4, 0, 1), StateBatch(5, 6, 0, 2), StateBatch(7, 14, 2, 1)),
                    WRITTEN_MS,
                    WRITTEN_MS,
                ),
            ),
            "0000",
            "0000"
            "00000005"
            "00000004"
            "00000005"
            "0000000000000002"
            "000001a2125d63ea"
            "000001a2125d63ea"
            "04"
            "0000000000000002"
            "0000000000000004"
            "00"
            "0001"
            "00"
            "0000000000000005"
            "0000000000000006"
            "00"
            "0002"
            "00"
            "0000000000000007"
            "000000000000000e"
            "02"
            "0001"
            "00"
            "00",
        ),
        (
            Update(KEY, 4, 5, 0, 3, (StateBatch(0, 9, 0, 1),)),
            "0001",
            "00000000000400000005000000000000000002000000000000000000000000000000090000010001000400000003",
        ),
        (Snapshot(KEY, None), "0000", None),
    ],
)
def test_records_are_written_as_kafka_4_writes_them(change: Snapshot | Update, kind: str, value: str | None) -> None:
    expected = None if value is None else bytes.fromhex(value)
    assert change.record() == (bytes.fromhex(kind + NAMED), expected)
    assert read_record(bytes.fromhex(kind + NAMED), expected) == change


@given(snapshots | updates)
def test_what_is_written_is_what_is_read(change: Snapshot | Update) -> None:
    assert read_record(*change.record()) == change


def test_a_tombstone_has_the_key_of_a_snapshot() -> None:
    key, value = Snapshot(KEY, None).record()
    assert (key[:2], value) == (b"\0\0", None)
    assert read_record(key, None) == Snapshot(KEY, None)
    assert read_record(b"\0\1" + key[2:], None) is None, "an update is never deleted"


def test_other_kinds_of_records_are_skipped() -> None:
    assert read_record(b"\0\2 whatever", b"") is None


def test_what_cannot_be_read_is_an_error() -> None:
    key, value = Update(KEY, 0, 0, 0, -1, ()).record()
    assert value is not None
    with pytest.raises(UnsupportedVersion):
        read_record(key, b"\0\1" + value[2:])
    for cut in range(len(value) - 1):
        with pytest.raises(ProtocolError):
            read_record(key, value[:cut])
    for cut in range(2, len(key) - 1):
        with pytest.raises(ProtocolError):
            read_record(key[:cut], value)


ID = "29OSbHfbQdu6zskB19vRhw"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "g",
        f"g:{ID}",
        f"g:{ID}:",
        f"g:{ID}:x",
        "g:1:1",
        f":{ID}:0",
        f" :{ID}:0",
        f"g:{ID}:{2**31}",
        "g:?:" + "9" * 9999,
    ],
)
def test_a_key_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(KafkaError):
        SharePartitionKey.parse(text)


@given(keys)
def test_a_key_is_read_from_its_text(key: SharePartitionKey) -> None:
    if key.group_id.strip():
        assert SharePartitionKey.parse(key.text) == key
