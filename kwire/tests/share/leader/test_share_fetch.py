"""ShareFetch over connections: what a member gets, and when."""

from __future__ import annotations

import trio
import trio.testing
from kwire_protocol.errors import ErrorCode as E

from kwire.share.coordinator.state import ShareState, StateBatch
from kwire.share.leader.states import ACKNOWLEDGED, ARCHIVED
from testkit.raw.share_requests import ACCEPT, RELEASE, RENEW, acquired, partition_of
from testkit.scenes.late_log import LateLog
from testkit.share.leader.members import ShareGroup, create_topic, initialize, set_group_config, with_group


def test_a_record_that_came_back_is_kept_for_a_while_and_longer_each_time() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a", b"b")
        member = await group.member()
        await set_group_config(
            member.client, kwire_share_release_delay_ms="2000", kwire_share_release_delay_max_ms="3000"
        )
        waited = []
        for _ in range(3):
            before = trio.current_time()
            assert [(first, last) for first, last, _ in await member.get(max_wait_ms=60_000)] == [(0, 1)]
            waited.append(round(trio.current_time() - before))
            assert await member.ack((0, 1, RELEASE)) == E.NONE
        assert await member.get(max_wait_ms=1000) == []
        assert waited == [0, 2, 3]

    with_group(story)


def test_the_maximum_number_of_records_counts_for_all_partitions_together() -> None:
    async def story(group: ShareGroup) -> None:
        await create_topic(group.broker, "two", 2)
        await initialize(group.broker, topic="two")
        for index in (0, 1):
            await group.produce(b"a", b"b", topic="two", index=index)
        member = await group.member(topic="two")
        answer = await member.fetch([0, 1], max_records=2)
        assert (acquired(answer, 0), acquired(answer, 1)) == ([(0, 1, 1)], [])
        answer = await member.fetch(max_records=2)
        assert (acquired(answer, 0), acquired(answer, 1)) == ([], [(0, 1, 1)])

    with_group(story)


def test_each_request_begins_with_another_partition() -> None:
    async def story(group: ShareGroup) -> None:
        await create_topic(group.broker, "three", 3)
        await initialize(group.broker, topic="three")
        for index in (0, 1, 2):
            await group.produce(b"a", topic="three", index=index)
        first = await group.member("a", topic="three")
        assert acquired(await first.fetch([0, 1, 2], max_records=0)) == []
        answer = await first.fetch(max_records=1)  # in epoch 1
        assert [acquired(answer, index) for index in (0, 1, 2)] == [[], [(0, 0, 1)], []]

    with_group(story)


def test_the_bytes_are_divided_among_the_partitions() -> None:
    async def story(group: ShareGroup) -> None:
        await create_topic(group.broker, "two", 2)
        await initialize(group.broker, topic="two")
        for index in (0, 1):
            for _ in range(3):
                await group.produce(b"x" * 1000, topic="two", index=index)
        member = await group.member(topic="two")
        answer = await member.fetch([0, 1], max_bytes=2600)
        assert (acquired(answer, 0), acquired(answer, 1)) == ([(0, 0, 1)], [(0, 0, 1)])
        answer = await member.fetch(max_bytes=1)  # more than the limit comes of one partition only
        assert (acquired(answer, 0), acquired(answer, 1)) == ([], [(1, 1, 1)])

    with_group(story)


def test_the_brokers_limit_of_a_fetch_counts_as_well() -> None:
    async def story(group: ShareGroup) -> None:
        for _ in range(2):
            await group.produce(b"x" * 600)
        assert await (await group.member()).get() == [(0, 0, 1)]

    with_group(story, settings=("fetch.max.bytes=1024",))


def test_a_start_offset_beyond_the_log_is_waited_for() -> None:
    async def story(group: ShareGroup) -> None:
        member = await group.member()
        await group.produce(b"a")
        assert await member.get(max_wait_ms=100) == []
        await group.produce(b"b")
        await group.produce(b"c")
        assert await member.get() == [(2, 2, 1)]

    with_group(story, start_offset=2)


def test_records_that_were_deleted_before_the_first_fetch_are_not_waited_for() -> None:
    async def story(group: ShareGroup) -> None:
        for value in (b"a", b"b"):
            await group.produce(value)
        group.server.partition.delete_records_before(1, now_ms=group.broker.clock.now_ms())
        assert await (await group.member()).get() == [(1, 1, 1)]

    with_group(story)


