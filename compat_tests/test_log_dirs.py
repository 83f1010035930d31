"""Brokers with several log dirs: described by Kafka's tool and clients, and partitions moved between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartitionReplica, errors

from testkit.basics.values import numbered
from testkit.basics.waiting import eventually
from testkit.clients.kafka_python import administering, fill, producing, read_all, send_all, values_of
from testkit.java import java_host as tools
from testkit.java.dumps import assert_kafka_is_content
from testkit.java.java_host import JavaHost
from testkit.raw import topics
from testkit.raw.nodes import NODE
from testkit.servers import brokers
from testkit.servers.brokers import RestartableBroker


@pytest.fixture(scope="module")
def folders() -> Iterator[tuple[RestartableBroker, list[Path]]]:
    with brokers.broker_of_two_folders() as running:
        yield running


MOVED_WITHIN_S = 120.0
"""On a busy machine Apache Kafka takes more than half a minute for 20 MB after a kill."""


@pytest.fixture
def two(folders: tuple[RestartableBroker, list[Path]], unique: Callable[[str], str]) -> str:
    """A topic of two partitions, which have their folders. Apache Kafka makes these a moment after the topic."""
    bootstrap, name = folders[0].bootstrap, unique("topic")
    topics.create(bootstrap, name, partitions=2)
    with administering(bootstrap) as admin:
        eventually(lambda: len(where(admin, name)) == 2, "both are there")
    return name


def where(admin: Any, topic: str) -> dict[int, list[tuple[str, bool]]]:
    """The broker's folders that have each partition, and whether as a copy on its way."""
    [described] = admin.describe_log_dirs(brokers=[NODE])
    found: dict[int, list[tuple[str, bool]]] = {}
    for folder in described["log_dirs"]:
        assert folder["error_code"] == 0
        for entry in folder["topics"]:
            if entry["name"] == topic:
                for row in entry["partitions"]:
                    found.setdefault(row["partition_index"], []).append((folder["log_dir"], row["is_future_key"]))
    return found


def is_only_in(admin: Any, topic: str, path: str) -> bool:
    return where(admin, topic)[0] == [(path, False)]


def test_partitions_are_spread_over_the_folders(folders: tuple[RestartableBroker, list[Path]], two: str) -> None:
    broker, paths = folders
    with administering(broker.bootstrap) as admin:
        found = where(admin, two)
    assert sorted(folder for rows in found.values() for folder, _ in rows) == sorted(map(str, paths))
    for index, [(folder, is_future)] in found.items():
        assert not is_future
        assert Path(folder, f"{two}-{index}").is_dir()


def test_each_folder_is_described_with_its_room(folders: tuple[RestartableBroker, list[Path]], two: str) -> None:
    broker, paths = folders
    fill(broker.bootstrap, two, numbered(10))
    with administering(broker.bootstrap) as admin:
        [described] = admin.describe_log_dirs({two: [0]}, brokers=[NODE])
    assert sorted(folder["log_dir"] for folder in described["log_dirs"]) == sorted(map(str, paths))
    for folder in described["log_dirs"]:
        assert 0 < folder["usable_bytes"] <= folder["total_bytes"]
    # The other folder is in the answer, without any of the requested partitions.
    assert sorted(len(folder["topics"]) for folder in described["log_dirs"]) == [0, 1]


def test_kafkas_tool_describes_the_folders(
    folders: tuple[RestartableBroker, list[Path]], two: str, java: JavaHost
) -> None:
    broker, paths = folders
    at = ("--bootstrap-server", broker.bootstrap)
    lines = java.succeed(tools.LOG_DIRS, *at, "--describe", "--broker-list", str(NODE), "--topic-list", two).lines
    [described] = next(json.loads(line) for line in lines if line.startswith("{"))["brokers"]
    assert described["broker"] == NODE
    assert sorted(folder["logDir"] for folder in described["logDirs"]) == sorted(map(str, paths))
    rows = [row for folder in described["logDirs"] for row in folder["partitions"]]
    assert sorted((row["partition"], row["offsetLag"], row["isFuture"]) for row in rows) == [
        (f"{two}-0", 0, False),
        (f"{two}-1", 0, False),
    ]
    assert [folder["error"] for folder in described["logDirs"]] == [None, None]


