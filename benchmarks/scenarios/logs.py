"""The topic that the pipeline's scenarios find: log records as JSON, 200 bytes each, the same in every run.

Record `n` is computed from `n` alone, so a lookup can compute what to expect. A `log_id` is unique. Of ten
million records, each `user_id` has some 100 and each key some 5, all over the topic. Keys and users are independent.
"""

from __future__ import annotations

import random
import time
from typing import Final

from kwire_protocol.records import Record, build_batch

from benchmarks.bench import Bench
from benchmarks.load.answers import check_produce
from benchmarks.load.connection import Connection
from benchmarks.load.requests import produce

TOPIC: Final = "logs"
PARTITIONS: Final = 6
VALUE_BYTES: Final = 200
SCHEMA: Final = "log_id STRING, user_id BIGINT, status STRING, total DOUBLE, at_ms BIGINT, message STRING"
FIELDS: Final = "user_id:BIGINT,log_id:STRING"

_USERS, _KEYS = 100_000, 2_000_000
_BATCH_RECORDS = 500
_FIRST_MS = 1_780_000_000_000
_RECORDS_IN_A_MS = 10
_STATUSES = (b"new", b"paid", b"sent", b"returned")
_WORDS = ("order", "cart", "item", "paid by card", "sent", "to the depot", "retry", "timeout", "after", "in stock")
_TEXT = " ".join(random.Random(4711).choices(_WORDS, k=1000)).encode()


def log_id(n: int) -> str:
    return f"{_scattered(n):016x}"


def user_id(n: int) -> int:
    return (_scattered(n) >> 32) % _USERS


def key(n: int) -> str:
    return f"device-{(n * 0xD1B54A32D192ED03 >> 20) % _KEYS}"


def place(n: int) -> tuple[int, int]:
    """Partition and offset."""
    return n % PARTITIONS, n // PARTITIONS


def value(n: int) -> bytes:
    head = b'{"log_id":"%016x","user_id":%d,"status":"%s","total":%d.%02d,"at_ms":%d,"message":"' % (
        _scattered(n),
        user_id(n),
        _STATUSES[n % 7 % 4],
        n % 977,
        n % 100,
        _FIRST_MS + n // _RECORDS_IN_A_MS,
    )
    begin = n * 7 % 1000
    return head + _TEXT[begin : begin + VALUE_BYTES - 2 - len(head)] + b'"}'


def fill(bench: Bench, records: int) -> None:
    """Makes the topic, and writes so many records to it. Raises BadAnswer."""
    # Nothing of it may go while the scenario lasts.
    bench.create({TOPIC: PARTITIONS}, {"retention.ms": "-1"})
    now_ms = time.time_ns() // 1_000_000
    check = check_produce(TOPIC, 1)
    with Connection(bench.broker.port) as connection:
        for first in range(0, records, PARTITIONS * _BATCH_RECORDS):
            until = min(first + PARTITIONS * _BATCH_RECORDS, records)
            for partition in range(PARTITIONS):
                batch = [
                    Record(key=key(n).encode(), value=value(n), timestamp=now_ms + n // _RECORDS_IN_A_MS)
                    for n in range(first + partition, until, PARTITIONS)
                ]
                if batch:
                    answer = connection.call(produce(TOPIC, [partition], build_batch(batch)))
                    check(answer, 0, len(answer))


def _scattered(n: int) -> int:
    """Another number of 64 bits for each."""
    return n * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
