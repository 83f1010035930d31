"""Transactions in share groups: members never get markers, and get aborted records only if configured."""

from __future__ import annotations

import attrs
import pytest
import trio
import trio.testing
from kwire_protocol.records import Record, build_batch, read_header

from kwire.share.coordinator.state import StateBatch
from kwire.share.leader.states import ACKNOWLEDGED
from testkit.fakes.transactions import write_marker
from testkit.raw.share_requests import ACCEPT, acquired, batches_in
from testkit.share.leader.members import ShareGroup, set_group_config, with_group


@attrs.define(eq=False)
class Producers:
    group: ShareGroup
    sequences: dict[int, int] = attrs.field(factory=dict)

    def send(self, producer_id: int, count: int = 1) -> None:
        """Sends one batch of an open transaction."""
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + count
        now_ms = self.group.broker.clock.now_ms()
        built = build_batch(
            [Record(timestamp=now_ms, value=b"t")] * count,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        batch = memoryview(bytearray(built))
        self.group.server.partition.append(batch, read_header(batch), acks=1, now_ms=now_ms)

    def end(self, producer_id: int, *, committed: bool) -> None:
        write_marker(self.group.broker, "t", 0, committed=committed, producer_id=producer_id, epoch=0)


def test_markers_are_not_delivered() -> None:
    async def story(group: ShareGroup) -> None:
        producers = Producers(group)
        producers.send(7, 2)
        producers.end(7, committed=True)
        await group.produce(b"a")
        member = await group.member()
        answer = await member.fetch()
        assert acquired(answer) == [(0, 1, 1), (3, 3, 1)]
        assert batches_in(answer) == [(0, 1), (2, 2), (3, 3)]
        assert await member.ack((0, 1, ACCEPT), (3, 3, ACCEPT)) == 0

    with_group(story)


@pytest.mark.parametrize(
    ("level", "expected"),
    [("read_uncommitted", [(0, 2, 1), (4, 4, 1), (6, 6, 1)]), ("read_committed", [(2, 2, 1), (4, 4, 1), (6, 6, 1)])],
)
def test_aborted_records_are_archived_for_a_group_that_reads_what_is_committed(
    level: str, expected: list[tuple[int, int, int]]
) -> None:
    async def story(group: ShareGroup) -> None:
        await set_group_config(group.producer, share_isolation_level=level)
        producers = Producers(group)
        producers.send(7, 2)
        producers.send(8)
        producers.end(7, committed=False)
        producers.send(7)  # of its next transaction
        producers.end(8, committed=True)
        await group.produce(b"a")
        producers.end(7, committed=True)
        member = await group.member()
        assert await member.get() == expected
        assert await member.ack(*[(first, last, ACCEPT) for first, last, _ in expected]) == 0
        await group.produce(b"b")
        assert await member.get() == [(8, 8, 1)]

    with_group(story)


def test_a_group_that_reads_what_is_committed_waits_for_the_end_of_a_transaction() -> None:
    async def story(group: ShareGroup) -> None:
        await set_group_config(group.producer, share_isolation_level="read_committed")
        producers = Producers(group)
        producers.send(7)
        await group.produce(b"a")
        member = await group.member()
        assert await member.get() == []
        await member.send_fetch(max_wait_ms=60_000)
        await trio.testing.wait_all_tasks_blocked()
        before = trio.current_time()
        producers.end(7, committed=False)
        assert acquired(await member.answer()) == [(1, 1, 1)]
        assert trio.current_time() - before < 1
        assert await member.ack((1, 1, ACCEPT)) == 0
        assert (await group.stored()).batches == (StateBatch(1, 1, ACKNOWLEDGED, 1),)

    with_group(story)
