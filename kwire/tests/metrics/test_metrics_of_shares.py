"""The metrics of share groups: at the leaders of partitions, and at the share coordinator."""

from __future__ import annotations

import trio
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.wire import Uuid

from kwire.metrics import shares
from kwire.metrics.metric import Family, Metric, Times
from kwire.share.leader.counts import SharingCounts
from kwire.share.leader.states import AcknowledgeType
from testkit.raw.share_requests import ACCEPT, REJECT, RELEASE, RENEW
from testkit.share.leader.dead_letter_scene import AUTO_CREATE, DLQ, DeadLetterScene, story_of
from testkit.share.leader.members import ShareGroup, create_topic, initialize, set_group_config, with_group
from testkit.share.leader.scene import scene


async def read(group: ShareGroup) -> dict[str, dict[tuple[str, ...], float | Times]]:
    families: list[Family] = [
        *await shares.read_sharing(group.broker.sharing),
        *shares.read_states(group.broker.share_state),
    ]
    assert [family.metric for family in families] == list(shares.METRICS)
    return {family.metric.name: dict(family.samples) for family in families}


async def values(group: ShareGroup, *metrics: Metric) -> list[float | Times]:
    found = await read(group)
    return [found[metric.name][()] for metric in metrics]


def test_what_members_fetch_hold_and_acknowledge_is_counted() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(*(b"%d" % number for number in range(10)))
        member = await group.member()
        assert await member.get() == [(0, 9, 1)]
        found = await read(group)
        assert found[shares.MESSAGES_IN_FLIGHT.name] == {("g", "t", "0"): 10}
        assert found[shares.BATCHES_IN_FLIGHT.name] == {("g", "t", "0"): 1}
        assert await values(group, shares.SESSIONS, shares.SESSION_PARTITIONS, shares.FETCHES) == [1, 1, 1]
        assert await member.ack((0, 3, ACCEPT), (4, 4, REJECT), (5, 6, RELEASE)) == E.NONE
        assert await member.ack((7, 8, RENEW), is_renewal=True) == E.NONE
        found = await read(group)
        assert found[shares.ACKNOWLEDGED.name] == {("Accept",): 4, ("Reject",): 1, ("Release",): 2, ("Renew",): 2}
        assert found[shares.MESSAGES_IN_FLIGHT.name] == {("g", "t", "0"): 5}
        assert await values(group, shares.ACKNOWLEDGES, shares.FAILED_ACKNOWLEDGES) == [2, 0]
        for metric in shares.LOAD_TIMES, shares.WRITES, shares.STATE_WRITE_TIMES:
            (times,) = found[metric.name].values()
            assert isinstance(times, Times)
            assert times.count == 1
        assert await values(group, shares.STATE_WRITES, shares.STATE_READS) == [1, 1]
        await member.client.hang_up()
        with trio.fail_after(5):
            while await values(group, shares.SESSIONS, shares.SESSION_PARTITIONS) != [0, 0]:
                await trio.sleep(0)

    with_group(story)


def test_what_is_refused_counts_as_failed_and_not_as_acknowledged() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        member, other = await group.member("a"), await group.member("b")
        await member.get()
        await other.get()
        assert await other.ack((0, 0, ACCEPT)) == E.INVALID_RECORD_STATE
        assert await values(group, shares.ACKNOWLEDGES, shares.FAILED_ACKNOWLEDGES) == [1, 1]
        assert (await read(group))[shares.ACKNOWLEDGED.name]["Accept",] == 0
        member.epoch = 7
        assert (await member.fetch()).error_code == E.INVALID_SHARE_SESSION_EPOCH
        assert await values(group, shares.FETCHES, shares.FAILED_FETCHES) == [3, 1]
        stranger = await group.member("c")
        (topic,) = (await stranger.fetch(topic_id=Uuid(bytes(15) + b"?"))).responses
        assert topic.partitions[0].error_code == E.UNKNOWN_TOPIC_ID
        assert await values(group, shares.FETCHES, shares.FAILED_FETCHES) == [4, 2]

    with_group(story)


def test_what_the_share_coordinator_refuses_is_counted() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        member = await group.member()
        await member.get()
        await initialize(group.broker, state_epoch=1)  # the group's offsets were reset
        assert await member.ack((0, 0, ACCEPT)) == E.NOT_LEADER_OR_FOLLOWER
        assert await values(group, shares.FAILED_WRITES, shares.FAILED_READS) == [1, 0]
        await create_topic(group.broker, "new", 1)  # of which the group's coordinator has no state
        await (await group.member("b", topic="new")).fetch()
        assert await values(group, shares.FAILED_WRITES, shares.FAILED_READS) == [1, 1]

    with_group(story)


def test_records_whose_lock_has_timed_out_are_counted() -> None:
    held = scene()
    counts: SharingCounts = held.partition.counts
    assert held.fetch("a", (0, 9)) == [(0, 9, 1)]
    held.done("a", (0, 3, ACCEPT))
    held.wait(held.partition.limits.lock_duration_ms)
    assert counts.timed_out == 6
    assert counts.acknowledged[AcknowledgeType.ACCEPT] == 4


def test_dead_letters_are_counted_and_so_are_those_that_got_lost() -> None:
    async def story(scene: DeadLetterScene) -> None:
        group = scene.group
        await set_group_config(group.producer, errors_deadletterqueue_topic_name="other")
        await group.produce(b"a", b"b", b"c")
        member = await group.member()
        await member.get()
        await member.ack((0, 0, REJECT))
        await scene.settled()
        metrics = shares.DEAD_LETTERS, shares.LOST_DEAD_LETTERS, shares.FAILED_COPIES
        assert await values(group, *metrics) == [0, 1, 0]
        await scene.name_topic(DLQ)
        await member.ack((1, 2, REJECT))
        await scene.settled()
        assert await values(group, *metrics) == [2, 1, 0]

    story_of(story, settings=[AUTO_CREATE, "errors.deadletterqueue.topic.name.prefix=dlq."])


def test_a_copy_that_fails_and_is_repeated_is_counted_each_time() -> None:
    async def story(scene: DeadLetterScene) -> None:
        await scene.create()
        await scene.name_topic()
        await scene.group.produce(b"a")
        member = await scene.group.member()
        await member.get()
        scene.lead(False)
        await member.ack((0, 0, REJECT))
        await scene.settled()
        assert await values(scene.group, shares.DEAD_LETTERS, shares.FAILED_COPIES) == [0, 1]

    story_of(story)
