"""Kafka Streams counts words exactly once, killed and started again together with the broker."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import click
import pytest

from . import topics
from .brokers import KIND, RestartableBroker
from .confluent import Acknowledgements, producing
from .streams import WordCount
from .test_confluent_transactions import Confluent
from .transactions.asking import end_offset
from .waiting import eventually

KILLS = int(os.environ.get("KWIRE_STREAMS_KILLS", "2" if KIND == "kafka" else "5"))
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
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _write(self) -> None:
        acknowledgements = Acknowledgements()
        with producing(self.bootstrap, **{"enable.idempotence": True, "linger.ms": 1}) as producer:
            while not self._stop.wait(_PAUSE_S):
                line = self.random.choices(WORDS, k=3)
                self.written.update(line)
                place = self.random.randrange(PARTITIONS)
                producer.produce(self.topic, " ".join(line).encode(), partition=place, on_delivery=acknowledgements)
                producer.poll(0)
            assert producer.flush(_FLUSH_WITHIN_S) == 0
        assert acknowledgements.errors == []


@pytest.mark.timeout(120 + 60 * KILLS)
def test_words_are_counted_once_though_streams_and_broker_are_killed(
    restartable_broker: RestartableBroker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    seed = int(os.environ.get("KWIRE_STREAMS_SEED", random.randrange(1 << 32)))
    click.echo(f"KWIRE_STREAMS_SEED={seed}")  # which pytest shows when the test fails
    chance = random.Random(seed)
    broker, name = restartable_broker, unique("app")
    source, target = f"{name}-lines", f"{name}-counts"
    for topic in (source, target):
        topics.create(broker.bootstrap, topic, partitions=PARTITIONS)
    program = WordCount(broker.bootstrap, name, source, target, tmp_path)

    def counted() -> int:
        return sum(end_offset(broker.bootstrap, (target, number), committed=True) for number in range(PARTITIONS))

    def goes_on() -> None:
        before = counted()
        eventually(lambda: counted() > before + 100, "Streams commits counts", within_s=GOES_ON_WITHIN_S)

    writer = Writer(broker.bootstrap, source, random.Random(seed))
    try:
        with program.running():
            with writer.writing():
                for _ in range(KILLS):
                    goes_on()
                    threading.Event().wait(chance.random() * 0.3)  # the moment of a kill is what is tried here
                    for kill in chance.sample([program.kill, broker.kill], 2):
                        kill()
                    broker.start()
                    program.start()
                goes_on()
            # A record for each word: the last of them tells that it is through, and one more would be one too many.
            total = writer.written.total()
            eventually(lambda: len(_seen(broker, target)) >= total, "all is counted", within_s=GOES_ON_WITHIN_S)
    except AssertionError as problem:
        raise AssertionError(f"{problem}\n{program.log_file.read_text()[-4000:]}") from problem
    counts: dict[str, list[int]] = defaultdict(list)
    for value in _seen(broker, target):
        word, count = value.decode().split()
        counts[word].append(int(count))
    assert counts == {word: list(range(1, count + 1)) for word, count in writer.written.items()}


def _seen(broker: RestartableBroker, topic: str) -> list[bytes]:
    """The changes of counts, word by word in their order, as read_committed has them."""
    return Confluent().values(broker.bootstrap, topic, range(PARTITIONS), committed=True)
