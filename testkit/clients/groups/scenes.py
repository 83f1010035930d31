"""Assignments of partitions, commits, and the position of a new owner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, ClassVar

import pytest
from kwire_protocol.errors import ErrorCode

from testkit.basics.values import numbered
from testkit.basics.waiting import Deadline
from testkit.clients import confluent
from testkit.clients.groups.client import (
    GIVEN,
    TAKEN,
    Client,
    Committed,
    CooperativeClient,
    Evicted,
    Member,
    MemberConfig,
    Refused,
)
from testkit.raw import topics
from testkit.servers.brokers import Broker

QUICK_MS = 1_000
"""A session."""
METADATA_LIMIT_BYTES = 4_096


def fill_each(bootstrap: str, topic: str, partitions: int) -> None:
    """A record in each partition: who gets the partition gets the record, and so a poll does not last longer."""
    with confluent.producing(bootstrap) as producer:
        for partition in range(partitions):
            confluent.send_all(producer, topic, [b"there"], partition=partition)


class _Scenes:
    client: ClassVar[Client]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrizes a scene with the strategies and ways that the client has."""
        having: dict[str, Callable[[], Any]] = {
            "strategy": lambda: self.client.strategies,
            "crash_strategy": lambda: self.client.crash_strategies,
            "way": lambda: self.client.ways,
        }
        for name, values in having.items():
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, values())

    @contextmanager
    def joining(self, broker: Broker, topic: str, group: str, **config: Any) -> Iterator[Member]:
        """A member that is subscribed; `config` as in MemberConfig."""
        with self.client.joining(broker.bootstrap, MemberConfig(group=group, **config)) as member:
            member.subscribe(topic)
            yield member


class MemberScenes(_Scenes):
    def test_members_that_join_and_leave_share_the_partitions(
        self, broker: Broker, new_topic: Callable[..., str], group: str, strategy: str
    ) -> None:
        topic = new_topic(partitions=6)
        fill_each(broker.bootstrap, topic, 6)
        with ExitStack() as stack:
            members: list[Member] = []

            def another() -> None:
                members.append(stack.enter_context(self.joining(broker, topic, group, strategy=strategy)))

            another()
            self.client.settle(members, 6, most=6)
            another()
            two = self.client.settle(members, 6, most=3)
            if strategy == "range":
                assert sorted(two) == [[0, 1, 2], [3, 4, 5]]
            elif strategy == "roundrobin":
                assert sorted(two) == [[0, 2, 4], [1, 3, 5]]
            another()
            self.client.settle(members, 6, most=2)
            members.pop(0).close()
            self.client.settle(members, 6, most=3)

    def test_the_partitions_of_a_crashed_member_go_to_the_others(
        self, broker: Broker, new_topic: Callable[..., str], group: str, crash_strategy: str | None
    ) -> None:
        topic = new_topic(partitions=4)
        fill_each(broker.bootstrap, topic, 4)
        config = MemberConfig(group=group, strategy=crash_strategy, session_ms=QUICK_MS)
        with (
            self.client.in_a_process(broker.bootstrap, topic, config) as other,
            self.client.joining(broker.bootstrap, config) as survivor,
        ):
            survivor.subscribe(topic)
            deadline = Deadline()
            while not (other.owns(2) and len(survivor.owned) == 2) and deadline.not_over("two members"):
                survivor.poll()
            other.kill()
            self.client.settle([survivor], 4, most=4)

    def test_a_group_continues_where_it_committed(self, broker: Broker, topic: str, group: str, way: str) -> None:
        values = numbered(10)
        confluent.fill(broker.bootstrap, topic, values)
        with self.joining(broker, topic, group, way=way) as member:
            assert [it.value for it in member.take(4)] == values[:4]
            member.commit()
        with self.client.assigned(broker.bootstrap, group, topic) as outside:
            assert outside.committed(topic, 0) == Committed(4)
        with self.joining(broker, topic, group) as member:
            assert [(it.offset, it.value) for it in member.take(6)] == list(enumerate(values))[4:]

    def test_each_group_has_offsets_of_its_own(self, broker: Broker, topic: str, new_group: Callable[..., str]) -> None:
        values = numbered(6)
        confluent.fill(broker.bootstrap, topic, values)
        groups = [new_group() for _ in range(3)]
        for number, group in enumerate(groups):
            with self.client.assigned(broker.bootstrap, group, topic) as outside:
                outside.commit_offsets(topic, {0: Committed(number)})
        for number, group in enumerate(groups):
            with self.joining(broker, topic, group) as member:
                assert [it.value for it in member.take(6 - number)] == values[number:]

    def test_partitions_that_a_topic_gains_are_assigned(self, broker: Broker, topic: str, group: str) -> None:
        with self.joining(broker, topic, group, looks_often=True) as member:
            self.client.settle([member], 1, most=1)
            topics.grow(broker.bootstrap, topic, 3)
            self.client.settle([member], 3, most=3)
            confluent.fill(broker.bootstrap, topic, [b"in the new one"], partition=2)
            assert [(it.partition, it.value) for it in member.take(1)] == [(2, b"in the new one")]


