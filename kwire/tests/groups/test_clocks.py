"""A wall clock that is set while groups are alive: waits are not affected; times from the log are."""

from __future__ import annotations

import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from kwire.groups.config import GroupConfig
from testkit.groups.shard_driver import ShardDriver
from testkit.scenes.broker_in_trio import START_MS, InTrio, TrioClock, with_broker

HOUR_MS = 3_600_000
JUMPS = pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])


@JUMPS
def test_sessions_do_not_follow_the_wall_clock(jump_ms: int) -> None:
    driver = ShardDriver()
    one, two = driver.stable_group("one", "two", session_timeout_ms=10_000)
    driver.advance(5_000)
    driver.wall_ahead_ms = jump_ms
    assert driver.heartbeat(one, 1) == ErrorCode.NONE
    driver.advance(4_999)
    assert driver.heartbeat(one, 1) == ErrorCode.NONE
    assert set(driver.groups["readers"].members) == {one, two}
    driver.advance(1)
    assert set(driver.groups["readers"].members) == {one}, "the other one has been silent for its 10 s"


@JUMPS
def test_a_rebalance_takes_as_long_as_it_takes(jump_ms: int) -> None:
    driver = ShardDriver()
    one, _ = driver.stable_group("one", "two", rebalance_timeout_ms=60_000, session_timeout_ms=60_000)
    driver.advance(10_000)
    waiting = driver.join(one, protocols={"range": b"another"})
    driver.wall_ahead_ms = jump_ms
    driver.advance(49_999)
    assert not driver.is_answered(waiting)
    driver.advance(10_001)
    assert driver.joined(waiting).generation_id == 2


def test_offsets_expire_by_the_wall_clock() -> None:
    driver = ShardDriver(GroupConfig(offsets_retention_ms=HOUR_MS, offsets_retention_check_interval_ms=1_000))
    driver.commit({("t", 0): 7})
    driver.advance(2_000)
    assert driver.offset("t", 0) == 7
    driver.wall_ahead_ms = HOUR_MS
    driver.advance(1_000)
    assert driver.offset("t", 0) == -1


def test_an_older_client_sets_for_how_long_its_offsets_are_kept() -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        topics = [OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(0, 7)])]
        await kwire.call(OffsetCommitRequest("g", retention_time_ms=1_000, topics=topics), 4)
        shard = next(shard for _, shard in kwire.broker.groups.runtime.in_service() if shard.groups)
        ((_, _, offset),) = shard._offsets.store.of_group("g")
        assert offset.expire_timestamp_ms == START_MS + 1_000

    with_broker(scenario)


def test_a_broker_whose_wall_clock_is_set_keeps_its_members() -> None:
    async def scenario(kwire: InTrio) -> None:
        clock = kwire.broker.clock
        assert isinstance(clock, TrioClock)
        protocols = [JoinGroupRequestProtocol("range", b"")]
        answer = await kwire.call(JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", protocols), 3)
        heartbeat = HeartbeatRequest("g", 1, answer.member_id)
        for jump_ms in (HOUR_MS, -HOUR_MS):
            clock.wall_ahead_ms = jump_ms
            await trio.sleep(9.9)
            assert (await kwire.call(heartbeat, 4)).error_code == ErrorCode.NONE
        await trio.sleep(10.1)
        assert (await kwire.call(heartbeat, 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    with_broker(scenario)
