"""The ways in which a broker is killed, and the checks after each start.

The client of the checks has no state of its own: no leader epoch, no coordinator, no retry.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import ApiMessage

from testkit.basics.waiting import eventually
from testkit.kills.group_ledger import Spot
from testkit.kills.sigkill.ledger import Ledger
from testkit.raw.client import ConnectionClosed, RawClient
from testkit.servers.brokers import IS_KAFKA, RestartableBroker

STOCK_PARTITIONS = 2
MOST_STOCK = 4
LATEST = -1
START_TAKES_S = 5.0 if IS_KAFKA else 0.35
"""About: a kill during a start is somewhere in it."""
_CREATE_VERSION, _DELETE_VERSION, _PRODUCE_VERSION, _LIST_VERSION, _FETCH_VERSION = 7, 6, 9, 7, 8
_ROLL_WITHIN_S = 0.5


@attrs.define(eq=False)
class Stock:
    """Topics besides those under load, which are created and deleted."""

    name: str
    there: set[str] = attrs.field(factory=set)
    in_doubt: set[str] = attrs.field(factory=set)
    """The broker was killed over their creation or deletion."""
    gone: set[str] = attrs.field(factory=set)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)

    def next_name(self) -> str:
        return f"{self.name}-{next(self._numbers)}"


@attrs.define(eq=False)
class Killer:
    """Kills `broker` in one of `WAYS`, and checks its data."""

    broker: RestartableBroker
    spots: list[Spot]
    group: str
    ledger: Ledger
    stock: Stock
    random: random.Random

    # -- ways to be killed; the broker is up before, and is not afterwards

    def under_load(self) -> None:
        """Kills it some time after it has begun to acknowledge again."""
        self._load()
        self._kill_within(0.1)

    def at_a_roll(self) -> None:
        """Kills it as soon as a segment is begun, or half a second later when none is."""
        self._load()
        folders = [self.broker.data_dir / f"{topic}-{partition}" for topic, partition in self.spots]
        before = _logs(folders)
        until = time.monotonic() + _ROLL_WITHIN_S
        while _logs(folders) == before and time.monotonic() < until:
            pass  # a pause would miss what is to be met: the moments after a file was made
        self._kill_within(0.001)

    def over_a_creation(self) -> None:
        name = self.stock.next_name()
        self.stock.in_doubt.add(name)
        self._kill_over(_creation(name), _CREATE_VERSION)

    def over_a_deletion(self) -> None:
        if not self.stock.there:
            self._create(self.stock.next_name())
        name = self.random.choice(sorted(self.stock.there))
        self.stock.there.remove(name)
        self.stock.in_doubt.add(name)
        self._kill_over(_deletion(name), _DELETE_VERSION)

    def during_a_stop(self) -> None:
        """SIGTERM, and SIGKILL before it is through or, as often, just after."""
        self._load()
        self.broker.begin_stop()
        self._kill_within(0.3)

    def during_a_start(self) -> None:
        """Killed under load, and once more while it recovers."""
        self._load()
        self.broker.kill()
        self.broker.begin_start()
        self._kill_within(START_TAKES_S)

    def _kill_within(self, seconds: float) -> None:
        time.sleep(self.random.random() * seconds)  # the moment of a kill is what is tried here
        self.broker.kill()

    def _kill_over(self, request: ApiMessage, version: int) -> None:
        with RawClient(self.broker.bootstrap) as client:
            client.send_requests((request, version))
            self._kill_within(0.006)

    def _load(self) -> None:
        """Waits until producers are at work; every other time, until members are, too, which may be rebalancing."""
        ledger = self.ledger
        acknowledged = ledger.acknowledged.total() + self.random.randrange(1, 200)
        deliveries = ledger.group.deliveries if self.random.random() < 0.5 else -1
        eventually(
            lambda: (
                (ledger.acknowledged.total() > acknowledged and ledger.group.deliveries > deliveries)
                or bool(ledger.complaints)
            ),
            "records are acknowledged and delivered after a start",
        )

    # -- after a start

    def check_promises(self) -> None:
        """Compares the broker's answers with earlier acknowledgements."""
        ledger = self.ledger
        ends = {spot: ledger.end_of(spot) for spot in self.spots}
        commits = ledger.group.known()
        for spot, known in ends.items():
            ledger.check_end(spot, known, self.end_offset(spot))
        ledger.check_committed(commits, self.committed())

    def change_stock(self) -> None:
        """Settles what a kill left in doubt, checks what is there, and makes a topic and deletes one."""
        stock, ledger = self.stock, self.ledger
        for name in sorted(stock.in_doubt):
            self._delete(name, may_be_gone=True)
        stock.in_doubt.clear()
        for name in sorted(stock.there):
            for index in range(STOCK_PARTITIONS):
                end = self.end_offset((name, index))
                if end != 1:
                    ledger.complain(f"{name}-{index}, created and written to once, ends at {end}")
        with self._client() as client:
            for name in sorted(stock.gone):
                eventually(partial(_is_gone, client, name), f"{name}, deleted, is gone")
        stock.gone.clear()
        self._create(stock.next_name())
        if len(stock.there) > MOST_STOCK:
            self._delete(min(stock.there))

    def end_offset(self, spot: Spot) -> int:
        with self._client() as client:
            return eventually(lambda: _led_end(client, spot), f"{spot} has a leader") - 1

    def committed(self) -> dict[Spot, int]:
        """Returns the group's committed offset of each partition; -1 for none."""
        wanted = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=[spot[1] for spot in self.spots if spot[0] == topic])
            for topic in sorted({topic for topic, _ in self.spots})
        ]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.group, topics=wanted)], require_stable=True)

        def served() -> dict[Spot, int]:
            with self._client() as client:
                (group,) = client.call(request, _FETCH_VERSION).groups
            if group.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                return {}
            assert group.error_code == ErrorCode.NONE, group
            return {
                (it.name, one.partition_index): one.committed_offset for it in group.topics for one in it.partitions
            }

        return eventually(served, "the group's coordinator answers")

    # -- topics of the stock

    def _create(self, name: str) -> None:
        with self._client() as client:
            (topic,) = client.call(_creation(name), _CREATE_VERSION).topics
            assert topic.error_code == ErrorCode.NONE, topic
            for index in range(STOCK_PARTITIONS):
                eventually(partial(_written, client, name, index), f"{name}-{index} takes a record")
        self.stock.there.add(name)

    def _delete(self, name: str, *, may_be_gone: bool = False) -> None:
        with self._client() as client:
            (answer,) = client.call(_deletion(name), _DELETE_VERSION).responses
        gone = may_be_gone and answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert gone or answer.error_code == ErrorCode.NONE, answer
        self.stock.there.discard(name)
        self.stock.gone.add(name)

    @contextmanager
    def _client(self) -> Iterator[RawClient]:
        with RawClient(self.broker.bootstrap) as client:
            try:
                yield client
            except ConnectionClosed:
                raise AssertionError("the broker hung up on a request that it should answer") from None