class SleeperScenes(_Scenes):
    def test_a_member_that_stopped_polling_loses_its_partitions_and_may_not_commit(
        self, broker: Broker, new_topic: Callable[..., str], group: str
    ) -> None:
        topic = new_topic(partitions=2)
        fill_each(broker.bootstrap, topic, 2)
        quick = MemberConfig(group=group, session_ms=QUICK_MS)
        with (
            self.joining(broker, topic, group, session_ms=QUICK_MS, max_poll_ms=QUICK_MS) as sleeper,
            self.client.joining(broker.bootstrap, quick) as other,
        ):
            self.client.settle([sleeper], 2, most=2)
            other.subscribe(topic)
            self.client.settle([other], 2, most=2)
            with pytest.raises(Evicted):
                sleeper.commit_offsets(topic, {0: Committed(1)})


class PatternScenes(_Scenes):
    def test_a_pattern_takes_in_a_topic_that_is_made_later(
        self, broker: Broker, unique: Callable[[str], str], group: str
    ) -> None:
        family = unique("family")
        first, second = f"{family}-first", f"{family}-second"
        for name in (first, f"another-{family}"):
            topics.create(broker.bootstrap, name)
            confluent.fill(broker.bootstrap, name, [f"in {name}".encode()])
        config = MemberConfig(group=group, looks_often=True)
        with self.client.joining(broker.bootstrap, config) as member:
            member.subscribe_to_pattern(f"^{family}-.*")
            assert [it.value for it in member.take(1)] == [f"in {first}".encode()]
            member.commit()
            topics.create(broker.bootstrap, second)
            confluent.fill(broker.bootstrap, second, [b"late"])
            assert [it.value for it in member.take(1)] == [b"late"]
            assert member.topics == {first, second}


class ResetScenes(_Scenes):
    def test_a_group_that_never_committed_starts_according_to_auto_offset_reset(
        self, broker: Broker, topic: str, new_group: Callable[..., str]
    ) -> None:
        confluent.fill(broker.bootstrap, topic, numbered(3))
        with (
            self.joining(broker, topic, new_group("early")) as early,
            self.joining(broker, topic, new_group("late"), reset="latest") as late,
        ):
            self.client.settle([late], 1, most=1)
            assert [it.offset for it in early.take(3)] == [0, 1, 2]
            deadline = Deadline()
            while deadline.not_over("news"):
                confluent.fill(broker.bootstrap, topic, [b"news"])  # it may not have looked for the end yet
                if news := late.poll():
                    break
            assert news[0].offset >= 3
            assert news[0].value == b"news"


