"""Members of a streams group (KIP-1071). Each runs an application's thread: it sends the topology when it joins, runs
its assigned active tasks, and commits for the partitions that they read. It does not run standby tasks and warm-ups,
but reports their offsets, as Kafka Streams 4.4 does.

Two processes may have several members each; a task is in a process once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import ClassVar, Final

import attrs
import trio
from kwire_protocol.messages.streams_group_describe import DescribedGroup, StreamsGroupDescribeRequest, TaskIds
from kwire_protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestTaskIds,
    StreamsGroupHeartbeatResponseTaskIds,
    Subtopology,
    TaskOffset,
    TopicInfo,
    Topology,
)

from kwire.groups.streams.member import JOINING_EPOCH, LEAVING_EPOCH
from testkit.worlds.simulation.clients import Again
from testkit.worlds.simulation.history import BrokenPromise
from testkit.worlds.simulation.members import NO_MEMBER, SESSION_TIMEOUT_MS, SHARE_OF_STALLS, STALL_S, Life, OwningLife

CHANGELOG: Final = "group-store-changelog"
"""An internal topic, which brokers make."""
SUBTOPOLOGY: Final = "0"
STABLE: Final = "Stable"
SHARE_OF_CATCHING_UP: Final = 0.3
PROCESSES: Final = ("p", "q", "q")
END: Final = 1_000_000
"""The end offset of the changelog of each task."""


@attrs.define(eq=False)
class StreamsLife(OwningLife):
    """A member that sends everything again after a failed request, and reports at once what it gave up, as Kafka
    Streams does.
    """

    is_mortal: ClassVar[bool] = True
    is_stateful: ClassVar[bool] = False
    """Its tasks have a changelog topic, and standbys."""
    process_id: str = ""
    standbys: list[int] = attrs.field(factory=list)
    warmups: list[int] = attrs.field(factory=list)
    offsets: dict[int, int] = attrs.field(factory=dict)
    """The offsets of its standby tasks and its warm-ups."""
    reported: tuple[list[int], list[int], list[int]] | None = None
    """The active, the standby and the warm-up tasks that the coordinator has from it; None if it may not have them."""
    progress: dict[int, int] | None = None
    """The offsets that the coordinator has from it, None if it may not have them."""

    def __attrs_post_init__(self) -> None:
        self.member_id = f"{self.cluster.name}-{self.cluster.random.randrange(1 << 32)}"
        self.process_id = self.cluster.random.choice(PROCESSES)

    @property
    def tasks(self) -> tuple[list[int], list[int], list[int]]:
        return sorted(self.positions), self.standbys, self.warmups

    async def take_part(self) -> None:
        if self.positions and self.cluster.random.random() < SHARE_OF_STALLS:
            # Others may have its tasks when it resumes, and no response has shown it that yet.
            await trio.sleep(STALL_S * self.cluster.random.random())
            await self.commit_all()
        if self.cluster.random.random() < SHARE_OF_CATCHING_UP:
            self.offsets = dict.fromkeys(self.offsets, END)
        await self._heartbeat()
        if self.tasks != self.reported:
            await self._heartbeat()
        await self.commit_all()

    async def _heartbeat(self) -> None:
        if self.cluster.topic_id == bytes(16):
            await self.cluster.refresh_metadata()
        tasks, joins = self.tasks, self.epoch == JOINING_EPOCH
        request = StreamsGroupHeartbeatRequest(self.group, self.member_id, self.epoch)
        if joins:
            request.rebalance_timeout_ms, request.process_id = SESSION_TIMEOUT_MS, self.process_id
            request.topology = self._topology()
        if joins or self.reported != tasks:
            request.active_tasks, request.standby_tasks, request.warmup_tasks = map(_reported, tasks)
        offsets = dict(self.offsets)
        if self.is_stateful and (joins or self.progress != offsets):
            request.task_offsets = [TaskOffset(SUBTOPOLOGY, *it) for it in offsets.items()]
            request.task_end_offsets = [TaskOffset(SUBTOPOLOGY, it, END) for it in offsets]
        self.reported = self.progress = None
        answer, sent_at = await self.heartbeat_and_check(request)
        if answer.error_code in NO_MEMBER:
            self.give_up(self.positions)
            self.standbys, self.warmups, self.offsets = [], [], {}
            self.joins_again()
        if answer.error_code:
            raise Again(str(answer.error_code))
        if sent_at is None:
            raise Again("another node is the coordinator")
        self.reported, self.progress, self.epoch = tasks, offsets, answer.member_epoch
        owned = tasks[0] if answer.active_tasks is None else _wire_tasks(answer.active_tasks)
        if answer.standby_tasks is None:
            self.note_owned(owned, sent_at)
        else:
            before = {*self.standbys, *self.warmups}
            self.standbys, self.warmups = _wire_tasks(answer.standby_tasks), _wire_tasks(answer.warmup_tasks or ())
            self.note_owned(owned, sent_at, loses_more=not before.issubset({*self.standbys, *self.warmups}))
            self.offsets = {it: self.offsets.get(it, 0) for it in (*self.standbys, *self.warmups)}

    def _topology(self) -> Topology:
        changelogs = [TopicInfo(CHANGELOG, replication_factor=3)] if self.is_stateful else []
        return Topology(1, [Subtopology(SUBTOPOLOGY, [self.cluster.topic], state_changelog_topics=changelogs)])

    def leaving(self) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(self.group, self.member_id, LEAVING_EPOCH)


class StatefulLife(StreamsLife):
    is_stateful: ClassVar[bool] = True


def _reported(partitions: list[int]) -> list[StreamsGroupHeartbeatRequestTaskIds]:
    return [StreamsGroupHeartbeatRequestTaskIds(SUBTOPOLOGY, partitions)] if partitions else []


def _wire_tasks(tasks: Iterable[StreamsGroupHeartbeatResponseTaskIds | TaskIds]) -> list[int]:
    return sorted(it for of_part in tasks for it in of_part.partitions)


@attrs.define(eq=False, kw_only=True)
class StreamsWatcher(Life):
    """A client that describes the group."""

    partitions: int
    stops: Callable[[], bool]
    stable_at: float = -1.0
    """The last time when the group was stable, with each task active."""

    async def run(self) -> None:
        while not self.stops():
            with suppress(Again):
                await self._describe()
            await trio.sleep(self.cluster.random.uniform(0.1, 0.5))

    async def _describe(self) -> None:
        highest = self.ledger.highest_epoch
        answer, sent_at = await self.call(StreamsGroupDescribeRequest([self.group]))
        group: DescribedGroup = answer.groups[0]
        if group.error_code:
            raise Again(str(group.error_code))
        if sent_at is None:
            raise Again("another node is the coordinator")
        active = Counter(it for member in group.members for it in _wire_tasks(member.assignment.active_tasks))
        twice = [it for it, count in active.items() if count > 1]
        if twice:
            raise BrokenPromise(f"{twice} are active twice: {group}")
        # What is described may not be committed yet, and so it may go back; a member's epoch is committed.
        if group.group_epoch < highest and not self.ledger.has_lost_groups:
            raise BrokenPromise(f"a member was told epoch {highest}, and now {group}")
        if group.group_state == STABLE and len(active) == self.partitions:
            self.stable_at = sent_at