def test_a_partition_is_moved_while_it_is_written_to(folders: tuple[RestartableBroker, list[Path]], two: str) -> None:
    broker, paths = folders
    fill(broker.bootstrap, two, numbered(500), partition=0)
    with administering(broker.bootstrap) as admin, producing(broker.bootstrap) as producer:
        [(first, _)] = where(admin, two)[0]
        [other] = {str(path) for path in paths} - {first}
        for target in (other, first, other):
            replica = TopicPartitionReplica(two, 0, NODE)
            assert admin.alter_replica_log_dirs({replica: target}) == {replica: errors.NoError}
            send_all(producer, two, [target.encode()], partition=0)
            eventually(partial(is_only_in, admin, two, target), f"it is in {target}")
    found = values_of(read_all(broker.bootstrap, two, 503))
    assert found == [*numbered(500), other.encode(), first.encode(), other.encode()]


def test_a_folder_that_the_broker_does_not_have(folders: tuple[RestartableBroker, list[Path]], two: str) -> None:
    with administering(folders[0].bootstrap) as admin:
        here, there = TopicPartitionReplica(two, 0, NODE), TopicPartitionReplica("no-such-topic", 0, NODE)
        [(first, _)] = where(admin, two)[0]
        assert admin.alter_replica_log_dirs({here: "/nowhere"}) == {here: errors.LogDirNotFoundError}
        assert admin.alter_replica_log_dirs({there: first}) == {there: errors.UnknownTopicOrPartitionError}


def test_the_java_client_moves_a_partition(
    folders: tuple[RestartableBroker, list[Path]], java: JavaHost, unique: Callable[[str], str]
) -> None:
    broker, _ = folders
    ended = java.succeed("FolderScenarios", "partitionsMovedBetweenFolders", broker.bootstrap, unique("topic"))
    assert ended.lines[-1] == "passed"


def test_kafkas_tool_for_reassignments_moves_a_partition(
    folders: tuple[RestartableBroker, list[Path]], two: str, java: JavaHost, tmp_path: Path
) -> None:
    broker, paths = folders
    fill(broker.bootstrap, two, numbered(100), partition=0)
    with administering(broker.bootstrap) as admin:
        [(first, _)] = where(admin, two)[0]
    [other] = {str(path) for path in paths} - {first}
    plan = tmp_path / "plan.json"
    wanted = {"topic": two, "partition": 0, "replicas": [NODE], "log_dirs": [other]}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    at = ("--bootstrap-server", broker.bootstrap, "--reassignment-json-file", plan)
    output = java.succeed(tools.REASSIGN, *at, "--execute").out
    assert f"Successfully started moving log directory to {other} for replica {two}-0 with broker {NODE}" in output
    moved = f"Reassignment of replica {two}-0-{NODE} completed successfully."
    eventually(lambda: moved in java.succeed(tools.REASSIGN, *at, "--verify").out, "the move is complete")
    with administering(broker.bootstrap) as admin:
        assert is_only_in(admin, two, other)
    assert values_of(read_all(broker.bootstrap, two, 100)) == numbered(100)


def test_files_are_right_after_moves_and_a_kill_in_the_midst_of_one(
    folders: tuple[RestartableBroker, list[Path]], two: str, java: JavaHost
) -> None:
    broker, paths = folders
    topics.configure(broker.bootstrap, two, {"segment.bytes": str(1 << 20)})
    values = numbered(20_000, size=1_000)
    fill(broker.bootstrap, two, values, partition=0)
    replica = TopicPartitionReplica(two, 0, NODE)

    def alter(target: str) -> None:
        with administering(broker.bootstrap) as admin:
            assert admin.alter_replica_log_dirs({replica: target}) == {replica: errors.NoError}

    def is_moved(target: str) -> bool:
        with administering(broker.bootstrap) as admin:
            return is_only_in(admin, two, target)

    with administering(broker.bootstrap) as admin:
        [(first, _)] = where(admin, two)[0]
    [other] = {str(path) for path in paths} - {first}
    alter(other)
    broker.kill()
    assert [path for path in Path(other).iterdir() if path.name.startswith(f"{two}-0.")], "it was on its way"
    assert_kafka_is_content(java, *paths, after_a_crash=True)
    broker.start()
    eventually(partial(is_moved, other), "the move continued by itself", within_s=MOVED_WITHIN_S)
    broker.kill()
    assert_kafka_is_content(java, *paths, after_a_crash=True)
    broker.start()
    assert values_of(read_all(broker.bootstrap, two, len(values))) == values
    alter(first)
    eventually(partial(is_moved, first), "it is back", within_s=MOVED_WITHIN_S)
    broker.stop()
    assert_kafka_is_content(java, *paths)
    broker.start()
    assert values_of(read_all(broker.bootstrap, two, len(values))) == values