class ClassicScenes(_Scenes):
    def test_a_member_without_a_common_strategy_is_refused(self, broker: Broker, topic: str, group: str) -> None:
        with (
            self.joining(broker, topic, group, strategy="range") as first,
            self.client.joining(broker.bootstrap, MemberConfig(group=group, strategy="roundrobin")) as second,
        ):
            self.client.settle([first], 1, most=1)
            second.subscribe(topic)
            with pytest.raises(Refused) as refused:
                second.take(1)
        assert refused.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class StaticScenes(_Scenes):
    def test_a_static_member_that_comes_back_in_time_gets_its_partitions_without_a_rebalance(
        self, broker: Broker, new_topic: Callable[..., str], group: str
    ) -> None:
        topic = new_topic(partitions=4)

        def instance(name: str) -> AbstractContextManager[Member]:
            return self.joining(broker, topic, group, session_ms=20_000, instance=name)

        with instance("one") as one:
            with instance("two") as two:
                fill_each(broker.bootstrap, topic, 4)
                before = self.client.settle([one, two], 4, most=2)
            changes = list(one.changes)
            for _ in range(2):  # twice gone and twice back
                with instance("two") as two:
                    fill_each(broker.bootstrap, topic, 4)
                    assert self.client.settle([one, two], 4, most=2) == before
            assert one.changes == changes


class CooperativeScenes(_Scenes):
    client: ClassVar[CooperativeClient]

    def test_cooperative_members_keep_what_does_not_move(
        self, broker: Broker, new_topic: Callable[..., str], group: str
    ) -> None:
        topic = new_topic(partitions=4)
        fill_each(broker.bootstrap, topic, 4)
        config = MemberConfig(group=group, strategy=self.client.cooperative)

        def changes(member: Member, what: str) -> list[list[int]]:
            return [partitions for change, partitions in member.changes if change == what and partitions]

        with (
            self.client.joining(broker.bootstrap, config) as first,
            self.client.joining(broker.bootstrap, config) as second,
        ):
            first.subscribe(topic)
            self.client.settle([first], 4, most=4)
            second.subscribe(topic)
            mine, other = self.client.settle([first, second], 4, most=2)
            assert changes(first, TAKEN) == [other]  # and nothing else was taken
            assert changes(second, GIVEN) == [other]
            second.close()
            self.client.settle([first], 4, most=4)
            assert changes(first, GIVEN) == [[0, 1, 2, 3], other]
            assert sorted(mine + other) == [0, 1, 2, 3]


class OffsetScenes(_Scenes):
    """Commits from outside of the group."""

    def test_a_commit_keeps_its_metadata(self, broker: Broker, new_topic: Callable[..., str], group: str) -> None:
        topic = new_topic(partitions=3)
        kept = {0: Committed(5, "ж: what I was doing"), 2: Committed(9)}
        with self.client.assigned(broker.bootstrap, group, topic, range(3)) as outside:
            outside.commit_offsets(topic, kept)
            assert [outside.committed(topic, partition) for partition in range(3)] == [kept[0], None, kept[2]]

    def test_metadata_beyond_the_limit_is_refused(self, broker: Broker, topic: str, group: str) -> None:
        longest = "x" * (METADATA_LIMIT_BYTES - self.client.bytes_after_metadata)
        with self.client.assigned(broker.bootstrap, group, topic) as outside:
            with pytest.raises(Refused) as refused:
                outside.commit_offsets(topic, {0: Committed(7, longest + "x")})
            assert outside.committed(topic, 0) is None
            outside.commit_offsets(topic, {0: Committed(5, longest)})
            with pytest.raises(Refused) as again:
                outside.commit_offsets(topic, {0: Committed(6, longest + "x")})
            assert outside.committed(topic, 0) == Committed(5, longest)
        assert refused.value.code == again.value.code == ErrorCode.OFFSET_METADATA_TOO_LARGE

    def test_a_group_that_never_committed_has_no_offset(self, broker: Broker, topic: str, group: str) -> None:
        with self.client.assigned(broker.bootstrap, group, topic) as outside:
            assert outside.committed(topic, 0) is None

    def test_the_last_commit_holds(self, broker: Broker, topic: str, group: str) -> None:
        with self.client.assigned(broker.bootstrap, group, topic) as outside:
            for offset in (5, 9, 2):
                outside.commit_offsets(topic, {0: Committed(offset)})
            assert outside.committed(topic, 0) == Committed(2)
        with self.client.assigned(broker.bootstrap, group, topic) as outside:
            assert outside.committed(topic, 0) == Committed(2)
