"""ShareAcknowledge over connections: what becomes of records that a member has."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kwire_protocol.wire import Uuid

from kwire.share.coordinator.state import StateBatch
from kwire.share.leader.states import ACKNOWLEDGED, ARCHIVED, AVAILABLE
from kwire.tests.share.leader.members import ShareGroup, set_group_config, with_group
from kwire.tests.share.leader.share_requests import ACCEPT, GAP, REJECT, RELEASE, RENEW, acquired, partition_of


@pytest.mark.parametrize("version", [1, 2])
def test_each_record_has_its_own_acknowledgement(version: int) -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a", b"b", b"c", b"d")
        member = await group.member()
        member.version = version
        assert await member.get() == [(0, 3, 1)]
        answer = await member.acknowledge((0, 3, [ACCEPT, RELEASE, REJECT, GAP]))
        assert answer.error_code == partition_of(answer).error_code == E.NONE
        assert answer.acquisition_lock_timeout_ms == (30_000 if version == 2 else 0)
        assert (await group.stored()).batches == (
            StateBatch(0, 0, ACKNOWLEDGED, 1),
            StateBatch(1, 1, AVAILABLE, 1),
            StateBatch(2, 3, ARCHIVED, 1),
        )
        assert await member.get() == [(1, 1, 2)]

    with_group(story)


def test_a_renewal_begins_the_lock_anew() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        member = await group.member()
        assert await member.get() == [(0, 0, 1)]
        for _ in range(3):
            await trio.sleep(20)
            assert await member.ack((0, 0, RENEW), is_renewal=True) == E.NONE
        assert await member.ack((0, 0, RENEW)) == E.INVALID_REQUEST
        await trio.sleep(31)
        assert await member.ack((0, 0, ACCEPT)) == E.INVALID_RECORD_STATE

    with_group(story)


def test_a_group_may_forbid_renewals() -> None:
    async def story(group: ShareGroup) -> None:
        await set_group_config(group.producer, share_renew_acknowledge_enable="false")
        await group.produce(b"a")
        member = await group.member()
        assert await member.get() == [(0, 0, 1)]
        assert await member.ack((0, 0, RENEW), is_renewal=True) == E.INVALID_RECORD_STATE
        assert await member.ack((0, 0, ACCEPT), is_renewal=True) == E.NONE

    with_group(story)


def test_one_member_cannot_acknowledge_what_another_one_has() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        first, second = await group.member("a"), await group.member("b")
        assert await first.get() == [(0, 0, 1)]
        assert await second.get() == []
        assert await second.ack((0, 0, ACCEPT)) == E.INVALID_RECORD_STATE
        assert await first.ack((0, 0, ACCEPT)) == E.NONE

    with_group(story)


def test_batches_that_are_not_valid_are_errors_of_the_partition() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a", b"b")
        member = await group.member()
        assert await member.get() == [(0, 1, 1)]
        for first, last, kind in ((1, 0, [ACCEPT]), (0, 1, [ACCEPT] * 3), (0, 1, []), (0, 1, [9])):
            assert await member.ack((first, last, kind)) == E.INVALID_REQUEST
        assert await member.ack((0, 1, ACCEPT)) == E.NONE

    with_group(story)


def test_the_session_must_be_open_and_in_its_epoch() -> None:
    async def story(group: ShareGroup) -> None:
        member = await group.member()
        assert (await member.acknowledge((0, 0, ACCEPT))).error_code == E.INVALID_SHARE_SESSION_EPOCH
        assert (await member.acknowledge((0, 0, ACCEPT))).error_code == E.SHARE_SESSION_NOT_FOUND
        member.epoch = 0
        await member.get()
        member.epoch = 5
        assert (await member.acknowledge((0, 0, ACCEPT))).error_code == E.INVALID_SHARE_SESSION_EPOCH

    with_group(story)


def test_the_last_request_acknowledges_and_releases_the_rest() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a", b"b")
        first, second = await group.member("a"), await group.member("b")
        assert await first.get() == [(0, 1, 1)]
        first.epoch = -1
        assert await first.ack((0, 0, ACCEPT)) == E.NONE
        assert acquired(await second.fetch()) == [(1, 1, 2)]
        first.epoch = 1
        assert (await first.acknowledge((0, 0, ACCEPT))).error_code == E.SHARE_SESSION_NOT_FOUND

    with_group(story)


def test_partitions_that_are_not_there_or_were_not_fetched_are_errors() -> None:
    async def story(group: ShareGroup) -> None:
        member = await group.member()
        await member.fetch([7])
        assert await member.ack((0, 0, ACCEPT)) == E.UNKNOWN_TOPIC_OR_PARTITION
        member.topic_id = Uuid(b"\x07" * 16)
        assert await member.ack((0, 0, ACCEPT)) == E.UNKNOWN_TOPIC_ID

    with_group(story)


def test_an_acknowledgement_wakes_a_fetch_only_when_there_is_room_again() -> None:
    async def story(group: ShareGroup) -> None:
        await set_group_config(group.producer, share_partition_max_record_locks="100")
        await group.produce(*[b"a"] * 100)
        await group.produce(b"b")
        first, second = await group.member("a"), await group.member("b")
        assert await first.get() == [(0, 99, 1)]
        await second.send_fetch(max_wait_ms=20_000)
        await trio.testing.wait_all_tasks_blocked()
        assert await first.ack((0, 99, ACCEPT)) == E.NONE
        before = trio.current_time()
        assert acquired(await second.answer()) == [(100, 100, 1)]
        assert trio.current_time() - before < 1

    with_group(story)


async def set_share_version(group: ShareGroup, level: int) -> None:
    upgrade, downgrade = 1, 2
    key = FeatureUpdateKey("share.version", level, upgrade_type=upgrade if level else downgrade)
    update = UpdateFeaturesRequest(feature_updates=[key])
    assert (await group.producer.call(update, 1)).error_code == E.NONE


def test_sessions_end_when_share_groups_are_turned_off_and_records_come_back() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        member = await group.member()
        assert await member.get() == [(0, 0, 1)]
        await set_share_version(group, 0)
        for answer in (await member.fetch(), await member.acknowledge((0, 0, ACCEPT))):
            assert answer.error_code == E.UNSUPPORTED_VERSION
        await set_share_version(group, 1)
        assert (await member.acknowledge((0, 0, ACCEPT))).error_code == E.SHARE_SESSION_NOT_FOUND
        assert await (await group.member("b")).get() == [(0, 0, 2)]

    with_group(story)
