"""The bytes of `__consumer_offsets`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.internal.consumer_offsets import GroupMetadataValue, MemberMetadata
from kwire_protocol.wire import ProtocolError

from kwire.groups.classic.records import GroupChange, read_group
from kwire.groups.offsets.records import CommittedOffset, OffsetChange, read_offset
from testkit.groups.shard_driver import GROUP, ShardDriver

names = st.text(max_size=20)
int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
blobs = st.binary(max_size=20)

committed = st.builds(
    CommittedOffset,
    offset=int64s,
    leader_epoch=int32s,
    metadata=names,
    commit_timestamp_ms=int64s,
    topic_id=st.binary(min_size=16, max_size=16),
)
committed_with_expiry = st.builds(
    CommittedOffset,
    offset=int64s,
    leader_epoch=st.just(-1),
    metadata=names,
    commit_timestamp_ms=int64s,
    expire_timestamp_ms=st.integers(0, 2**63 - 1),
)
members = st.builds(
    MemberMetadata,
    member_id=names,
    group_instance_id=st.none() | names,
    client_id=names,
    client_host=names,
    rebalance_timeout=int32s,
    session_timeout=int32s,
    subscription=blobs,
    assignment=blobs,
)
groups = st.builds(
    GroupMetadataValue,
    protocol_type=names,
    generation=int32s,
    protocol=st.none() | names,
    leader=st.none() | names,
    current_state_timestamp=int64s,
    members=st.lists(members, max_size=3),
)


@given(
    st.builds(
        OffsetChange,
        group_id=names,
        topic=names,
        partition=int32s,
        offset=st.none() | committed | committed_with_expiry,
    )
)
def test_an_offset_is_read_as_it_was_written(change: OffsetChange) -> None:
    assert read_offset(*change.record()) == change


@given(st.builds(GroupChange, group_id=names, value=st.none() | groups))
def test_a_group_is_read_as_it_was_written(change: GroupChange) -> None:
    assert read_group(*change.record()) == change
    assert read_offset(*change.record()) is None


def test_an_offset_is_written_as_kafka_4_writes_it() -> None:
    offset = CommittedOffset(5, 2, "m", 1_000)
    key, value = OffsetChange("g", "t", 3, offset).record()
    assert key == b"\0\1\0\1g\0\1t\0\0\0\3"
    assert value == b"\0\4" + (5).to_bytes(8, "big") + b"\0\0\0\2\2m" + (1_000).to_bytes(8, "big") + b"\0"


def test_an_offset_with_its_own_expiry_is_written_in_the_version_that_has_one() -> None:
    offset = CommittedOffset(5, 2, "m", 1_000, expire_timestamp_ms=2_000)
    _, value = OffsetChange("g", "t", 3, offset).record()
    expected = b"\0\1" + (5).to_bytes(8, "big") + b"\0\1m" + (1_000).to_bytes(8, "big") + (2_000).to_bytes(8, "big")
    assert value == expected


def test_a_group_is_written_as_kafka_4_writes_it() -> None:
    key, value = GroupChange("g", GroupMetadataValue("consumer", 4, "range", "m", 1_000)).record()
    assert key == b"\0\2\0\1g"
    assert value == (b"\0\3\0\x08consumer\0\0\0\4\0\5range\0\1m" + (1_000).to_bytes(8, "big") + b"\0\0\0\0")


def test_removals_are_tombstones() -> None:
    assert OffsetChange("g", "t", 3, None).record()[1] is None
    assert GroupChange("g", None).record() == (b"\0\2\0\1g", None)


def test_offsets_of_the_first_kafka_brokers_are_read() -> None:
    key = b"\0\0\0\1g\0\1t\0\0\0\3"
    value = b"\0\0" + (5).to_bytes(8, "big") + b"\0\1m" + (1_000).to_bytes(8, "big")
    assert read_offset(key, value) == OffsetChange("g", "t", 3, CommittedOffset(5, -1, "m", 1_000))


def test_records_of_other_group_types_are_passed_over() -> None:
    driver = ShardDriver()
    driver.shard.apply(b"\0\3\0\1g", b"\0\0\0\0\0\1\0")
    assert driver.groups == {}


@pytest.mark.parametrize(("key", "value"), [(b"", None), (b"\0\1\0\5g", None), (b"\0\2\0\1g", b"\0\3\0")])
def test_torn_records_are_distinguished_from_records(key: bytes, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        ShardDriver().shard.apply(key, value)


def test_a_group_whose_record_has_no_rebalance_timeouts_uses_the_session_timeouts() -> None:
    driver = ShardDriver()
    member = MemberMetadata("m", None, "c", "/h", -1, 7_000, b"", b"")
    driver.shard.apply(*GroupChange(GROUP, GroupMetadataValue("consumer", 1, "range", "m", -1, [member])).record())
    assert driver.groups[GROUP].rebalance_timeout_ms == 7_000
