"""Acknowledgements that come after their locks have timed out, before the task that ends locks has woken up."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from kwire_protocol.errors import ErrorCode as E

from kwire.share.leader.acknowledgements import AcknowledgementBatch
from kwire.share.leader.sessions import SharedPartition
from testkit.raw.share_requests import ACCEPT
from testkit.share.leader.members import ShareGroup, with_group

LOCK_MS = 30_000


@pytest.mark.parametrize(("late_ms", "error"), [(-10, E.NONE), (10, E.INVALID_RECORD_STATE)])
def test_an_acknowledgement_counts_until_the_lock_ends_and_not_after(late_ms: int, error: E) -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        member = await group.member()
        assert await member.get() == [(0, 0, 1)]
        await trio.sleep((LOCK_MS - 100) / 1000)
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        clock.jump((100 + late_ms) / 1000)  # nobody is woken up before the next line
        outcome = group.broker.sharing.acknowledge(
            "g",
            member.name,
            SharedPartition(member.topic_id, 0),
            [AcknowledgementBatch(0, 0, [ACCEPT])],
            may_renew=False,
        )
        if not outcome.is_set:
            was_set = trio.Event()
            outcome.when_set(was_set.set)
            await was_set.wait()
        assert outcome.value is error

    with_group(story)
