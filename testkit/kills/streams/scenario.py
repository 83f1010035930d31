"""Words are written and counted while Streams and the broker are killed; each must have been counted once."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

import attrs

from testkit.basics.waiting import eventually
from testkit.clients.confluent import Acknowledgements, producing
from testkit.clients.streams import CLASSIC, WordCount
from testkit.clients.transactions.librdkafka import Confluent
from testkit.clients.transactions.queries import end_offset
from testkit.kills import harness
from testkit.kills.harness import Lap, Scenario
from testkit.raw import topics
from testkit.servers.brokers import RestartableBroker

PARTITIONS = 3
WORDS = ("one", "two", "three", "four", "five", "six", "seven")
# After a kill Streams waits for its former self's session and transactions, and reads its counts back.
PROGRESS_WITHIN_S = 60.0
_PAUSE_S, _FLUSH_WITHIN_S = 0.01, 60.0


@attrs.define(eq=False)
class Writer:
    """Writes lines of words until it is stopped, over any restart, once each."""

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
                partition = self.random.randrange(PARTITIONS)
                producer.produce(self.topic, " ".join(line).encode(), partition=partition, on_delivery=acknowledgements)
                producer.poll(0)
            left = producer.flush(_FLUSH_WITHIN_S)
        assert left == 0, f"{left} lines were not acknowledged within {_FLUSH_WITHIN_S} s"
        assert acknowledgements.errors == [], f"lines were refused: {acknowledgements.errors}"


@attrs.define
class Account(harness.Account):
    words: int = 0

    @property
    def progress(self) -> str:
        return f"{self.words:,} words written"

    @property
    def outcome(self) -> str:
        return f"{self.words:,} words, each counted once"


@attrs.define(eq=False)
class Counting(Scenario[Account]):
    """`name` is that of the application, and begins the names of its topics; `folder` is for its state and its log."""

    broker: RestartableBroker
    folder: Path
    name: str
    protocol: str = CLASSIC
    account: Account = attrs.field(factory=Account)
    _program: WordCount = attrs.field(init=False)

    @_program.default
    def _of_here(self) -> WordCount:
        return WordCount(self.broker.bootstrap, self.name, self.source, self.target, self.folder, self.protocol)

    @property
    def source(self) -> str:
        return f"{self.name}-lines"

    @property
    def target(self) -> str:
        return f"{self.name}-counts"

    def run_lap(self, lap: Lap) -> None:
        broker, account, program = self.broker, self.account, self._program
        for topic in (self.source, self.target):
            topics.create(broker.bootstrap, topic, partitions=PARTITIONS)
        writer = Writer(broker.bootstrap, self.source, random.Random(lap.seed))
        with program.running():
            with writer.writing():
                self._wait_for_commits()
                for _ in lap.kills(lap.each_equally(["Streams and broker"])):
                    threading.Event().wait(lap.chance.random() * 0.3)  # the moment of a kill is what is tried here
                    for kill in lap.chance.sample([program.kill, broker.kill], 2):
                        kill()
                    broker.start()
                    program.start()
                    account.words = writer.written.total()
                    self._wait_for_commits()
            # There is a record for each word: with the last one Streams is through, and one more would be one too many.
            account.words = writer.written.total()
            eventually(lambda: len(self._seen()) >= account.words, "all is counted", within_s=PROGRESS_WITHIN_S)
        judge(self._seen(), writer.written)

    def _wait_for_commits(self) -> None:
        before = self._counted()
        eventually(lambda: self._counted() > before + 100, "Streams commits counts", within_s=PROGRESS_WITHIN_S)

    def _counted(self) -> int:
        bootstrap = self.broker.bootstrap
        return sum(end_offset(bootstrap, (self.target, number), committed=True) for number in range(PARTITIONS))

    def _seen(self) -> list[bytes]:
        """The changes of counts, word by word in their order, as read_committed has them."""
        return Confluent().values(self.broker.bootstrap, self.target, range(PARTITIONS), committed=True)

    def state(self) -> str:
        """The end of what Streams printed."""
        log_file = self._program.log_file
        return log_file.read_text()[-4000:] if log_file.exists() else ""


def judge(seen: Iterable[bytes], written: Counter[str]) -> None:
    """Raises AssertionError unless each word was counted as often as it was written, from 1 on, one by one."""
    counts: dict[str, list[int]] = defaultdict(list)
    for value in seen:
        word, count = value.decode().split()
        counts[word].append(int(count))
    for word in counts | written:
        expected = range(1, written[word] + 1)
        for index, (found, right) in enumerate(zip_longest(counts[word], expected)):
            assert found == right, f"count {index + 1} of {expected.stop - 1} of {word!r} is {found}, not {right}"
