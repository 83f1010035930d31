"""Compacted topics: the records that a cleaning leaves for consumers, wherever they read from."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from testkit.basics.waiting import Deadline
from testkit.clients.compacted_tables import CONFIG, SEGMENT_MS, Table, frequent_cleanings
from testkit.clients.confluent import CALL_TIMEOUT_S, Acknowledgements, consuming, producing, reading, send_all, take
from testkit.java.dumps import assert_kafka_is_content, dump
from testkit.java.java_host import JavaHost
from testkit.raw import topics
from testkit.raw.nodes import NODE
from testkit.servers.brokers import IS_KAFKA, Broker, RestartableBroker
from testkit.servers.brokers import restartable_broker as new_broker


@pytest.fixture
def cleaned_often(broker: Broker) -> Iterator[None]:
    with frequent_cleanings(broker.bootstrap):
        yield


@pytest.fixture
def table(broker: Broker, new_topic: Callable[..., str], cleaned_often: None) -> Table:
    return Table(broker.bootstrap, new_topic(config=CONFIG))


def test_the_latest_value_of_each_key_stays_where_it_was(table: Table) -> None:
    table.write(("a", "1"), ("b", "1"), ("c", "1"))
    table.write(("b", "2"), ("a", "2"), ("a", "3"))
    table.write(("d", "1"))
    table.becomes([(2, "c", "1"), (3, "b", "2"), (5, "a", "3"), (6, "d", "1")])
    # New records are appended at the end of the log, and are compacted together with the older ones.
    table.write(("c", "2"))
    table.write(("e", "1"))
    table.becomes([(3, "b", "2"), (5, "a", "3"), (6, "d", "1"), (7, "c", "2"), (8, "e", "1")])


def test_the_segment_that_is_written_to_is_not_compacted(table: Table) -> None:
    table.write(("a", "1"), ("a", "2"))
    table.write(("a", "3"), ("a", "4"))
    table.becomes([(1, "a", "2"), (2, "a", "3"), (3, "a", "4")])


def test_a_tombstone_takes_its_key_with_it_and_goes_itself_one_cleaning_later(table: Table) -> None:
    table.write(("a", "1"), ("b", "1"))
    table.write(("a", None))
    table.write(("c", "1"))
    table.becomes([(1, "b", "1"), (2, "a", None), (3, "c", "1")])
    table.write(("d", "1"))
    table.becomes([(1, "b", "1"), (3, "c", "1"), (4, "d", "1")])


def test_a_tombstone_is_there_for_its_retention_time(table: Table) -> None:
    topics.configure(table.bootstrap, table.topic, {"delete.retention.ms": "3600000"})
    table.write(("a", "1"), ("b", "1"))
    table.write(("a", None))
    table.write(("c", "1"))
    table.becomes([(1, "b", "1"), (2, "a", None), (3, "c", "1")])
    table.write(("b", "2"))
    table.write(("c", "2"))
    table.becomes([(2, "a", None), (3, "c", "1"), (4, "b", "2"), (5, "c", "2")])


def test_a_reader_continues_from_an_offset_that_is_no_longer_there(table: Table, group: str) -> None:
    names = {"group.id": group}
    table.write(*[("a", str(number)) for number in range(10)])
    with consuming(table.bootstrap, **names) as consumer:
        consumer.commit(offsets=[TopicPartition(table.topic, 0, 4)], asynchronous=False)
    table.write(("b", "1"))
    table.becomes([(9, "a", "9"), (10, "b", "1")])
    for start in (0, 4, 8):
        assert table.rows(start) == table.rows()
    assert table.rows(10) == [(10, "b", "1")]
    with consuming(table.bootstrap, table.topic, **names) as consumer:
        assert [message.offset() for message in take(consumer, 2)] == [9, 10]
        low, high = consumer.get_watermark_offsets(TopicPartition(table.topic, 0), timeout=CALL_TIMEOUT_S)
    assert (low, high) == (0, 11)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_of_a_batch_the_records_stay_that_are_the_latest(table: Table, codec: str) -> None:
    settings = {"compression.type": codec, "linger.ms": 500}
    with producing(table.bootstrap, **settings) as producer:
        for number in range(30):
            value = b"%d" % number
            producer.produce(table.topic, value, key=b"k%d" % (number % 7), timestamp=table.at_ms, headers={"h": value})
    table.write(("last", "1"))
    table.becomes([*((number, f"k{number % 7}", str(number)) for number in range(23, 30)), (30, "last", "1")])
    with reading(table.bootstrap, table.topic) as consumer:
        for message in take(consumer, 8)[:7]:
            assert message.headers() == [("h", message.value())]
            assert message.timestamp()[1] == table.at_ms - 2 * SEGMENT_MS


def test_a_topic_that_becomes_compacted_loses_what_has_no_key(table: Table) -> None:
    topics.configure(table.bootstrap, table.topic, {"cleanup.policy": "delete", "retention.ms": "-1"})
    with producing(table.bootstrap) as producer:
        send_all(producer, table.topic, [b"1", b"2"], timestamp=table.at_ms)
    table.write(("a", "1"))
    table.write(("b", "1"))
    topics.configure(table.bootstrap, table.topic, {"cleanup.policy": "compact"})
    table.becomes([(2, "a", "1"), (3, "b", "1")])


def test_compact_and_delete_does_both(table: Table) -> None:
    table.write(("a", "1"), ("a", "2"))
    table.write(("b", "1"))
    table.becomes([(1, "a", "2"), (2, "b", "1")])
    topics.configure(table.bootstrap, table.topic, {"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    topics.delete_records(table.bootstrap, table.topic, 2)
    assert table.rows() == [(2, "b", "1")]


def test_what_was_compacted_is_the_same_after_a_restart_and_a_kill(
    restartable_broker: RestartableBroker, java: JavaHost
) -> None:
    broker = restartable_broker
    table = Table(broker.bootstrap, "compacted-over-restarts")
    topics.create(broker.bootstrap, table.topic, config=CONFIG, replicas=[NODE])  # each broker cleans its own
    with frequent_cleanings(broker.bootstrap):
        for number in range(6):
            table.write(("a", str(number)), (f"c{number}", "1"), ("x", "." * 1000))
        # Of the last two segments everything: one is the latest that was cleaned, the other is being written to.
        once = [(number * 3 + 1, f"c{number}", "1") for number in range(4)]
        last = [
            (start + place, key, value)
            for start, number in ((12, 4), (15, 5))
            for place, (key, value) in enumerate((("a", str(number)), (f"c{number}", "1"), ("x", "." * 1000)))
        ]
        table.becomes([*once, *last])
    rows = table.rows()
    broker.kill_and_restart()
    assert table.rows() == rows
    broker.stop()
    folder = broker.data_dir / f"{table.topic}-0"
    output = dump(java, sorted(folder.glob("*.log")), "--deep-iteration", with_gaps={table.topic})
    dumped = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
    assert dumped == [offset for offset, _, _ in rows]
    assert_kafka_is_content(java, broker.data_dir, with_gaps={table.topic})
    broker.start()
    assert table.rows() == rows
    topics.delete(broker.bootstrap, table.topic)  # the broker is for others, too, who expect every offset to be there


# What a cleaning's files are called, one after the other.
STAGES = (".cleaned", ".swap", ".deleted")
BETWEEN_CLEANINGS_S = 0.3


def write_until(table: Table, folder: Path, stage: str, latest: dict[str, tuple[int, str | None]]) -> None:
    """Writes, segment by segment, until a cleaning has come that far; `latest` is kept up to date."""
    before = set(folder.iterdir())
    reached = STAGES[STAGES.index(stage) :]
    deadline = Deadline()
    while deadline.not_over(f"a cleaning comes to {stage}"):
        table.at_ms += 2 * SEGMENT_MS
        acknowledgements = Acknowledgements()
        with producing(table.bootstrap) as producer:
            for number in range(1_000):
                value = f"{number} at {table.at_ms}" + "." * 300
                to = {"timestamp": table.at_ms, "on_delivery": acknowledgements}
                producer.produce(table.topic, value.encode(), key=f"key {number % 300}".encode(), **to)
        assert acknowledgements.errors == []
        for message in acknowledgements.taken:
            latest[(message.key() or b"").decode()] = message.offset() or 0, (message.value() or b"").decode()
        until = time.monotonic() + BETWEEN_CLEANINGS_S
        while time.monotonic() < until:  # without a sleep: some stages are over in a millisecond
            if any(path.name.endswith(reached) for path in set(folder.iterdir()) - before):
                return


@pytest.mark.more
def test_files_are_right_after_a_kill_at_any_stage_of_a_cleaning(java: JavaHost) -> None:
    with new_broker() as broker:
        topics.create(broker.bootstrap, "killed", config=CONFIG, replicas=[NODE])
        table = Table(broker.bootstrap, "killed")
        latest: dict[str, tuple[int, str | None]] = {}
        with frequent_cleanings(broker.bootstrap):
            for stage in STAGES * 2:
                write_until(table, broker.data_dir / "killed-0", stage, latest)
                broker.kill()
                assert_kafka_is_content(
                    java, broker.data_dir, after_a_crash=True, is_renaming=IS_KAFKA, with_gaps={"killed"}
                )
                broker.start()
                assert {key: (offset, value) for offset, key, value in table.rows()} == latest
                broker.restart()  # below its end nothing is looked through, then, after the next kill
        broker.stop()
        assert_kafka_is_content(java, broker.data_dir, with_gaps={"killed"})
