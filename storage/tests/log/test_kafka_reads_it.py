"""Apache Kafka's DumpLogSegments as the judge of every file that a log writes, in every state it is left in."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from kwire_protocol.records import Record, build_batch
from kwire_storage.disk.files import RealDisk
from kwire_storage.log.log import Log, LogConfig
from kwire_storage.producers.states import ProducerEntry

from devtools.apache_kafka import run_tool
from testkit.storage.compacting import compact
from testkit.storage.logs import append_bytes, end_transaction, open_log

pytestmark = pytest.mark.more  # Apache Kafka runs in Java.

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=1000)
CODECS = range(5)


def dump(files: list[Path], *options: str) -> str:
    done = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(map(str, files)), *options)
    return done.stdout + done.stderr


def fill(log: Log, batches: int, seed: int) -> int:
    """Writes batches of every codec and size by two producers, one with transactions. Returns the record count."""
    random_ = random.Random(seed)
    sequence = {1: 0, 2: 0}
    for producer_id, entry in log.producers.entries.items():
        sequence[producer_id] = entry.last_sequence + 1
    total = 0
    for number in range(batches):
        count = random_.randrange(1, 8)
        content = [
            Record(
                index,
                1_700_000_000_000 + number * 10 + random_.randrange(500),
                b"key",
                random_.randbytes(random_.randrange(300)),
            )
            for index in range(count)
        ]
        producer_id = number % 2 + 1
        batch = build_batch(
            content,
            compression=number % 5,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence[producer_id],
            transactional=producer_id == 2,
        )
        append_bytes(log, batch, leader_epoch=3 + number // 50, now_ms=number)
        sequence[producer_id] += count
        total += count
        if number % 10 == 9:
            end_transaction(log, 2, commit=number % 20 == 9, leader_epoch=3 + number // 50)
            total += 1
    return total


def states(root: Path) -> Iterator[tuple[str, Log]]:
    """Makes logs as they are left by each way of ending; the files must not be touched any more."""
    closed = open_log(RealDisk(root), CONFIG, path="closed-0")
    fill(closed, 150, seed=1)
    closed.close()
    closed = open_log(closed.disk, CONFIG, path="closed-0")
    fill(closed, 40, seed=2)
    closed.close()
    yield "closed, opened, filled and closed", closed

    recovered = open_log(RealDisk(root), CONFIG, path="recovered-0")
    fill(recovered, 150, seed=3)
    recovered.active.file.append(b"a torn tail")
    recovered.close(clean=False)
    recovered = open_log(recovered.disk, CONFIG, path="recovered-0", clean=False)
    recovered.close()
    yield "recovered", recovered

    shortened = open_log(RealDisk(root), CONFIG, path="shortened-0")
    fill(shortened, 200, seed=4)
    shortened.truncate_to(shortened.segments.bases[-2] + 40)
    fill(shortened, 20, seed=5)
    shortened.advance_log_start(shortened.segments.bases[1] + 10)
    shortened.close()
    yield "truncated, filled and shortened", shortened


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Log]:
    return [log for _, log in states(tmp_path_factory.mktemp("logs"))]


def files_of(logs: list[Log], suffix: str) -> list[Path]:
    files = [path for log in logs for path in sorted(Path(log.disk.disk.root, log.path).glob(f"*{suffix}"))]  # type: ignore[attr-defined]
    assert files
    return files


def test_every_batch_and_record_is_read(logs: list[Log]) -> None:
    files = files_of(logs, ".log")
    output = dump(files, "--deep-iteration")
    batches = [int(base) for base in re.findall(r"^baseOffset: (\d+) ", output, re.MULTILINE)]
    headers = [header for log in logs for _, header, _ in log.segments.headers_from(log.segments.bases[0])]
    assert batches == [header.base_offset for header in headers]
    assert "isvalid: false" not in output
    records = re.findall(r"^\| offset: ", output, re.MULTILINE)
    assert len(records) == sum(header.records_count for header in headers)
    # The tool takes the first record of any file that does not begin at 0 for one after a gap; only that is forgiven.
    complaints = re.findall(r"^ *(-?\d+) is followed by (\d+)$", output, re.MULTILINE)
    starts = [("-1", str(base)) for log in logs for base in log.segments.bases if base]
    assert sorted(complaints) == sorted(starts)
    for word in ("mismatch", "Mismatch", "Exception", "invalid bytes", "Found timestamp"):
        assert word not in output


@pytest.mark.parametrize("option", [(), ("--index-sanity-check",), ("--verify-index-only",)])
def test_indexes_agree_with_the_records(logs: list[Log], option: tuple[str, ...]) -> None:
    files = [*files_of(logs, ".index"), *files_of(logs, ".timeindex")]
    output = dump(files, *option)
    if option == ("--index-sanity-check",):
        assert output.count("passed sanity check.") + output.count(" is empty.") == len(files)
    else:
        for word in ("mismatch", "Mismatch", "Exception", "out of order", "not found", "don't exist", "Found"):
            assert word not in output
    if not option:
        entries = sum(len(segment.index) + len(segment.time_index) for log in logs for segment in log.segments)
        assert len(re.findall(r"^(?:offset|timestamp): ", output, re.MULTILINE)) == entries > 100


def test_aborted_transactions_are_read(logs: list[Log]) -> None:
    output = dump(files_of(logs, ".txnindex"))
    found = re.findall(
        r"^version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)$",
        output,
        re.MULTILINE,
    )
    expected = [aborted for log in logs for segment in log.segments for aborted in segment.aborted]
    assert [tuple(map(int, entry)) for entry in found] == expected
    assert len(expected) > 10


def test_producer_snapshots_are_read(logs: list[Log]) -> None:
    files = files_of(logs, ".snapshot")
    output = dump(files)
    assert output.count("Dumping") == len(files)
    assert "Exception" not in output
    newest = [log.producers.entries[producer_id] for log in logs for producer_id in (1, 2)]
    for entry in newest:
        assert _as_dumped(entry) in output


def _as_dumped(entry: ProducerEntry) -> str:
    last = entry.batches[-1]
    began = "OptionalLong.empty" if entry.txn_first_offset is None else f"OptionalLong[{entry.txn_first_offset}]"
    return (
        f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {began} lastTimestamp: {entry.last_timestamp_ms} "
        f"firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} lastOffset: {last.last_offset} "
        f"offsetDelta: {last.last_offset - last.first_offset} timestamp: {entry.last_timestamp_ms}"
    )


def test_compacted_logs_are_read(tmp_path: Path) -> None:
    log = open_log(RealDisk(tmp_path), attrs.evolve(CONFIG, cleanup_policy="compact"), path="compacted-0")
    before = 0
    for seed in range(3):
        before += fill(log, 150, seed=10 + seed)
        log.roll(0)
        compact(log, now_ms=seed * 10**9)
    left = sum(header.records_count for header, _ in log.batches())
    assert left < before / 3
    assert any(not header.records_count for header, _ in log.batches()), "a batch that was emptied"
    assert any(segment.aborted for segment in log.segments)
    fill(log, 5, seed=20)
    log.close()
    output = dump(files_of([log], ".log"), "--deep-iteration")
    assert len(re.findall(r"^\| offset: ", output, re.MULTILINE)) == sum(it.records_count for it, _ in log.batches())
    output += dump([*files_of([log], ".index"), *files_of([log], ".timeindex")], "--index-sanity-check")
    output += dump([*files_of([log], ".index"), *files_of([log], ".timeindex")], "--verify-index-only")
    output += dump(files_of([log], ".txnindex"))
    for word in ("isvalid: false", "ismatch", "Exception", "invalid bytes", "Found timestamp", "out of order", "don't"):
        assert word not in output
