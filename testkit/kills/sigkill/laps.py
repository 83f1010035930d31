"""The loop. A lap is some kills in a row with the same clients and topics; then all is read back and judged.

Laps keep a long run level: each has topics of its own, which are deleted once they were found to be right. Which way
the next kill takes, and when, comes from the seed, which is printed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from testkit.basics.waiting import Deadline, eventually
from testkit.clients.confluent import consuming
from testkit.java.dumps import assert_kafka_is_content
from testkit.java.java_host import JavaHost
from testkit.kills.sigkill.killing import WAYS, Killer, Stock
from testkit.kills.sigkill.ledger import Ledger, Spot
from testkit.kills.sigkill.load import SESSION_TIMEOUT_MS, Load
from testkit.raw import groups, topics
from testkit.servers.brokers import IS_KAFKA, RestartableBroker

KILLS_IN_LAP = 30
READ_WITHIN_S = 120.0
START_TAKES_S = 5.0 if IS_KAFKA else 0.35
# One topic rolls by size, at the least that Apache Kafka takes, the other five times a second.
TOPICS = {
    "large": {"segment.bytes": str(1 << 20)},
    "rolling": {"segment.ms": "200"},
}
# Every other lap, from the second on, has one more, which answers when it was synced: that takes its time.
FLUSHED = {"flushed": {"flush.messages": "1"}}
PARTITIONS = 2


@attrs.define
class Account:
    """What a run has come to."""

    kills: Counter[str] = attrs.field(factory=Counter)
    records: int = 0
    deliveries: int = 0
    files_judged: int = 0

    @property
    def progress(self) -> str:
        return f"{self.records:,} records acknowledged"

    def __str__(self) -> str:
        ways = ", ".join(f"{count} {way}" for way, count in sorted(self.kills.items()))
        return (
            f"{self.kills.total()} kills ({ways}); {self.records:,} records acknowledged: none lost, none twice, none "
            f"out of order; {self.deliveries:,} delivered; {self.files_judged:,} files read by DumpLogSegments"
        )


def run(
    broker: RestartableBroker,
    *,
    java: JavaHost,
    kills: int,
    seed: int,
    name: str,
    ways: Sequence[str] = tuple(WAYS),
    on_kill: Callable[[Account], None] = lambda account: None,
) -> Account:
    """Kills the broker so many times. AssertionError tells what is wrong with its data, and the seed."""
    account = Account()
    laps = [min(KILLS_IN_LAP, kills - first) for first in range(0, kills, KILLS_IN_LAP)]
    for number, kills_in_lap in enumerate(laps):
        lap = Lap(broker, java, f"{name}-{number}", random.Random(f"{seed} {number}"), account, ways, on_kill)
        if number % 2:
            lap.topics = TOPICS | FLUSHED
        try:
            lap.run(kills_in_lap)
        except AssertionError as problem:
            complaints = "\n  ".join([str(problem), *lap.ledger.complaints])
            raise AssertionError(
                f"seed {seed}, lap {number}, kill {account.kills.total()} ({lap.way}):\n  {complaints}"
            ) from problem
    return account


@attrs.define(eq=False)
class Lap:
    broker: RestartableBroker
    java: JavaHost
    name: str
    random: random.Random
    account: Account
    ways: Sequence[str]
    on_kill: Callable[[Account], None]
    topics: Mapping[str, dict[str, str]] = attrs.field(default=TOPICS)
    way: str = "not killed yet"
    ledger: Ledger = attrs.field(factory=Ledger)

    def run(self, kills: int) -> None:
        bootstrap, ledger = self.broker.bootstrap, self.ledger
        names = {f"{self.name}-{what}": config for what, config in self.topics.items()}
        for topic, config in names.items():
            topics.create(bootstrap, topic, partitions=PARTITIONS, config=config)
        spots = [(topic, partition) for topic in names for partition in range(PARTITIONS)]
        group = f"{self.name}-group"
        killer = Killer(self.broker, spots, group, ledger, Stock(f"{self.name}-stock"), self.random, START_TAKES_S)
        # A member that leaves while the broker is away keeps its partitions until its session ends.
        groups.configure(bootstrap, group, "consumer.session.timeout.ms", SESSION_TIMEOUT_MS)
        load = Load(bootstrap, spots, group, ledger, seed=self.random.getrandbits(32))
        before = self.account.records, self.account.deliveries
        with load.running():
            for way in self._plan(kills):
                self.way = way
                WAYS[way](killer)
                self.account.kills[way] += 1
                self.account.records = before[0] + ledger.acknowledged.total()
                self.on_kill(self.account)
                self.broker.start()
                killer.ask()
                killer.change_stock()
                assert not ledger.complaints
            self.way = "after the last kill"
            killer.under_load()
            self.broker.start()
        killer.ask()
        assert not ledger.complaints
        # Once more, with nobody there: now the files are as a kill leaves them, and nobody is in doubt of anything.
        self.broker.kill()
        self.account.files_judged += assert_kafka_is_content(self.java, self.broker.data_dir, after_a_crash=True)
        self.broker.start()
        self._judge(killer, spots)
        self.broker.stop()
        self.account.files_judged += assert_kafka_is_content(self.java, self.broker.data_dir)
        # Which Apache Kafka keeps for ever, whatever was deleted.
        assert IS_KAFKA or not list(self.broker.data_dir.glob("*-stray")), "a deletion was not finished"
        self.broker.start()
        self._judge(killer, spots)
        self.account.records = before[0] + ledger.acknowledged.total()
        self.account.deliveries = before[1] + ledger.deliveries
        for topic in (*names, *killer.stock.there):
            topics.delete(bootstrap, topic)

    def _plan(self, kills: int) -> Iterator[str]:
        """Every way about equally often, in an order of its own."""
        ways: list[str] = []
        while len(ways) < kills:
            ways += self.random.sample(self.ways, len(self.ways))
        return iter(ways[:kills])

    def _judge(self, killer: Killer, spots: Sequence[Spot]) -> None:
        """Reads everything back, and holds it against what clients were told."""
        ledger = self.ledger
        found = killer.committed()
        for spot in spots:
            end = killer.end_offset(spot)
            ledger.check_end(spot, ledger.end_of(spot), end)
            ledger.check_log(spot, end, read_values(self.broker.bootstrap, spot, end))
            ledger.check_committed(spot, ledger.committed.get(spot, 0), found[spot])
        assert not ledger.complaints


def read_values(bootstrap: str, spot: Spot, end_offset: int) -> Iterator[tuple[int, bytes]]:
    """Offset and value of every record that is given to a consumer."""
    deadline, position = Deadline(READ_WITHIN_S), 0
    with consuming(bootstrap, **{"check.crcs": True, "auto.offset.reset": "error"}) as consumer:
        eventually(lambda: spot[0] in consumer.list_topics(spot[0], timeout=20.0).topics, "metadata")
        consumer.assign([TopicPartition(*spot, OFFSET_BEGINNING)])
        while position < end_offset and deadline.not_over(f"{spot} up to {end_offset}; it stands at {position}"):
            for message in consumer.consume(num_messages=1000, timeout=0.05):
                error = message.error()
                assert error is None, error
                position = int(message.offset() or 0) + 1
                yield position - 1, bytes(message.value() or b"")
