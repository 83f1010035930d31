"""A broker under load that is killed; then all is read back, and Kafka's tool reads every file."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from testkit.java.dumps import assert_kafka_is_content
from testkit.java.java_host import JavaHost
from testkit.kills import harness
from testkit.kills.harness import Lap, Scenario
from testkit.kills.sigkill.killing import WAYS, Killer, Stock
from testkit.kills.sigkill.ledger import Ledger
from testkit.kills.sigkill.load import SESSION_TIMEOUT_MS, Load, read_values
from testkit.raw import groups, topics
from testkit.servers.brokers import IS_KAFKA, RestartableBroker

# One topic rolls by size, at the least that Apache Kafka takes, the other five times a second.
TOPICS = {
    "large": {"segment.bytes": str(1 << 20)},
    "rolling": {"segment.ms": "200"},
}
# Every other lap, from the second on, has one more, which answers when it was synced: that takes its time.
FLUSHED = {"flushed": {"flush.messages": "1"}}
PARTITIONS = 2


@attrs.define
class Account(harness.Account):
    records: int = 0
    deliveries: int = 0
    files_judged: int = 0

    @property
    def progress(self) -> str:
        return f"{self.records:,} records acknowledged"

    @property
    def outcome(self) -> str:
        return (
            f"{self.records:,} records acknowledged: none lost, none twice, none out of order; "
            f"{self.deliveries:,} delivered; {self.files_judged:,} files read by DumpLogSegments"
        )


@attrs.define(eq=False)
class Sigkills(Scenario[Account]):
    """Topics of a lap begin with `name`."""

    broker: RestartableBroker
    java: JavaHost
    name: str
    ways: Sequence[str] = tuple(WAYS)
    account: Account = attrs.field(factory=Account)
    kills_in_lap = 30

    def run_lap(self, lap: Lap) -> None:
        bootstrap, account, ledger = self.broker.bootstrap, self.account, Ledger(complaints=lap.complaints)
        name = f"{self.name}-{lap.number}"
        configs = {f"{name}-{what}": it for what, it in (TOPICS | (FLUSHED if lap.number % 2 else {})).items()}
        for topic, config in configs.items():
            topics.create(bootstrap, topic, partitions=PARTITIONS, config=config)
        spots = [(topic, partition) for topic in configs for partition in range(PARTITIONS)]
        group = f"{name}-group"
        killer = Killer(self.broker, spots, group, ledger, Stock(f"{name}-stock"), lap.chance)
        # A member that leaves while the broker is away keeps its partitions until its session ends.
        groups.configure(bootstrap, group, "consumer.session.timeout.ms", SESSION_TIMEOUT_MS)
        load = Load(bootstrap, spots, group, ledger, seed=lap.chance.getrandbits(32))
        records, deliveries = account.records, account.deliveries
        with load.running():
            for way in lap.kills(lap.each_equally(self.ways)):
                WAYS[way](killer)
                account.records = records + ledger.acknowledged.total()
                self.broker.start()
                killer.check_promises()
                killer.change_stock()
            killer.under_load()
            self.broker.start()
        killer.check_promises()
        lap.complaints.check()
        # Once more, with nobody there: now the files are as a kill leaves them, and nobody is in doubt of anything.
        self.broker.kill()
        account.files_judged += assert_kafka_is_content(self.java, self.broker.data_dir, after_a_crash=True)
        self.broker.start()
        self._judge(killer, ledger)
        self.broker.stop()
        account.files_judged += assert_kafka_is_content(self.java, self.broker.data_dir)
        # Which Apache Kafka keeps for ever, whatever was deleted.
        assert IS_KAFKA or not list(self.broker.data_dir.glob("*-stray")), "a deletion was not finished"
        self.broker.start()
        self._judge(killer, ledger)
        account.records = records + ledger.acknowledged.total()
        account.deliveries = deliveries + ledger.group.deliveries
        for topic in (*configs, *killer.stock.there):
            topics.delete(bootstrap, topic)

    def _judge(self, killer: Killer, ledger: Ledger) -> None:
        """Reads everything back, and compares it with the responses that clients got."""
        ledger.check_committed(ledger.group.known(), killer.committed())
        for spot in killer.spots:
            end = killer.end_offset(spot)
            ledger.check_end(spot, ledger.end_of(spot), end)
            ledger.check_log(spot, end, read_values(self.broker.bootstrap, spot, end))
        ledger.complaints.check()
