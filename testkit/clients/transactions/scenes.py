"""Transactions on a broker that stays up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import ClassVar

import pytest

from testkit.basics.values import numbered
from testkit.basics.waiting import eventually
from testkit.clients import confluent
from testkit.clients.transactions.client import Client
from testkit.clients.transactions.queries import end_offset, group_offset, is_stable
from testkit.servers.brokers import Broker

TIMEOUT_MS = 1_500
"""The timeout of transactions that are to time out; others have a minute."""


class Scenes:
    client: ClassVar[Client]

    def seen(self, broker: Broker, topic: str, partitions: Sequence[int] = (0,)) -> list[bytes]:
        """Returns the records of read_committed after all transactions have ended: a commit is answered before its
        markers are written.
        """
        spots = [(topic, partition) for partition in partitions]
        eventually(lambda: all(is_stable(broker.bootstrap, spot) for spot in spots), "no transaction is open")
        return self.seen_now(broker, topic, partitions)

    def seen_now(self, broker: Broker, topic: str, partitions: Sequence[int] = (0,)) -> list[bytes]:
        return self.client.values(broker.bootstrap, topic, partitions, committed=True)

    def written(self, broker: Broker, topic: str, partitions: Sequence[int] = (0,)) -> list[bytes]:
        return self.client.values(broker.bootstrap, topic, partitions, committed=False)


class OffsetScenes(Scenes):
    """Consume, transform, produce."""

    def test_offsets_in_a_transaction_count_when_it_commits(
        self, broker: Broker, new_topic: Callable[..., str], unique: Callable[[str], str], group: str
    ) -> None:
        source, target = new_topic(), new_topic()
        confluent.fill(broker.bootstrap, source, numbered(10))
        spot = (source, 0)
        with (
            self.client.reading(broker.bootstrap, group, source) as member,
            self.client.producing(broker.bootstrap, unique("id")) as producer,
        ):
            taken = member.take(10)
            producer.begin()
            producer.send(target, [it.value + b"!" for it in taken[:4]])
            producer.send_offsets({spot: 4}, member)
            assert group_offset(broker.bootstrap, group, spot) is None
            assert group_offset(broker.bootstrap, group, spot, stable=False) == -1
            producer.commit()
            eventually(lambda: group_offset(broker.bootstrap, group, spot) == 4, "the offset is there")
            producer.begin()
            producer.send(target, [it.value + b"?" for it in taken[4:]])
            producer.send_offsets({spot: 10}, member)
            assert group_offset(broker.bootstrap, group, spot, stable=False) == 4
            producer.abort()
            eventually(lambda: group_offset(broker.bootstrap, group, spot) == 4, "the offset is as it was")
        assert self.seen(broker, target) == [value + b"!" for value in numbered(4)]
        with self.client.reading(broker.bootstrap, group, source) as member:
            assert [it.value for it in member.take(6)] == numbered(10)[4:]

    def test_only_what_was_committed_reaches_the_next_stage(
        self, broker: Broker, new_topic: Callable[..., str], unique: Callable[[str], str], group: str
    ) -> None:
        source, target = new_topic(), new_topic(partitions=2)
        with self.client.producing(broker.bootstrap, unique("first")) as first:
            for number in range(6):
                first.begin()
                first.send(source, [b"%d" % number])
                if number % 2:
                    first.abort()
                else:
                    first.commit()
        with (
            self.client.reading(broker.bootstrap, group, source) as member,
            self.client.producing(broker.bootstrap, unique("second")) as second,
        ):
            for it in member.take(3):
                second.begin()
                second.send(target, [it.value], partition=it.offset // 4 % 2)
                second.send_offsets({(source, 0): it.offset + 1}, member)
                second.commit()
        assert sorted(self.seen(broker, target, (0, 1))) == [b"0", b"2", b"4"]
        eventually(lambda: group_offset(broker.bootstrap, group, (source, 0)) == 9, "the last offset is there")

    def test_a_zombie_commits_no_offsets(
        self, broker: Broker, new_topic: Callable[..., str], unique: Callable[[str], str], group: str
    ) -> None:
        source, name = new_topic(), unique("id")
        confluent.fill(broker.bootstrap, source, numbered(5))
        spot = (source, 0)
        with (
            self.client.reading(broker.bootstrap, group, source) as member,
            self.client.producing(broker.bootstrap, name) as zombie,
        ):
            member.take(5)
            zombie.begin()
            zombie.send_offsets({spot: 5}, member)
            with self.client.producing(broker.bootstrap, name) as heir:
                eventually(lambda: group_offset(broker.bootstrap, group, spot) == -1, "the offset is given up")
                with pytest.raises(self.client.errors):
                    zombie.commit()
                heir.begin()
                heir.send_offsets({spot: 2}, member)
                heir.commit()
            eventually(lambda: group_offset(broker.bootstrap, group, spot) == 2, "the heir's offset is there")

    def test_offsets_of_a_transaction_that_takes_too_long_are_given_up(
        self, broker: Broker, new_topic: Callable[..., str], unique: Callable[[str], str], group: str
    ) -> None:
        source = new_topic()
        confluent.fill(broker.bootstrap, source, numbered(5))
        with (
            self.client.reading(broker.bootstrap, group, source) as member,
            self.client.producing(broker.bootstrap, unique("id"), timeout_ms=TIMEOUT_MS) as slow,
        ):
            member.take(5)
            slow.begin()
            slow.send_offsets({(source, 0): 5}, member)
            assert group_offset(broker.bootstrap, group, (source, 0)) is None
            eventually(lambda: group_offset(broker.bootstrap, group, (source, 0)) == -1, "the offset is given up")


class TransactionScenes(OffsetScenes):
    # -- one after the other

    def test_a_committed_transaction_is_seen_in_every_partition(
        self, broker: Broker, new_topic: Callable[..., str], unique: Callable[[str], str]
    ) -> None:
        topic = new_topic(partitions=8)
        with self.client.producing(broker.bootstrap, unique("id")) as producer:
            producer.begin()
            for partition in range(8):
                producer.send(topic, [b"%d" % partition] * 3, partition=partition)
            assert self.seen_now(broker, topic, range(8)) == []
            producer.commit()
            expected = [b"%d" % partition for partition in range(8) for _ in range(3)]
            assert self.seen(broker, topic, range(8)) == expected
            assert self.written(broker, topic, range(8)) == expected

    def test_an_aborted_transaction_is_seen_by_read_uncommitted_only(
        self, broker: Broker, new_topic: Callable[..., str], unique: Callable[[str], str]
    ) -> None:
        topic = new_topic(partitions=3)
        with self.client.producing(broker.bootstrap, unique("id")) as producer:
            producer.begin()
            for partition in range(3):
                producer.send(topic, [b"aborted"], partition=partition)
            producer.abort()
            assert self.seen(broker, topic, range(3)) == []
            assert self.written(broker, topic, range(3)) == [b"aborted"] * 3
            producer.begin()
            producer.send(topic, [b"committed"], partition=1)
            producer.commit()
        assert self.seen(broker, topic, range(3)) == [b"committed"]

    def test_one_producer_commits_and_aborts_in_turn(
        self, broker: Broker, new_topic: Callable[..., str], unique: Callable[[str], str]
    ) -> None:
        topic = new_topic(partitions=2)
        with self.client.producing(broker.bootstrap, unique("id")) as producer:
            for number in range(20):
                producer.begin()
                producer.send(topic, [b"%02d" % number] * 5, partition=number // 3 % 2)
                if number % 3 == 1:
                    producer.abort()
                else:
                    producer.commit()
        everything = [(number // 3 % 2, number) for number in range(20)]
        committed = sorted(it for it in everything if it[1] % 3 != 1)
        assert self.seen(broker, topic, (0, 1)) == [b"%02d" % number for _, number in committed for _ in range(5)]
        assert self.written(broker, topic, (0, 1)) == [b"%02d" % it for _, it in sorted(everything) for _ in range(5)]

    def test_an_empty_transaction_commits_and_aborts_and_writes_nothing(
        self, broker: Broker, topic: str, unique: Callable[[str], str]
    ) -> None:
        with self.client.producing(broker.bootstrap, unique("id")) as producer:
            for end in (producer.commit, producer.abort, producer.commit):
                producer.begin()
                end()
            assert end_offset(broker.bootstrap, (topic, 0), committed=False) == 0
            producer.begin()
            producer.send(topic, [b"not empty"])
            producer.commit()
        assert self.seen(broker, topic) == [b"not empty"]

    def test_each_transaction_ends_with_one_marker(
        self, broker: Broker, topic: str, unique: Callable[[str], str]
    ) -> None:
        ends = []
        with self.client.producing(broker.bootstrap, unique("id")) as producer:
            for end in (producer.commit, producer.abort):
                producer.begin()
                producer.send(topic, numbered(2))
                end()
                eventually(lambda: is_stable(broker.bootstrap, (topic, 0)), "the marker is in")
                ends.append(end_offset(broker.bootstrap, (topic, 0), committed=True))
        assert ends == [3, 6]

    # -- while one is open

    def test_an_open_transaction_holds_back_what_others_wrote_after_it(
        self, broker: Broker, topic: str, unique: Callable[[str], str]
    ) -> None:
        confluent.fill(broker.bootstrap, topic, [b"before"])
        with (
            self.client.producing(broker.bootstrap, unique("slow")) as slow,
            self.client.producing(broker.bootstrap, unique("quick")) as quick,
        ):
            slow.begin()
            slow.send(topic, [b"slow"])
            quick.begin()
            quick.send(topic, [b"quick"])
            quick.commit()
            confluent.fill(broker.bootstrap, topic, [b"nobody's"])
            spot = (topic, 0)
            eventually(lambda: end_offset(broker.bootstrap, spot, committed=False) == 5, "the quick one's marker is in")
            assert end_offset(broker.bootstrap, spot, committed=True) == 1
            assert self.seen_now(broker, topic) == [b"before"]
            assert self.written(broker, topic) == [b"before", b"slow", b"quick", b"nobody's"]
            slow.abort()
            assert self.seen(broker, topic) == [b"before", b"quick", b"nobody's"]
            assert end_offset(broker.bootstrap, spot, committed=True) == 6

    def test_many_transactional_ids_at_once_do_not_disturb_each_other(
        self, broker: Broker, new_topic: Callable[..., str], unique: Callable[[str], str]
    ) -> None:
        topic, count = new_topic(partitions=3), 12
        with ExitStack() as stack:
            producers = [
                stack.enter_context(self.client.producing(broker.bootstrap, unique("id"))) for _ in range(count)
            ]
            for producer in producers:
                producer.begin()
            for round_number in range(2):
                for number, producer in enumerate(producers):
                    producer.send(topic, [b"%02d in turn %d" % (number, round_number)], partition=number % 3)
            for number, producer in reversed(list(enumerate(producers))):
                if number % 2:
                    producer.abort()
                else:
                    producer.commit()
        expected = {
            b"%02d in turn %d" % (number, round_number) for number in range(0, count, 2) for round_number in range(2)
        }
        assert sorted(self.seen(broker, topic, range(3))) == sorted(expected)
        assert len(self.written(broker, topic, range(3))) == 2 * count

    # -- fencing and time-outs

    def test_a_second_producer_of_an_id_fences_the_first_and_aborts_its_transaction(
        self, broker: Broker, topic: str, unique: Callable[[str], str]
    ) -> None:
        name = unique("id")
        with self.client.producing(broker.bootstrap, name) as zombie:
            zombie.begin()
            zombie.send(topic, [b"zombie"])
            with self.client.producing(broker.bootstrap, name) as heir:
                eventually(lambda: is_stable(broker.bootstrap, (topic, 0)), "the zombie's transaction is aborted")
                with pytest.raises(self.client.errors) as refused:
                    zombie.commit()
                assert self.client.is_fenced(refused.value), refused.value
                heir.begin()
                heir.send(topic, [b"heir"])
                heir.commit()
        assert self.seen(broker, topic) == [b"heir"]
        assert self.written(broker, topic) == [b"zombie", b"heir"]

    def test_a_fenced_producer_writes_no_more(self, broker: Broker, topic: str, unique: Callable[[str], str]) -> None:
        name = unique("id")
        with self.client.producing(broker.bootstrap, name) as zombie:
            zombie.begin()
            zombie.send(topic, [b"zombie"])
            with self.client.producing(broker.bootstrap, name) as heir:
                heir.begin()
                heir.send(topic, [b"heir"])
                heir.commit()
                # Not while that is open: some zombies request a new epoch when they are refused, and on Apache Kafka
                # this request alone fences the heir in the midst of a transaction.
                assert self.seen(broker, topic) == [b"heir"]
                with pytest.raises(self.client.errors):
                    zombie.send(topic, [b"zombie again"])
                with pytest.raises(self.client.errors):
                    zombie.commit()
        assert self.seen(broker, topic) == [b"heir"]
        assert self.written(broker, topic) == [b"zombie", b"heir"]

    def test_a_transaction_that_takes_too_long_is_aborted_and_its_commit_fails(
        self, broker: Broker, topic: str, unique: Callable[[str], str]
    ) -> None:
        name = unique("id")
        with self.client.producing(broker.bootstrap, name, timeout_ms=TIMEOUT_MS) as slow:
            slow.begin()
            slow.send(topic, [b"slow"])
            assert not is_stable(broker.bootstrap, (topic, 0))
            eventually(lambda: is_stable(broker.bootstrap, (topic, 0)), "the broker aborts it")
            with pytest.raises(self.client.errors):
                slow.commit()
        with self.client.producing(broker.bootstrap, name) as next_one:
            next_one.begin()
            next_one.send(topic, [b"next"])
            next_one.commit()
        assert self.seen(broker, topic) == [b"next"]
        assert self.written(broker, topic) == [b"slow", b"next"]

    def test_a_client_that_went_away_holds_back_others_until_its_time_out_only(
        self, broker: Broker, topic: str, unique: Callable[[str], str]
    ) -> None:
        with self.client.producing(broker.bootstrap, unique("id"), timeout_ms=TIMEOUT_MS) as gone:
            gone.begin()
            gone.send(topic, [b"gone"])
        confluent.fill(broker.bootstrap, topic, [b"held back"])
        assert self.seen(broker, topic) == [b"held back"]

    def test_a_time_out_above_the_brokers_maximum_is_refused(
        self, broker: Broker, unique: Callable[[str], str]
    ) -> None:
        with (
            pytest.raises(self.client.errors),
            self.client.producing(broker.bootstrap, unique("id"), timeout_ms=900_001),
        ):
            pass
