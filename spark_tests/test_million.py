"""A million records of 100 bytes (in `make test` a tenth of it), and not one bit changed on the way into a table."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import Row

from testkit.spark.records import Record, produce
from testkit.spark.tables import Tables

pytestmark = pytest.mark.more

RECORD_BYTES = 100
PARTITIONS = 4
SEED = 20

# Of a record together with its place, so that a record at another's place counts as changed. A sum of such hashes does
# not mind the order in which Spark's tasks come along.
HASH = "crc32(concat(CAST(concat(partition, ':', offset, ':') AS BINARY), value))"


@pytest.mark.parametrize("records", [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_records_are_read_unchanged(tables: Tables, new_topic: Callable[..., str], records: int) -> None:
    topic = new_topic(partitions=PARTITIONS)
    sent = Tally()
    produce(tables.bootstrap, topic, sent.counting(made_up_records(records)), linger_ms=50, batch_size=1 << 19)
    rows = tables.read(subscribe=topic, minPartitions=PARTITIONS * 2)
    found = rows.selectExpr("count(*) AS records", "sum(length(value)) AS bytes", f"sum({HASH}) AS hashes").collect()
    assert found == [Row(records=records, bytes=records * RECORD_BYTES, hashes=sent.hashes)]


def made_up_records(records: int) -> Iterator[Record]:
    noise = random.Random(SEED)
    for number in range(records):
        yield Record(noise.randbytes(RECORD_BYTES), partition=number % PARTITIONS)


class Tally:
    """The expected sums of the table."""

    def __init__(self) -> None:
        self.hashes = 0

    def counting(self, records: Iterator[Record]) -> Iterator[Record]:
        """Passes the records on; the n-th of a partition gets the offset n there."""
        offsets = [0] * PARTITIONS
        for record in records:
            place = f"{record.partition}:{offsets[record.partition]}:".encode()
            self.hashes += zlib.crc32(place + (record.value or b""))
            offsets[record.partition] += 1
            yield record