def test_another_member_on_the_same_connection_takes_its_place() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        member = await group.member("a")
        assert await member.get() == [(0, 0, 1)]
        member.epoch = 0
        assert await member.get() == []  # its own new session leaves it the record
        member.name, member.epoch = "b", 0
        assert await member.get() == [(0, 0, 2)]

    with_group(story)


def test_a_fetch_waits_for_records_and_wakes_when_they_come() -> None:
    async def story(group: ShareGroup) -> None:
        member = await group.member()
        await member.send_fetch(max_wait_ms=60_000)
        await trio.testing.wait_all_tasks_blocked()
        assert not member.client.has_answer
        before = trio.current_time()
        await group.produce(b"a")
        assert acquired(await member.answer()) == [(0, 0, 1)]
        assert trio.current_time() - before < 1

    with_group(story)


def test_a_fetch_that_waits_in_vain_is_answered_at_its_time() -> None:
    async def story(group: ShareGroup) -> None:
        member = await group.member()
        before = trio.current_time()
        answer = await member.fetch(max_wait_ms=700)
        assert 0.69 < trio.current_time() - before < 1
        assert acquired(answer) == []

    with_group(story)


def test_what_another_member_got_during_the_wait_is_not_acquired_again() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        first, second = await group.member("a"), await group.member("b")
        await first.send_fetch(max_wait_ms=700, min_bytes=10_000)
        await trio.testing.wait_all_tasks_blocked()
        assert await second.get() == [(0, 0, 1)]
        assert acquired(await first.answer()) == []

    with_group(story)


def test_a_fetch_wakes_when_another_member_releases() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        first, second = await group.member("a"), await group.member("b")
        assert await first.get() == [(0, 0, 1)]
        await second.send_fetch(max_wait_ms=60_000)
        await trio.testing.wait_all_tasks_blocked()
        assert await first.ack((0, 0, RELEASE)) == E.NONE
        assert acquired(await second.answer()) == [(0, 0, 2)]

    with_group(story)


def test_a_fetch_wakes_when_a_lock_ends() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        first, second = await group.member("a"), await group.member("b")
        assert await first.get() == [(0, 0, 1)]
        before = trio.current_time()
        await second.send_fetch(max_wait_ms=60_000)
        assert acquired(await second.answer()) == [(0, 0, 2)]
        assert 29.9 < trio.current_time() - before < 31
        assert await first.ack((0, 0, ACCEPT)) == E.INVALID_RECORD_STATE

    with_group(story)


def test_a_fetch_ends_with_the_next_request_of_its_connection() -> None:
    async def story(group: ShareGroup) -> None:
        member = await group.member()
        before = trio.current_time()
        await member.send_fetch(max_wait_ms=60_000)
        await member.send_fetch()
        assert acquired(await member.answer()) == acquired(await member.answer()) == []
        assert trio.current_time() - before < 60

    with_group(story)


def test_an_acknowledgement_of_what_nobody_has_is_an_error_of_the_partition() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        member = await group.member()
        await member.get(max_records=0)
        answer = await member.fetch(acks=[(0, 0, ACCEPT)], max_records=0)
        assert partition_of(answer).acknowledge_error_code == E.INVALID_RECORD_STATE

    with_group(story)


def test_a_request_that_renews_fetches_nothing_and_must_say_so() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        await group.produce(b"b")
        member = await group.member()
        assert await member.get(max_records=1) == [(0, 0, 1)]
        answer = await member.fetch(acks=[(0, 0, RENEW)], is_renewal=True)
        assert answer.error_code == E.INVALID_REQUEST
        member.epoch = 1
        await trio.sleep(20)
        answer = await member.fetch(acks=[(0, 0, RENEW)], is_renewal=True, max_bytes=0, min_bytes=0, max_records=0)
        assert partition_of(answer).acknowledge_error_code == E.NONE
        assert acquired(answer) == []
        await trio.sleep(20)
        assert await member.ack((0, 0, ACCEPT)) == E.NONE

    with_group(story)


def test_a_session_continues_with_its_partitions_and_forgets_them() -> None:
    async def story(group: ShareGroup) -> None:
        member = await group.member()
        assert partition_of(await member.fetch()) is not None
        assert (await member.fetch()).responses == []
        await group.produce(b"a")
        assert (await member.fetch(forget=[0])).responses == []
        assert await (await group.member("b")).get() == [(0, 0, 1)]

    with_group(story)


