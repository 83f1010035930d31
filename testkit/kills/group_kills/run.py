"""The loop: a producer, members in processes of their own, and something is killed again and again.

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
from testkit.clients.transactions.asking import end_offset
from testkit.kills.group_kills.share_ledger import ShareLedger
from testkit.kills.group_kills.shared import SHARE, Shared
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
"""How many of them leave the broker alone."""


@attrs.define
class Account:
    """What a run has come to."""

    kills: Counter[str] = attrs.field(factory=Counter)
    records: int = 0
    deliveries: int = 0
    protocols: Counter[str] = attrs.field(factory=Counter)
    """How many members of each protocol there were."""
    share_deliveries: int = 0
    letters: int = 0
    rejections: int = 0
    """Those that a member heard of."""

    @property
    def progress(self) -> str:
        return f"{self.records:,} records acknowledged"

    def __str__(self) -> str:
        ways = ", ".join(f"{count} {way}" for way, count in sorted(self.kills.items()))
        members = ", ".join(f"{count} {protocol}" for protocol, count in sorted(self.protocols.items()))
        return (
            f"{self.kills.total()} kills ({ways}); {members} members; {self.records:,} records acknowledged, "
            f"none skipped; {self.deliveries:,} delivered; {self.share_deliveries:,} in the share group, each record "
            f"ended once, {self.letters:,} of them as dead letters"
        )


@attrs.define(eq=False)
class Ledger:
    """What was read, by partition. Members tell it from threads of their own."""

    read: dict[int, set[int]] = attrs.field(factory=dict)
    deliveries: int = 0
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def tell(self, _read: str, partition: int, first: int, last: int) -> None:
        """A line of reader.py."""
        with self._lock:
            self.read.setdefault(partition, set()).update(range(first, last + 1))
            self.deliveries += last - first + 1

    def missing(self, partition: int, end: int) -> list[int]:
        """The offsets before `end` that nobody has read."""
        with self._lock:
            return sorted(set(range(end)) - self.read.get(partition, set()))


class Member:
    """A reader's process, and the thread that passes what it says to `tell`, line by line."""

    def __init__(self, module: str, wanted: Mapping[str, Any], tell: Callable[..., None], *, protocol: str) -> None:
        self.protocol = protocol
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"testkit.kills.group_kills.{module}", json.dumps(wanted)],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, args=(tell,), daemon=True)
        self._listener.start()

    def _listen(self, tell: Callable[..., None]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(json.JSONDecodeError):  # the last line of one that was killed
                tell(*json.loads(line))

    def check(self) -> None:
        assert self._process.poll() is None, f"a member ended by itself with {self._process.returncode}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def load(bootstrap: str, topic: str) -> Iterator[Callable[[], int]]:
    """Sends records until the end; calls tell how many were acknowledged."""
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
            assert producer.flush(ENDS_WITHIN_S) == 0, "records were never acknowledged"

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield lambda: acknowledged
    finally:
        over.set()
        sender.join()


def run(
    broker: RestartableBroker,
    *,
    kills: int,
    seed: int,
    name: str,
    on_kill: Callable[[Account], None] = lambda account: None,
) -> Account:
    """Kills members and the broker so many times. AssertionError tells what is wrong, and the seed."""
    chance, account = random.Random(seed), Account()
    ledger, share_ledger = Ledger(), ShareLedger(has_letters=not IS_KAFKA)
    group = topic = f"{name}-{seed}"
    topics.create(broker.bootstrap, topic, partitions=PARTITIONS)
    groups.wait_until_served(broker.bootstrap)
    shared = Shared.begin(broker.bootstrap, f"{name}-share-{seed}", topic, share_ledger)
    members: list[Member] = []
    share_members: list[Member] = []

    def new_member(protocol: str) -> Member:
        account.protocols[protocol] += 1
        config = groups.session(broker.bootstrap, group, protocol, SESSION_MS)
        wanted = {"bootstrap": broker.bootstrap, "topic": topic, "config": config}
        return Member("reader", wanted, ledger.tell, protocol=protocol)

    def new_share_member() -> Member:
        account.protocols[SHARE] += 1
        wanted = {"bootstrap": broker.bootstrap, "group": shared.group, "topic": topic, "seed": chance.random()}
        return Member("share_reader", wanted, share_ledger.tell, protocol=SHARE)

    try:
        with load(broker.bootstrap, topic) as acknowledged:
            members += [new_member(chance.choice(groups.PROTOCOLS)) for _ in range(MEMBERS)]
            share_members += [new_share_member() for _ in range(SHARE_MEMBERS)]
            for _ in range(kills):
                time.sleep(chance.uniform(*PAUSE_S))
                for member in members + share_members:
                    member.check()
                way = chance.choice(WAYS[:_OF_MEMBERS] * (3 if IS_KAFKA else 1) + WAYS[_OF_MEMBERS:])
                of_share = "share" in way
                killed = (share_members if of_share else members) if "member" in way else []
                number, downtime_s = chance.randrange(len(killed) or 1), chance.uniform(0, 0.3)
                if killed:
                    killed[number].kill()
                if "broker" in way:
                    broker.kill()
                    time.sleep(downtime_s)
                    broker.start()
                if of_share:
                    killed[number] = new_share_member()
                elif killed:
                    protocol = killed[number].protocol
                    if "other" in way:
                        protocol = next(it for it in groups.PROTOCOLS if it != protocol)
                    killed[number] = new_member(protocol)
                account.kills[way] += 1
                account.records = acknowledged()
                on_kill(account)
        account.records = acknowledged()
        ends = {it: end_offset(broker.bootstrap, (topic, it), committed=False) for it in range(PARTITIONS)}
        judge(broker.bootstrap, group, topic, ends, ledger)
        shared.judge(ends)
    except AssertionError as problem:
        raise AssertionError(f"{problem}\nseed {seed}, after {account.kills.total()} kills") from problem
    finally:
        for member in members + share_members:
            member.kill()
    account.deliveries = ledger.deliveries
    account.share_deliveries = share_ledger.deliveries
    account.rejections = len(share_ledger.rejected)
    account.letters = len(shared.letters())
    return account


def judge(bootstrap: str, group: str, topic: str, ends: Mapping[int, int], ledger: Ledger) -> None:
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
            skipped = [it for it in ledger.missing(partition, max(offset, 0)) if it < offset]
            assert not skipped, f"partition {partition}: committed {offset}, and nobody read {skipped[:10]}"
        return offsets == ends

    eventually(is_done, f"{group} has read and committed everything up to {ends}", within_s=ENDS_WITHIN_S, pause_s=0.2)
    for partition, end in ends.items():
        assert ledger.missing(partition, end) == []
