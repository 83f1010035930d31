"""Spark reads what transactions wrote: with read_committed exactly the rows that were committed, and not a row more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testkit.clients.transactions.queries import end_offset
from testkit.spark.records import Record, numbered, produce
from testkit.spark.tables import Tables, collecting, numbers
from testkit.spark.transactions import _TIMEOUT_S, PARTITIONS, abort, commit, settle, transaction

pytestmark = pytest.mark.more

COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(partitions=PARTITIONS)


def test_a_batch_has_committed_rows_and_no_aborted_ones(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(30, partitions=PARTITIONS))
    for turn in range(1, 6):
        end = abort if turn % 2 else commit
        end(tables, topic, numbered(30, first=30 * turn, partitions=PARTITIONS))
    committed = [number for turn in (0, 2, 4) for number in range(30 * turn, 30 * turn + 30)]
    assert numbers(tables.read(subscribe=topic, **COMMITTED)) == committed
    assert numbers(tables.read(subscribe=topic)) == list(range(180))
    assert numbers(tables.read(subscribe=topic, **{"kafka.isolation.level": "read_uncommitted"})) == list(range(180))


def test_a_batch_ends_before_an_open_transaction(tables: Tables, topic: str) -> None:
    commit(tables, topic, numbered(30, partitions=PARTITIONS))
    with transaction(tables, topic, [Record(b"100", partition=1)]) as producer:
        produce(tables.bootstrap, topic, numbered(9, first=200, partitions=PARTITIONS))
        behind = [number for number in range(200, 209) if number % PARTITIONS == 1]
        before = [*range(30), *(number for number in range(200, 209) if number % PARTITIONS != 1)]
        assert numbers(tables.read(subscribe=topic, **COMMITTED)) == before
        producer.abort_transaction(_TIMEOUT_S)
    settle(tables, topic)
    assert numbers(tables.read(subscribe=topic, **COMMITTED)) == sorted([*before, *behind])


def test_a_partition_of_aborted_records_only_is_read_to_its_end(tables: Tables, topic: str) -> None:
    for turn in range(3):
        abort(tables, topic, numbered(200, first=200 * turn, partitions=PARTITIONS))
    assert end_offset(tables.bootstrap, (topic, 0), committed=True) > 200
    assert numbers(tables.read(subscribe=topic, **COMMITTED)) == []
    commit(tables, topic, [Record(b"1000", partition=2)])
    assert numbers(tables.read(subscribe=topic, **COMMITTED)) == [1000]


def test_a_stream_reads_each_committed_row_once(tables: Tables, topic: str) -> None:
    stream = tables.stream(subscribe=topic, startingOffsets="earliest", **COMMITTED)
    with collecting(stream) as collected:
        expected: list[int] = []
        for turn in range(4):
            rows = numbered(12, first=12 * turn, partitions=PARTITIONS)
            if turn % 2:
                abort(tables, topic, rows)
            else:
                commit(tables, topic, rows)
                expected += range(12 * turn, 12 * turn + 12)
            assert collected.numbers() == expected
        with transaction(tables, topic, numbered(6, first=100, partitions=PARTITIONS)) as producer:
            assert collected.numbers() == expected
            producer.commit_transaction(_TIMEOUT_S)
        settle(tables, topic)
        assert collected.numbers() == [*expected, *range(100, 106)]
