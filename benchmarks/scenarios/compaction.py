"""Compacted topics: the speed of cleaning, its effect on producers, and the cost of checking their records.

A log is written under cleanup.policy=delete, and the policy changed: then all of it is dirty at once, and the clock
runs until no segment is left that was there before. At the end a quarter of the records is left or less.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from benchmarks.bench import Bench, Figures, Round, latencies, scenario, work
from benchmarks.load.answers import BadAnswer, check_produce
from benchmarks.load.connection import Connection
from benchmarks.load.replay import Replayer, connect
from benchmarks.load.requests import keyed_batch, numbered, produce
from benchmarks.scenarios.raw import small_produce

BATCH_BYTES = 16 << 10  # batch.size of Java's producer
SEGMENT_BYTES = 16 << 20
TAPE_MIB = 24  # of requests that differ; a longer log has them several times
CLEANED_PART = 8  # of --fill-mib
DEADLINE_S = 300.0
KEY_BYTES = 12


def _requests(topic: str, value_bytes: int, mib: float) -> list[bytes]:
    """Produce requests of a batch each; keys are chosen at random."""
    chance = random.Random(4711)
    records = BATCH_BYTES // (value_bytes + KEY_BYTES)
    batches = max(int(mib * 2**20) // BATCH_BYTES, 2)
    # As many keys as records, chosen at random: a third of them have none, and others several.
    keys = [f"key-{number:0{KEY_BYTES - 4}}".encode() for number in range(batches * records)]
    return numbered(
        produce(topic, [0], keyed_batch(chance.choices(keys, k=records), value_bytes)) for _ in range(batches)
    )


class _Cleaning:
    """Topics that one after the other are written, become compacted, and are cleaned."""

    def __init__(self, bench: Bench, value_bytes: int, mib: int) -> None:
        self._bench = bench
        self._value_bytes = value_bytes
        self._mib = mib
        self._numbers = count()
        self._topic = ""
        with Connection(bench.broker.port) as connection:
            connection.alter_broker({"log.cleaner.backoff.ms": "50"})

    def store(self) -> float:
        """Writes a topic; returns the bytes that there will be to clean."""
        bench = self._bench
        self._topic = f"clean-{next(self._numbers)}"
        bench.create(
            {self._topic: 1},
            {
                "cleanup.policy": "delete",
                "segment.bytes": str(SEGMENT_BYTES if self._mib >= 2 * SEGMENT_BYTES >> 20 else 1 << 20),
                "retention.ms": "-1",
                "min.cleanable.dirty.ratio": "0.01",
            },
        )
        requests = _requests(self._topic, self._value_bytes, min(self._mib, TAPE_MIB))
        sockets = connect(bench.broker.port, 1)
        replayer = Replayer(sockets, requests, check_produce(self._topic, 1), depth=4)
        try:
            replayer.send(max(self._mib * 2**20 // BATCH_BYTES, len(requests)))
        finally:
            replayer.close()
            sockets[0].close()
        self._sealed = {path.stat().st_ino: path.stat().st_size for path in sorted(self._logs())[:-1]}
        return sum(self._sealed.values())

    def begin(self) -> None:
        with Connection(self._bench.broker.port) as connection:
            connection.alter_topic(self._topic, {"cleanup.policy": "compact"})

    def wait(self) -> None:
        """Waits until no segment is left that was sealed when the cleaning began."""
        deadline_s = time.monotonic() + DEADLINE_S
        while self._is_dirty():
            if time.monotonic() > deadline_s:
                raise BadAnswer(f"{self._topic} was not cleaned within {DEADLINE_S:.0f} s")
            time.sleep(0.01)

    def remove(self) -> None:
        with Connection(self._bench.broker.port) as connection:
            connection.delete([self._topic])

    def _logs(self) -> Sequence[Path]:
        return list((self._bench.broker.data / f"{self._topic}-0").glob("*.log"))

    def _is_dirty(self) -> bool:
        folder = self._bench.broker.data / f"{self._topic}-0"
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.inode()) for entry in entries]
        return any(
            name.endswith((".cleaned", ".swap")) or (name.endswith(".log") and inode in self._sealed)
            for name, inode in found
        )


def _clean(bench: Bench, record_bytes: int) -> Round:
    cleaning = _Cleaning(bench, record_bytes - KEY_BYTES, max(bench.options.fill_mib // CLEANED_PART, 3))
    # A cleaning of its own as a warm-up: a JVM has to compile it, kwire to start its process.
    for _ in range(2):
        cleaning.store()
        cleaning.begin()
        cleaning.wait()
        cleaning.remove()

    def measure() -> Figures:
        size_bytes = cleaning.store()
        start = bench.meter.read()
        cleaning.begin()
        cleaning.wait()
        usage = bench.meter.since(start)
        cleaning.remove()
        return work(usage, size_bytes=size_bytes)

    return measure


@scenario("clean-100b", "a log of keyed records of 100 B becomes compacted: an eighth of --fill-mib")
def clean_100b(bench: Bench) -> Round:
    return _clean(bench, 100)


@scenario("clean-1k", "the same with records of 1 KiB")
def clean_1k(bench: Bench) -> Round:
    return _clean(bench, 1024)


@scenario("beside-cleaning", "raw-rtt while a log of keyed records of 100 B is cleaned (--fill-mib), and without that")
def beside_cleaning(bench: Bench) -> Round:
    bench.create({"t": 1})
    requests, check = small_produce(), check_produce("t", 1)
    bench.warm(requests, check)
    cleaning = _Cleaning(bench, 100 - KEY_BYTES, bench.options.fill_mib)

    def measure() -> Figures:
        cleaning.store()
        bench.drop_cached()
        alone = latencies(bench.replay(requests, check, connections=1, depth=1).latencies_ns)
        cleaning.begin()
        played = bench.replay(requests, check, connections=1, depth=1)
        beside = latencies(played.latencies_ns)
        cleaning.wait()
        cleaning.remove()
        return beside | {"alone_p99_ms": alone["p99_ms"], "p99_beside": beside["p99_ms"] / alone["p99_ms"]}

    return measure


@scenario(
    "keyed-100b", "replayed Produce of a batch of keyed records of 100 B to a compacted topic, and to one that is not"
)
def keyed_100b(bench: Bench) -> Round:
    # No part of a log is larger than the whole: it is never cleaned.
    bench.create({"c": 1}, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"})
    bench.create({"t": 1})
    tapes = {topic: _requests(topic, 100 - KEY_BYTES, min(bench.options.fill_mib, 8)) for topic in ("c", "t")}
    for topic, requests in tapes.items():
        bench.warm(requests, check_produce(topic, 1), share=0.5)
    records = BATCH_BYTES // 100

    def measure() -> Figures:
        figures: dict[str, Figures] = {}
        for topic, requests in tapes.items():
            played = bench.replay(requests, check_produce(topic, 1), connections=4, depth=2)
            figures[topic] = work(played.usage, records=played.requests * records)
            bench.drop_cached()
        return figures["c"] | {"plain_cpu_s_per_mrecord": figures["t"]["cpu_s_per_mrecord"]}

    return measure
