"""The record builders and readers of two Python clients, each with its own code for them, against ours."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record import default_records as aio_records
from aiokafka.record.memory_records import MemoryRecords as AioMemoryRecords
from kwire_protocol.records import Record, build_batch, check_batch, iter_records, read_header, read_produced_batch

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # about kafka-python's own code
    from kafka.record import default_records as kafka_python_records
    from kafka.record.memory_records import MemoryRecords as KafkaPythonMemoryRecords

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value" * 300, (("name", b"1"), ("name", b""))),
    Record(1, 1_699_999_999_000, None, b""),
    Record(2, 1_700_000_000_001, b"", None, (("größe", b"x"),)),
    *(Record(3 + i, 1_700_000_000_000 + i * i, b"%d" % i, b"v" * i) for i in range(300)),
]
BUILDERS = {
    "aiokafka": aio_records.DefaultRecordBatchBuilder,
    "aiokafka without C": aio_records._DefaultRecordBatchBuilderPy,
    "kafka-python": kafka_python_records.DefaultRecordBatchBuilder,
}
READERS = {"aiokafka": AioMemoryRecords, "kafka-python": KafkaPythonMemoryRecords}


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("name", BUILDERS)
def test_their_batches_are_read(name: str, codec: int) -> None:
    builder: Any = BUILDERS[name](
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=7,
        producer_epoch=1,
        base_sequence=4,
        batch_size=1 << 20,
    )
    for record in RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    header = read_produced_batch(memoryview(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 4)
    assert header.last_sequence == 4 + len(RECORDS) - 1
    assert header.compression == codec
    assert list(iter_records(batch)) == RECORDS


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_our_batches_are_read_by_them(reader: Callable[[bytes], Any], codec: int) -> None:
    log = build_batch(RECORDS, compression=codec) + build_batch(RECORDS[:2], compression=codec, base_offset=400)
    check_batch(log, read_header(log))
    records = reader(log)
    read = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        read += [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == RECORDS + [record._replace(offset=400 + i) for i, record in enumerate(RECORDS[:2])]
