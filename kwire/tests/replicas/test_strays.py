"""Folders of partitions that no topic has: those of deleted topics go, in the end; others stay and are reported."""

from __future__ import annotations

import pytest
import trio
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest

from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.node.broker import Broker
from kwire.runtime.futures import at_once
from testkit.scenes.folder_scene import Countdown, Disks, Stop, append, create, new_disks, open_broker, replicas, values

UNIQUE = "a" * 32


def delete(broker: Broker, name: str = "t") -> None:
    at_once(broker.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=[name]), version=5))


def delete_with_files(broker: Broker) -> None:
    delete(broker)
    trio.run(broker.housekeeping.remove_deleted)


def folders_of(disks: Disks, topic: str = "t") -> list[str]:
    return [name for disk in disks.values() for name in disk.listdir("") if name.startswith(f"{topic}-")]


def filled() -> tuple[Disks, Broker]:
    disks = new_disks()
    broker = open_broker(disks)
    for partition in create(broker, "t", 4):
        append(partition)
    return disks, broker


def operations_of_a_deletion() -> int:
    disks, broker = filled()
    count = Countdown(disks, 10**9)
    delete_with_files(broker)
    return 10**9 - count.left


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
def test_a_deletion_that_was_stopped_anywhere_is_finished_by_the_next_start(loses_power: bool, again: bool) -> None:
    ends = set()
    for number in range(operations_of_a_deletion()):
        disks, broker = filled()
        Countdown(disks, number)
        with pytest.raises(Stop):
            delete_with_files(broker)
        after = {path: disk.crash() if loses_power else disk.kill() for path, disk in disks.items()}
        restarted = open_broker(after)
        is_deleted = "t" not in restarted.metadata.image.topics
        ends.add((is_deleted, bool(folders_of(after))))
        if not is_deleted:
            assert sorted(folders_of(after)) == ["t-0", "t-1", "t-2", "t-3"], number
            delete(restarted)
        if again:
            assert [values(it) for it in create(restarted, "t", 4)] == [[]] * 4
        trio.run(restarted.housekeeping.remove_deleted)
        assert sorted(folders_of(after)) == (["t-0", "t-1", "t-2", "t-3"] if again else []), number
        restarted.close()
    assert ends >= {(False, True), (True, True)}


def test_a_partition_whose_folder_was_away_goes_when_that_is_back_whatever_has_its_name_now() -> None:
    disks, broker = filled()
    broker.close()
    alone = open_broker({"/a": disks["/a"]})
    delete(alone)
    for partition in create(alone, "t", 4):
        append(partition, b"new")
    alone.close()
    assert sorted(disks["/b"].listdir("t-1"))
    back = open_broker(disks)
    assert [values(it) for it in replicas(back, "t")] == [[b"new"]] * 4
    trio.run(back.housekeeping.remove_deleted)
    assert sorted(folders_of(disks)) == ["t-0", "t-1", "t-2", "t-3"]
    back.close()


def test_one_that_an_earlier_start_set_aside_goes_once_it_is_known_to_be_deleted() -> None:
    disks, broker = filled()
    broker.close()
    kept = disks["/b"].read_bytes("t-1/partition.metadata")
    broker = open_broker(disks)
    delete(broker)
    trio.run(broker.housekeeping.remove_deleted)
    broker.close()
    disks["/b"].mkdir(f"t-1.{UNIQUE}-stray")
    disks["/b"].write_bytes(f"t-1.{UNIQUE}-stray/partition.metadata", kept)
    again = open_broker(disks)
    [doomed] = folders_of(disks)
    # A name that Apache Kafka can read, too, should it be given this folder.
    assert doomed.startswith("t-1.")
    assert doomed.endswith("-delete")
    assert "stray" not in doomed
    trio.run(again.housekeeping.remove_deleted)
    assert folders_of(disks) == []
    again.close()


@pytest.mark.parametrize(
    "metadata",
    [None, b"", b"rotten", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"],
    ids=["none", "empty", "rotten", "of a topic never heard of"],
)
def test_what_nobody_is_known_to_have_deleted_is_kept_and_logged_at_each_start(
    metadata: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    disks, broker = filled()
    delete(broker)
    trio.run(broker.housekeeping.remove_deleted)
    broker.close()
    disks["/b"].mkdir("lost-3")
    disks["/b"].write_bytes("lost-3/00000000000000000000.log", b"dear to somebody")
    if metadata is not None:
        disks["/b"].write_bytes("lost-3/partition.metadata", metadata)
    for _ in range(2):
        caplog.clear()
        broker = open_broker(disks)
        trio.run(broker.housekeeping.remove_deleted)
        broker.close()
        [stray] = folders_of(disks, "lost")
        assert stray.endswith("-stray")
        assert disks["/b"].read_bytes(f"{stray}/00000000000000000000.log") == b"dear to somebody"
        [message] = [record.getMessage() for record in caplog.records if stray in record.getMessage()]
        assert message.startswith("/b has 1 partitions that no topic of the metadata has or had")
