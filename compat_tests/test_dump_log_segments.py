"""Kafka's own DumpLogSegments reads what the broker left on its disk, and has nothing to complain of."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from confluent_kafka import TopicPartition

from testkit.basics.values import numbered
from testkit.clients.confluent import consuming, producing, take_until
from testkit.java.dumps import assert_kafka_is_content, dump
from testkit.java.java_host import JavaHost
from testkit.raw import topics
from testkit.raw.groups import CONSUMER
from testkit.servers.brokers import RestartableBroker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
ONE_MIB = 1 << 20


@attrs.frozen
class Disk:
    """The log dir of a broker that was stopped after it had been given something of everything."""

    data_dir: Path
    metadata_dir: Path
    how: str

    def files(self, folder: str, ending: str) -> list[Path]:
        return _files(self.data_dir / folder, ending)


def _files(folder: Path, ending: str) -> list[Path]:
    found = sorted(folder.glob(f"*{ending}"))
    assert found, f"no *{ending} in {folder}"
    return found


def transact(bootstrap: str) -> None:
    """A transaction that is committed, with offsets, one that is aborted, and one that stays open."""
    with producing(bootstrap, **{"transactional.id": "dumped-id"}) as producer:
        producer.init_transactions(20)
        for ends in ("committed", "aborted", None):
            producer.begin_transaction()
            producer.produce("dumped-transactions", b"in a transaction")
            producer.flush(20)
            if ends == "committed":
                with consuming(bootstrap, "dumped-none", **{"group.id": "dumped-exactly-once"}) as consumer:
                    offsets = [TopicPartition("dumped-none", 0, 78)]
                    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20)
                producer.commit_transaction(20)
            elif ends == "aborted":
                producer.abort_transaction(20)


@pytest.fixture(scope="module", params=["stop", "kill"])
def disk(request: pytest.FixtureRequest, restartable_broker: RestartableBroker) -> Iterator[Disk]:
    broker, how = restartable_broker, str(request.param)
    bootstrap = broker.bootstrap
    for codec in CODECS:
        name = f"dumped-{codec}"
        if how == "stop":
            topics.create(bootstrap, name, config={"segment.bytes": str(ONE_MIB)})
        with producing(bootstrap, **{"compression.type": codec, "enable.idempotence": True}) as producer:
            for number, value in enumerate(numbered(2_000, size=1_000)):
                headers = [("header", b"%d" % number), ("none", None)]
                producer.produce(name, value if number % 10 else None, key=b"key %d" % number, headers=headers)
    if how == "stop":
        topics.create(bootstrap, "dumped-append-time", config={"message.timestamp.type": "LogAppendTime"})
        topics.create(bootstrap, "dumped-recompressed", config={"compression.type": "zstd"})
        with producing(bootstrap) as producer:
            for value in numbered(50, size=100):
                producer.produce("dumped-append-time", value, timestamp=1_000)
                producer.produce("dumped-recompressed", value)
    with consuming(bootstrap, "dumped-none", **{"group.id": "dumped-group"}) as consumer:
        take_until(consumer, lambda: bool(consumer.assignment()), [], "an assignment")
        consumer.commit(offsets=[TopicPartition("dumped-none", 0, 77, "a note")], asynchronous=False)
    config = {"group.id": "dumped-consumer-group", "group.protocol": CONSUMER}
    with consuming(bootstrap, "dumped-none", "^dumped-zstd$", **config) as consumer:
        take_until(consumer, lambda: len(consumer.assignment()) == 2, [], "an assignment")
        consumer.commit(offsets=[TopicPartition("dumped-none", 0, 79)], asynchronous=False)
    transact(bootstrap)
    if how == "stop":
        broker.stop()
    else:
        broker.kill()
    yield Disk(broker.data_dir, broker.metadata_dir, how)
    broker.start()


@pytest.mark.parametrize("codec", CODECS)
def test_every_record_of_a_topic_is_read(disk: Disk, java: JavaHost, codec: str) -> None:
    logs = disk.files(f"dumped-{codec}-0", ".log")
    output = dump(java, logs, "--deep-iteration", "--print-data-log")
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
    assert offsets == list(range(len(offsets)))
    assert len(offsets) % 2_000 == 0
    assert offsets
    assert set(re.findall(r"compresscodec: (\w+)", output)) == {codec}
    assert re.findall(r"headerKeys: \[header,none\]", output)
    if codec == "none":
        assert len(logs) >= 2  # there were several segments


def test_indexes_agree_with_their_logs(disk: Disk, java: JavaHost) -> None:
    indexes: list[Path] = []
    for codec in CODECS:
        logs = disk.files(f"dumped-{codec}-0", ".log")
        # The indexes of the last segment are finished by a stop in good order. After a crash they are rebuilt.
        finished = logs if disk.how == "stop" else logs[:-1]
        indexes += [log.with_suffix(ending) for log in finished for ending in (".index", ".timeindex")]
    assert indexes
    dump(java, indexes, "--index-sanity-check")
    dump(java, indexes, "--verify-index-only")


def test_batches_of_a_topic_with_append_time_have_it(disk: Disk, java: JavaHost) -> None:
    output = dump(java, disk.files("dumped-append-time-0", ".log"), "--deep-iteration", "--print-data-log")
    assert "LogAppendTime: " in output
    assert "CreateTime: " not in output


def test_a_topic_that_recompresses_holds_its_own_codec(disk: Disk, java: JavaHost) -> None:
    output = dump(java, disk.files("dumped-recompressed-0", ".log"), "--deep-iteration")
    assert set(re.findall(r"compresscodec: (\w+)", output)) == {"zstd"}


def test_producers_are_read_from_their_snapshots(disk: Disk, java: JavaHost) -> None:
    output = dump(java, disk.files("dumped-none-0", ".snapshot"))
    assert re.search(r"producerId: \d+ producerEpoch: 0 .*lastSequence: \d+", output)


def test_groups_are_read_with_the_decoder_of_offsets(disk: Disk, java: JavaHost) -> None:
    logs = sorted(disk.data_dir.glob("__consumer_offsets-*/*.log"))
    output = dump(java, logs, "--deep-iteration", "--print-data-log", "--offsets-decoder")
    commits = [line for line in output.splitlines() if "dumped-group" in line and '"offset":77' in line]
    assert commits
    assert '"topic":"dumped-none","partition":0' in commits[0]
    assert '"metadata":"a note' in commits[0]
    assert [
        line for line in output.splitlines() if '"group":"dumped-group"' in line and '"protocolType":"consumer"' in line
    ]


def test_consumer_groups_are_read_with_the_decoder_of_offsets(disk: Disk, java: JavaHost) -> None:
    logs = sorted(disk.data_dir.glob("__consumer_offsets-*/*.log"))
    output = dump(java, logs, "--deep-iteration", "--print-data-log", "--offsets-decoder")
    records = [line for line in output.splitlines() if '"dumped-consumer-group"' in line]
    found = {kind for line in records for kind in re.findall(r'"type":"(\d+)"', line)}
    # Offsets, and of consumer groups: epoch, members, target with its epoch, what each has, regular expressions.
    assert {"1", "3", "5", "6", "7", "8", "16"} <= found
    assert any('"type":"1"' in line and '"offset":79' in line for line in records)


def test_the_metadata_log_is_read_with_its_decoder(disk: Disk, java: JavaHost) -> None:
    logs = _files(disk.metadata_dir / "__cluster_metadata-0", ".log")
    output = dump(java, logs, "--deep-iteration", "--cluster-metadata-decoder")
    assert re.search(r'"type":"TOPIC_RECORD","version":\d+,"data":\{"name":"dumped-none"', output)
    assert re.search(
        r'"type":"CONFIG_RECORD".*"resourceName":"dumped-append-time","name":"message.timestamp.type"', output
    )
    assert '"type":"PARTITION_RECORD"' in output
    assert '"type":"REGISTER_BROKER_RECORD"' in output


def test_transactional_ids_are_read_with_the_decoder_of_transactions(disk: Disk, java: JavaHost) -> None:
    logs = sorted(disk.data_dir.glob("__transaction_state-*/*.log"))
    output = dump(java, logs, "--deep-iteration", "--print-data-log", "--transaction-log-decoder")
    records = [line for line in output.splitlines() if '"transactionalId":"dumped-id"' in line]
    states = [int(found) for line in records for found in re.findall(r'"transactionStatus":(\d)', line)]
    # Empty; Ongoing, PrepareCommit, CompleteCommit; Ongoing, PrepareAbort, CompleteAbort; Ongoing
    assert [state for state, _ in itertools.groupby(states)][-8:] == [0, 1, 2, 4, 1, 3, 5, 1]
    prepared = next(line for line in records if '"transactionStatus":2' in line)
    assert re.search(r'"topic":"__consumer_offsets","partitionIds":\[\d+\]', prepared)
    assert '{"topic":"dumped-transactions","partitionIds":[0]}' in prepared


def test_offsets_in_a_transaction_are_read_with_the_decoder_of_offsets(disk: Disk, java: JavaHost) -> None:
    logs = sorted(disk.data_dir.glob("__consumer_offsets-*/*.log"))
    output = dump(java, logs, "--deep-iteration", "--print-data-log", "--offsets-decoder")
    commits = [
        line for line in output.splitlines() if '"group":"dumped-exactly-once"' in line and '"offset":78' in line
    ]
    assert commits
    assert "endTxnMarker: COMMIT" in output


def test_aborted_transactions_are_read_from_their_index(disk: Disk, java: JavaHost) -> None:
    """Only the second of three was aborted: offsets 0 and 1 are the first with its marker."""
    output = dump(java, disk.files("dumped-transactions-0", ".txnindex"))
    assert re.search(r"producerId: \d+ firstOffset: 2 lastOffset: 3 lastStableOffset: 4", output)


def test_every_file_of_the_log_dir_is_right(disk: Disk, java: JavaHost) -> None:
    assert assert_kafka_is_content(java, disk.data_dir, after_a_crash=disk.how == "kill") > 10
