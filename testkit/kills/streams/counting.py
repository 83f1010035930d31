"""Words are written and counted while Streams and the broker are killed; each must have been counted once."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

import attrs

from testkit.basics.waiting import eventually
from testkit.clients.confluent import Acknowledgements, producing
from testkit.clients.streams import CLASSIC, WordCount
from testkit.clients.transactions.asking import end_offset
from testkit.clients.transactions.librdkafka import Confluent
from testkit.raw import topics
from testkit.servers.brokers import RestartableBroker

PARTITIONS = 3
WORDS = ("one", "two", "three", "four", "five", "six", "seven")
# After a kill Streams waits for its former self's session and transactions, and reads its counts back.
GOES_ON_WITHIN_S = 60.0
_PAUSE_S, _FLUSH_WITHIN_S = 0.01, 60.0


@attrs.define(eq=False)
class Writer:
    """Writes lines of words until it is told to stop, over any restart, once each."""

    bootstrap: str
    topic: str
    random: random.Random
    written: Counter[str] = attrs.field(factory=Counter)
    _stop: threading.Event = attrs.field(factory=threading.Event)

    @contextmanager
    def writing(self) -> Iterator[None]:
        with ThreadPoolExecutor(1) as thread:
            written = thread.submit(self._write)
            try:
                yield
            finally:
                self._stop.set()
            written.result()

    def _write(self) -> None:
        acknowledgements = Acknowledgements()
        with producing(self.bootstrap, **{"enable.idempotence": True, "linger.ms": 1}) as producer:
            while not self._stop.wait(_PAUSE_S):
                line = self.random.choices(WORDS, k=3)
                self.written.update(line)
                place = self.random.randrange(PARTITIONS)
                producer.produce(self.topic, " ".join(line).encode(), partition=place, on_delivery=acknowledgements)
                producer.poll(0)
            left = producer.flush(_FLUSH_WITHIN_S)
        assert left == 0, f"{left} lines were not acknowledged within {_FLUSH_WITHIN_S} s"
        assert acknowledgements.errors == [], f"lines were refused: {acknowledgements.errors}"


@attrs.define
class Account:
    """What a run has come to."""

    kills: Counter[str] = attrs.field(factory=Counter)
    words: int = 0

    @property
    def progress(self) -> str:
        return f"{self.words:,} words written"

    def __str__(self) -> str:
        return f"{self.kills.total()} kills; {self.words:,} words, each counted once"


def run(
    broker: RestartableBroker,
    *,
    folder: Path,
    kills: int,
    seed: int,
    name: str,
    protocol: str = CLASSIC,
    on_kill: Callable[[Account], None] = lambda account: None,
) -> Account:
    """Kills both so many times. Raises AssertionError when a count is wrong.

    `name` is that of the application, and begins the names of its topics; `folder` is for its state and its log.
    """
    account = Account()
    chance = random.Random(seed)
    source, target = f"{name}-lines", f"{name}-counts"
    for topic in (source, target):
        topics.create(broker.bootstrap, topic, partitions=PARTITIONS)
    program = WordCount(broker.bootstrap, name, source, target, folder, protocol)

    def counted() -> int:
        return sum(end_offset(broker.bootstrap, (target, number), committed=True) for number in range(PARTITIONS))

    def goes_on() -> None:
        before = counted()
        eventually(lambda: counted() > before + 100, "Streams commits counts", within_s=GOES_ON_WITHIN_S)

    def seen() -> list[bytes]:
        """The changes of counts, word by word in their order, as read_committed has them."""
        return Confluent().values(broker.bootstrap, target, range(PARTITIONS), committed=True)

    writer = Writer(broker.bootstrap, source, random.Random(seed))
    try:
        with program.running():
            with writer.writing():
                for _ in range(kills):
                    goes_on()
                    threading.Event().wait(chance.random() * 0.3)  # the moment of a kill is what is tried here
                    for kill in chance.sample([program.kill, broker.kill], 2):
                        kill()
                    broker.start()
                    program.start()
                    account.kills["Streams and broker"] += 1
                    account.words = writer.written.total()
                    on_kill(account)
                goes_on()
            # A record for each word: the last of them tells that it is through, and one more would be one too many.
            account.words = writer.written.total()
            eventually(lambda: len(seen()) >= account.words, "all is counted", within_s=GOES_ON_WITHIN_S)
    except AssertionError as problem:
        raise AssertionError(f"{problem}\n{program.log_file.read_text()[-4000:]}") from problem
    judge(seen(), writer.written)
    return account


def judge(seen: Iterable[bytes], written: Counter[str]) -> None:
    """Raises AssertionError unless each word was counted as often as it was written, from 1 on, one by one."""
    counts: dict[str, list[int]] = defaultdict(list)
    for value in seen:
        word, count = value.decode().split()
        counts[word].append(int(count))
    for word in counts | written:
        expected = range(1, written[word] + 1)
        for place, (found, right) in enumerate(zip_longest(counts[word], expected)):
            assert found == right, f"count {place + 1} of {expected.stop - 1} of {word!r} is {found}, not {right}"