WAYS: dict[str, Callable[[Killer], None]] = {
    "under load": Killer.under_load,
    "at a roll": Killer.at_a_roll,
    "over a creation": Killer.over_a_creation,
    "over a deletion": Killer.over_a_deletion,
    "during a stop": Killer.during_a_stop,
    "during a start": Killer.during_a_start,
}


def _logs(folders: Sequence[os.PathLike[str]]) -> int:
    return sum(name.endswith(".log") for folder in folders for name in os.listdir(folder))  # noqa: PTH208 - names only


def _creation(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, STOCK_PARTITIONS, 1)], timeout_ms=10_000)


def _deletion(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name)], timeout_ms=10_000)


def _written(client: RawClient, name: str, index: int) -> bool:
    """True if a record was appended; False while the partition has no leader, as in Apache Kafka for some moments."""
    data = TopicProduceData(name, partition_data=[PartitionProduceData(index, build_batch([Record(value=b"stock")]))])
    answer = client.call(ProduceRequest(None, -1, 10_000, [data]), _PRODUCE_VERSION)
    error = answer.responses[0].partition_responses[0].error_code
    assert error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER), error
    return bool(error == ErrorCode.NONE)


def _is_gone(client: RawClient, name: str) -> bool:
    return _end_offset(client, (name, 0))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _end_offset(client: RawClient, spot: Spot) -> tuple[int, int]:
    wanted = ListOffsetsTopic(spot[0], [ListOffsetsPartition(spot[1], timestamp=LATEST)])
    (topic,) = client.call(ListOffsetsRequest(-1, topics=[wanted]), _LIST_VERSION).topics
    return topic.partitions[0].error_code, topic.partitions[0].offset


def _led_end(client: RawClient, spot: Spot) -> int:
    """Returns the end offset + 1, so that an empty log counts as an answer; 0 while the partition has no leader."""
    error, offset = _end_offset(client, spot)
    assert error in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE), error
    return offset + 1 if error == ErrorCode.NONE else 0