def test_a_way_to_acquire_that_there_is_not_is_refused() -> None:
    async def story(group: ShareGroup) -> None:
        assert (await (await group.member()).fetch(mode=7)).error_code == E.INVALID_REQUEST

    with_group(story)


def test_a_member_without_room_for_a_session_waits_before_it_gets_the_error() -> None:
    async def story(group: ShareGroup) -> None:
        await (await group.member("a")).fetch()
        other = await group.member("b")
        before = trio.current_time()
        assert (await other.fetch(max_wait_ms=500)).error_code == E.SHARE_SESSION_LIMIT_REACHED
        assert trio.current_time() - before > 0.49

    with_group(story, settings=("group.share.max.share.sessions=1", "group.share.max.size=1"))


def test_a_lost_connection_releases_what_the_member_has() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        first, second = await group.member("a"), await group.member("b")
        assert await first.get() == [(0, 0, 1)]
        await second.send_fetch(max_wait_ms=60_000)
        await trio.testing.wait_all_tasks_blocked()
        await first.client.hang_up()
        before = trio.current_time()
        assert acquired(await second.answer()) == [(0, 0, 2)]
        assert trio.current_time() - before < 1

    with_group(story)


def test_a_group_without_sessions_has_no_share_partitions() -> None:
    async def story(group: ShareGroup) -> None:
        member = await group.member()
        await member.fetch()
        assert len(group.broker.sharing) == 1
        await member.client.hang_up()
        await trio.testing.wait_all_tasks_blocked()
        assert len(group.broker.sharing) == 0
        assert group.broker.partitions.find("t", 0).waiters == {}

    with_group(story)


def test_a_partition_whose_state_is_not_initialized_is_not_kept() -> None:
    async def story(group: ShareGroup) -> None:
        await create_topic(group.broker, "other", 1)
        other = await group.member("b", topic="other")
        assert partition_of(await other.fetch(max_wait_ms=60_000)).error_code == E.UNKNOWN_SERVER_ERROR
        assert len(group.broker.sharing) == 0

    with_group(story)


def test_what_is_deleted_from_the_log_is_not_delivered() -> None:
    async def story(group: ShareGroup) -> None:
        for value in (b"a", b"b", b"c"):
            await group.produce(value)
        member = await group.member()
        assert await member.get(max_records=1) == [(0, 0, 1)]
        group.server.partition.delete_records_before(2, now_ms=group.broker.clock.now_ms())
        assert await member.get() == [(2, 2, 1)]
        assert await member.ack((0, 0, ACCEPT), (2, 2, ACCEPT)) == E.NONE
        assert await group.stored() == ShareState(0, 2, (StateBatch(2, 2, ACKNOWLEDGED, 1),))

    with_group(story)


def test_settings_of_the_group_count_from_their_change_on() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        member = await group.member()
        await member.get(max_records=0)
        await set_group_config(group.producer, share_record_lock_duration_ms="15000", share_delivery_count_limit="2")
        assert (await member.fetch()).acquisition_lock_timeout_ms == 15_000
        before = trio.current_time()
        assert await member.get(max_wait_ms=60_000) == [(0, 0, 2)]
        assert 14.9 < trio.current_time() - before < 16
        assert await member.get(max_wait_ms=20_000) == []  # archived after its second delivery
        assert (await group.stored()).batches == (StateBatch(0, 0, ARCHIVED, 2),)

    with_group(story)


def test_records_that_another_member_acquires_while_the_log_is_read_are_acquired_once() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a", b"b")
        late = LateLog.of(group.server.partition)
        slow, quick = await group.member("a"), await group.member("b")
        await slow.send_fetch()
        await trio.testing.wait_all_tasks_blocked()
        (_,) = late.waiting
        late.is_late = False
        assert await quick.get(max_records=1, mode=1) == [(0, 0, 1)]
        late.answer()
        assert acquired(await slow.answer()) == []
        assert await slow.get() == [(1, 1, 1)]

    with_group(story)


def test_a_member_waits_for_a_log_that_cannot_answer_at_once() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a", b"b")
        late = LateLog.of(group.server.partition)
        member = await group.member()
        await member.send_fetch()
        await trio.testing.wait_all_tasks_blocked()
        late.answer()
        assert acquired(await member.answer()) == [(0, 1, 1)]

    with_group(story)
