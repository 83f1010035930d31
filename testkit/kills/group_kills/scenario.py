"""A producer, members in processes of their own, and something is killed again and again.

Three members read the topic as a consumer group, and two share it as a share group. Both have to come to its end.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import attrs
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from devtools.places import REPOSITORY
from testkit.basics.waiting import eventually
from testkit.clients.confluent import producing
from testkit.clients.transactions.queries import end_offset
from testkit.kills import harness
from testkit.kills.complaints import Complaints
from testkit.kills.group_kills.share_ledger import ShareLedger
from testkit.kills.group_kills.shared import SHARE, Shared
from testkit.kills.group_ledger import GroupLedger
from testkit.kills.harness import Lap, Scenario
from testkit.raw import groups, topics
from testkit.servers.brokers import IS_KAFKA, RestartableBroker

MEMBERS, SHARE_MEMBERS, PARTITIONS = 3, 2, 6
SESSION_MS = 2_000
ENDS_WITHIN_S = 90.0
PAUSE_S = (0.2, 1.2)
# A record is small, and there are some hundred a second: a kill meets them anywhere, and two processors keep up.
SEND_PAUSE_S = 0.005
WAYS = (
    "a member",
    "a member, replaced by one of the other protocol",
    "a share member",
    "the broker",
    "the broker and a member",
    "the broker and a share member",
)
_OF_MEMBERS = 3
"""The number of the first WAYS that leave the broker alone."""


@attrs.define
class Account(harness.Account):
    records: int = 0
    deliveries: int = 0
    protocols: Counter[str] = attrs.field(factory=Counter)
    """The number of members of each protocol."""
    share_deliveries: int = 0
    letters: int = 0
    rejections: int = 0
    """The number of rejections that were confirmed to a member."""

    @property
    def progress(self) -> str:
        return f"{self.records:,} records acknowledged"

    @property
    def outcome(self) -> str:
        members = ", ".join(f"{count} {protocol}" for protocol, count in sorted(self.protocols.items()))
        return (
            f"{members} members; {self.records:,} records acknowledged, none skipped; {self.deliveries:,} delivered; "
            f"{self.share_deliveries:,} in the share group, each record ended once, {self.letters:,} of them as dead "
            "letters"
        )


class Member:
    """A reader's process, and the thread that passes its lines to `report`."""

    def __init__(self, module: str, wanted: Mapping[str, Any], report: Callable[..., None], *, protocol: str) -> None:
        self.protocol = protocol
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"testkit.kills.group_kills.{module}", json.dumps(wanted)],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, args=(report,), daemon=True)
        self._listener.start()

    def _listen(self, report: Callable[..., None]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(json.JSONDecodeError):  # the last line of one that was killed
                report(*json.loads(line))

    def check(self) -> None:
        assert self._process.poll() is None, f"a member ended by itself with {self._process.returncode}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@attrs.define(eq=False)
class Members:
    """The members of the group, which has the topic's name, and of the share group."""

    bootstrap: str
    topic: str
    share_group: str
    chance: random.Random
    ledger: GroupLedger
    share_ledger: ShareLedger
    protocols: Counter[str] = attrs.field(factory=Counter)
    """The number of members of each protocol."""
    _of_group: list[Member] = attrs.field(factory=list)
    _of_share: list[Member] = attrs.field(factory=list)

    def start_all(self) -> None:
        for _ in range(MEMBERS):
            self._start(self.chance.choice(groups.PROTOCOLS))
        for _ in range(SHARE_MEMBERS):
            self._start(SHARE)

    def _start(self, protocol: str) -> None:
        self.protocols[protocol] += 1
        wanted: dict[str, Any] = {"bootstrap": self.bootstrap, "topic": self.topic}
        if protocol == SHARE:
            wanted |= {"group": self.share_group, "seed": self.chance.random()}
            self._of_share.append(Member("share_reader", wanted, self.share_ledger.note, protocol=protocol))
        else:
            wanted |= {"config": groups.session(self.bootstrap, self.topic, protocol, SESSION_MS)}
            self._of_group.append(Member("reader", wanted, self._read, protocol=protocol))

    def _read(self, _read: str, partition: int, first: int, last: int) -> None:
        """A line of reader.py."""
        self.ledger.deliver((self.topic, partition), *range(first, last + 1))

    def check(self) -> None:
        for member in self._of_group + self._of_share:
            member.check()

    def kill_one(self, *, of_share: bool) -> Member:
        members = self._of_share if of_share else self._of_group
        killed = members.pop(self.chance.randrange(len(members)))
        killed.kill()
        return killed

    def replace(self, killed: Member, *, by_other_protocol: bool) -> None:
        others = [it for it in groups.PROTOCOLS if it != killed.protocol]
        self._start(others[0] if by_other_protocol else killed.protocol)

    def kill_all(self) -> None:
        for member in self._of_group + self._of_share:
            member.kill()


@contextmanager
def load(bootstrap: str, topic: str, complaints: Complaints) -> Iterator[Callable[[], int]]:
    """Sends records until the end; calls `report` with the number of acknowledged records."""
    over = threading.Event()
    acknowledged = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    def send() -> None:
        with producing(bootstrap, **{"enable.idempotence": True, "message.timeout.ms": 120_000}) as producer:
            number = 0
            while not over.is_set():
                with suppress(BufferError):
                    producer.produce(topic, str(number), partition=number % PARTITIONS, on_delivery=delivered)
                    number += 1
                producer.poll(SEND_PAUSE_S)
            if left := producer.flush(ENDS_WITHIN_S):
                complaints.add(f"{left} records were never acknowledged")

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield lambda: acknowledged
    finally:
        over.set()
        sender.join()


@attrs.define(eq=False)
class Groups(Scenario[Account]):
    """Names of topics and groups begin with `name`."""

    broker: RestartableBroker
    name: str
    account: Account = attrs.field(factory=Account)

    def run_lap(self, lap: Lap) -> None:
        broker, account = self.broker, self.account
        topic = f"{self.name}-{lap.chance.getrandbits(32)}"
        topics.create(broker.bootstrap, topic, partitions=PARTITIONS)
        groups.wait_until_served(broker.bootstrap)
        ledger, share_ledger = GroupLedger(), ShareLedger(has_letters=not IS_KAFKA)
        shared = Shared.begin(broker.bootstrap, f"{topic}-share", topic, share_ledger)
        members = Members(broker.bootstrap, topic, shared.group, lap.chance, ledger, share_ledger)
        try:
            with load(broker.bootstrap, topic, lap.complaints) as acknowledged:
                members.start_all()
                for way in lap.kills(_ways(lap.chance)):
                    time.sleep(lap.chance.uniform(*PAUSE_S))
                    members.check()
                    self._kill(way, members, lap.chance)
                    account.records = acknowledged()
            account.records = acknowledged()
            ends = {it: end_offset(broker.bootstrap, (topic, it), committed=False) for it in range(PARTITIONS)}
            judge(broker.bootstrap, topic, topic, ends, ledger)
            shared.judge(ends)
        finally:
            members.kill_all()
        account.protocols = members.protocols
        account.deliveries = ledger.deliveries
        account.share_deliveries = share_ledger.deliveries
        account.rejections = len(share_ledger.rejected)
        account.letters = len(shared.letters())

    def _kill(self, way: str, members: Members, chance: random.Random) -> None:
        downtime_s = chance.uniform(0, 0.3)
        killed = members.kill_one(of_share="share" in way) if "member" in way else None
        if "broker" in way:
            self.broker.kill()
            time.sleep(downtime_s)
            self.broker.start()
        if killed is not None:
            members.replace(killed, by_other_protocol="other" in way)


def _ways(chance: random.Random) -> Iterator[str]:
    while True:
        yield chance.choice(WAYS[:_OF_MEMBERS] * (3 if IS_KAFKA else 1) + WAYS[_OF_MEMBERS:])


def judge(bootstrap: str, group: str, topic: str, ends: Mapping[int, int], ledger: GroupLedger) -> None:
    """Everything was read, and the group's offsets come to the ends of the partitions."""

    def committed() -> dict[int, int] | None:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, it) for it in ends])
        try:
            answer = topics.admin(bootstrap).list_consumer_group_offsets([wanted])[group].result()
        except KafkaException:
            return None
        return {it.partition: it.offset for it in answer.topic_partitions or ()}

    def is_done() -> bool:
        offsets = committed()
        for partition, offset in (offsets or {}).items():
            skipped = ledger.missing((topic, partition), max(offset, 0))
            assert not skipped, f"partition {partition}: committed {offset}, and nobody read {skipped[:10]}"
        return offsets == ends

    eventually(is_done, f"{group} has read and committed everything up to {ends}", within_s=ENDS_WITHIN_S, pause_s=0.2)
    for partition, end in ends.items():
        assert ledger.missing((topic, partition), end) == []
