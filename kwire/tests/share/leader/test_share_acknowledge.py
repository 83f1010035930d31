"""ShareAcknowledge over connections: what becomes of records that a member has."""

from __future__ import annotations

import trio
import trio.testing
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from testkit.raw.share_requests import ACCEPT, RENEW, acquired
from testkit.share.leader.members import ShareGroup, set_group_config, with_group


def test_a_renewal_restarts_the_lock() -> None:
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
