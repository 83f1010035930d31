"""`kwire serve` on a file system that really is full, with real clients: quick errors, no loss, recovery."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

from testkit.basics.small_tmpfs import SmallTmpfs
from testkit.raw.client import RawClient
from testkit.raw.simple_requests import find_coordinator
from testkit.servers.full_tmpfs_scene import (
    OVER_A_PAGE,
    PATIENCE_S,
    QUIET,
    RESERVE,
    append,
    commit,
    create,
    fill_up,
    mounted,
    read_all,
    serve,
)

AT_ONCE_S = 10.0
"""Clients would wait for a refusal three times as long, or longer."""
TOPICS = ("t", "large")


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[SmallTmpfs]:
    with mounted(tmp_path) as made:
        yield made


# By itself, since importing it makes warnings that are errors here.
_KAFKA_PYTHON = """
import sys, kafka
producer = kafka.KafkaProducer(bootstrap_servers=sys.argv[1], retries=0, enable_idempotence=False)
try:
    producer.send("t", bytes(10_000)).get(60)
except kafka.errors.KafkaError as error:
    print(type(error).__name__)
"""


def error_of_kafka_python(address: str) -> str:
    """Returns the error that a producer without retries gets."""
    command = [sys.executable, "-c", _KAFKA_PYTHON, address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.stdout.strip() or done.stderr


def test_clients_get_an_error_at_once_and_continue_by_themselves_when_a_topic_is_deleted(
    tmp_path: Path, tmpfs: SmallTmpfs
) -> None:
    delivered: list[tuple[object, int]] = []
    with serve(tmp_path, tmpfs) as broker, RawClient(broker.address) as client:
        assert [create(client, name) for name in TOPICS] == [0, 0]
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "enable.idempotence": True, **QUIET})

        def send(numbers: range) -> None:
            for number in numbers:
                producer.produce("t", str(number), callback=lambda error, it: delivered.append((error, it.offset())))

        send(range(1000))
        assert producer.flush(PATIENCE_S) == 0
        fill_up(client, tmpfs, topic="large")

        # Each is refused at once, and all of them are logged once.
        for _ in range(100):
            began = time.monotonic()
            assert append(client, OVER_A_PAGE) == ErrorCode.KAFKA_STORAGE_ERROR
            assert commit(client, 1) in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            assert create(client, "new") == ErrorCode.KAFKA_STORAGE_ERROR
            assert time.monotonic() - began < AT_ONCE_S
        assert error_of_kafka_python(broker.address) == "KafkaStorageError"
        assert broker.log().count("is full") == 1

        # Whoever reads, reads.
        assert read_all(broker.address, "t") == [str(number).encode() for number in range(1000)]

        # An idempotent producer keeps trying, across the full time and into the time after.
        send(range(1000, 2000))
        assert producer.flush(0.5) > 0
        answer = client.call(DeleteTopicsRequest(topics=[DeleteTopicState("large")]), 6)
        assert answer.responses[0].error_code == 0
        assert producer.flush(PATIENCE_S) == 0
        assert [error for error, _ in delivered if error] == []
        assert sorted(offset for _, offset in delivered) == list(range(2000))
        assert read_all(broker.address, "t") == [str(number).encode() for number in range(2000)]
        assert create(client, "new") == client.call(find_coordinator(), 0).error_code == commit(client, 1) == 0
        deadline = time.monotonic() + PATIENCE_S
        while "there is room again" not in broker.log() and time.monotonic() < deadline:
            assert append(client) == 0
        assert broker.log().count("there is room again") == 1
        assert (broker.data_dir / ".kwire.reserve").stat().st_size == RESERVE
        assert broker.bugs() == []
        assert len(broker.log().splitlines()) < 20


def test_a_stop_while_it_is_full_is_clean_and_the_next_start_needs_no_recovery(
    tmp_path: Path, tmpfs: SmallTmpfs
) -> None:
    with serve(tmp_path, tmpfs) as broker, RawClient(broker.address) as client:
        assert create(client, "t") == client.call(find_coordinator(), 0).error_code == commit(client, 1) == 0
        count = fill_up(client, tmpfs)
        assert broker.stop() == 0
        assert broker.bugs() == []
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    assert not (broker.data_dir / ".kwire.reserve").exists()
    with serve(tmp_path, tmpfs) as broker, RawClient(broker.address) as client:
        assert "not closed cleanly" not in broker.log()
        assert "are not to be had" in broker.log()
        assert append(client) == ErrorCode.KAFKA_STORAGE_ERROR, "what is left is for the next stop"
        assert len(read_all(broker.address, "t")) == count
        assert broker.stop() == 0
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    tmpfs.free()
    with serve(tmp_path, tmpfs) as broker, RawClient(broker.address) as client:
        assert append(client) == 0
        assert len(read_all(broker.address, "t")) == count + 1


def test_a_kill_while_it_is_full_and_a_start_while_it_still_is_lose_nothing(tmp_path: Path, tmpfs: SmallTmpfs) -> None:
    with serve(tmp_path, tmpfs) as broker, RawClient(broker.address) as client:
        assert create(client, "t") == create(client, "other") == 0
        count = fill_up(client, tmpfs)
        broker.kill()
    for _ in range(2):
        with serve(tmp_path, tmpfs) as broker, RawClient(broker.address) as client:
            assert len(read_all(broker.address, "t")) == count
            assert append(client, OVER_A_PAGE) == ErrorCode.KAFKA_STORAGE_ERROR
            broker.kill()
            assert broker.bugs() == []
    tmpfs.free()
    with serve(tmp_path, tmpfs) as broker, RawClient(broker.address) as client:
        assert append(client) == 0
        assert len(read_all(broker.address, "t")) == count + 1
        assert broker.stop() == 0


def test_without_a_reserve_the_stop_reports_that_it_was_not_clean_and_nothing_is_lost(
    tmp_path: Path, tmpfs: SmallTmpfs
) -> None:
    with serve(tmp_path, tmpfs, "kwire.log.reserve.bytes=0") as broker, RawClient(broker.address) as client:
        assert create(client, "t") == 0
        count = fill_up(client, tmpfs)
        assert broker.stop() == 1
        assert broker.bugs() == []
        assert "Error: could not stop cleanly" in broker.log()
        assert "No space left on device" in broker.log()
    with serve(tmp_path, tmpfs, "kwire.log.reserve.bytes=0") as broker:
        assert len(read_all(broker.address, "t")) == count
        tmpfs.free()
        assert broker.stop() == 0


def test_a_new_log_dir_on_a_full_disk_is_refused_in_one_line(tmp_path: Path, tmpfs: SmallTmpfs) -> None:
    tmpfs.fill()
    command = [sys.executable, "-m", "kwire", "serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmpfs.path / "new")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("Error: cannot open the log dir")
    assert "No space left on device" in lines[-1]
    assert "Traceback" not in done.stderr
