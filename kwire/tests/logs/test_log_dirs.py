"""Several log dirs: where partitions go, what a restart finds, and one folder missing or failing beside others."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch
from kwire_storage import names
from kwire_storage.checkpoints import encode_clean_shutdown
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.errors import StorageError

from kwire.config.server import load_config
from kwire.coordinators.runtime import java_hash
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.node.broker import Broker
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import at_once
from kwire.testing import Broker as BrokerInThread
from testkit.raw.client import RawClient
from testkit.scenes.folder_scene import (
    EIO,
    append,
    create,
    failing,
    folder_path,
    has_ended,
    killed,
    new_disks,
    open_broker,
    refusal,
    replicas,
    values,
)

TIMEOUT_S = 20
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


def test_a_new_partition_goes_where_there_are_the_fewest_and_its_folder_is_in_the_metadata() -> None:
    broker = open_broker(new_disks("/a", "/b", "/c"))
    one = create(broker, "one")
    five = create(broker, "five", 5)
    assert [folder_path(broker, it) for it in one + five] == ["/a", "/b", "/c", "/a", "/b", "/c"]
    ids = [folder.meta.directory_id for folder in broker.log_dirs.dirs]
    assert len(set(ids)) == 3
    image = broker.metadata.image
    assert image.brokers[1].log_dirs == tuple(ids)
    assert [it.directories for it in image.topics["five"].partitions] == [(ids[n],) for n in (1, 2, 0, 1, 2)]
    broker.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_finds_every_partition_in_its_folder(clean: bool) -> None:
    disks = new_disks()
    broker = open_broker(disks)
    for number, partition in enumerate(create(broker, "t", 4)):
        append(partition, b"%d" % number)
    if clean:
        broker.close()
        assert all(disk.exists(names.CLEAN_SHUTDOWN) for disk in disks.values())
    again = open_broker(killed(disks))
    assert [values(it) for it in again.partitions] == [[b"0"], [b"1"], [b"2"], [b"3"]]
    assert [folder_path(again, it) for it in again.partitions] == ["/a", "/b", "/a", "/b"]
    again.close()


def test_the_metadata_log_is_in_the_first_folder_or_in_the_configured_one() -> None:
    disks = new_disks("/a", "/b")
    open_broker(disks, "metadata.log.dir=/b").close()
    assert [disk.exists("__cluster_metadata-0") for disk in disks.values()] == [False, True]
    # As when it was the other way round, or the setting is forgotten.
    with pytest.raises(StorageError, match=r"/b has it: name that one first in log.dirs"):
        open_broker(disks)


def test_a_broker_does_not_start_over_where_only_other_folders_belong_to_it() -> None:
    disks = new_disks("/a", "/b")
    open_broker(disks).close()
    with pytest.raises(StorageError, match="the metadata log is not here, although /b is a folder of this broker's"):
        open_broker({"/a": FaultyDisk(), "/b": disks["/b"]})


def test_a_partition_found_in_two_folders_is_refused_by_both_names() -> None:
    disks = new_disks()
    broker = open_broker(disks)
    create(broker, "t", 2)
    broker.close()
    disks["/b"].mkdir("t-0")
    with pytest.raises(StorageError, match="partition t-0 is in two log dirs, /a and /b"):
        open_broker(disks)
    disks["/b"].remove_tree("t-0")
    open_broker(disks).close()  # and nothing is locked


def test_a_copy_of_a_folder_and_one_of_another_cluster_are_refused() -> None:
    disks = new_disks("/a", "/b")
    open_broker(disks).close()
    with pytest.raises(StorageError, match="it has the same directory.id as /b, so it is a copy"):
        open_broker({**disks, "/c": disks["/b"].kill()})
    other = new_disks("/x", "/y")
    open_broker(other).close()
    with pytest.raises(StorageError, match="it belongs to cluster"):
        open_broker({**disks, "/y": other["/y"]})


def broken(disk: FaultyDisk) -> FaultyDisk:
    twin = disk.kill()
    twin.before_operation = failing("remove", names.CLEAN_SHUTDOWN)
    return twin


def locked(disk: FaultyDisk) -> FaultyDisk:
    disk.lock(names.LOCK)
    return disk


def not_mounted(disk: FaultyDisk) -> FaultyDisk:
    return FaultyDisk()


@pytest.mark.parametrize("loss", [broken, locked, not_mounted])
def test_a_folder_that_cannot_be_opened_is_out_of_service_while_the_others_serve(
    loss: Callable[[FaultyDisk], FaultyDisk], caplog: pytest.LogCaptureFixture
) -> None:
    disks = new_disks()
    broker = open_broker(disks)
    for partition in create(broker, "t", 4):
        append(partition)
    directories = broker.metadata.image.brokers[1].log_dirs
    broker.close()
    kept = disks["/b"].kill()

    lame = open_broker({"/a": disks["/a"], "/b": loss(disks["/b"])})
    assert [append(lame.partitions.find("t", index)) for index in (0, 2)] == [1, 1]
    for lost in (1, 3):
        assert refusal(partial(lame.partitions.find, "t", lost)) == STORAGE
    assert "the log dir /b cannot be opened and is out of service" in caplog.text
    assert "2 partitions are in log dirs that are not in service, and answer KAFKA_STORAGE_ERROR: t-1, t-3." in (
        caplog.text
    )
    # New ones go where they can be, and the folder that is away is not forgotten.
    assert {folder_path(lame, it) for it in create(lame, "new", 3)} == {"/a"}
    assert lame.metadata.image.brokers[1].log_dirs == directories
    assert not disks["/a"].exists("t-1")
    lame.close()

    again = open_broker({"/a": disks["/a"], "/b": kept})
    assert [values(it) for it in replicas(again, "t")] == [[b"x"] * 2, [b"x"], [b"x"] * 2, [b"x"]]
    again.close()


def test_a_folder_that_is_left_out_of_log_dirs_keeps_its_partitions_out_of_service(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disks = new_disks()
    broker = open_broker(disks)
    create(broker, "t", 2)
    broker.close()
    alone = open_broker({"/a": disks["/a"]})
    assert refusal(lambda: alone.partitions.find("t", 1)) == STORAGE
    # That is also the way to continue without it: a topic that is deleted may be made again, and a new folder is taken.
    at_once(alone.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=["t"]), version=5))
    alone.close()
    renewed = open_broker({"/a": disks["/a"], "/b": FaultyDisk()})
    assert [folder_path(renewed, it) for it in create(renewed, "t", 2)] == ["/a", "/b"]
    renewed.close()


def test_a_folder_more_is_taken_while_another_is_broken() -> None:
    disks = new_disks()
    open_broker(disks).close()
    broker = open_broker({"/a": disks["/a"], "/b": locked(disks["/b"]), "/c": FaultyDisk()})
    assert [folder.path for folder in broker.log_dirs.online] == ["/a", "/c"]
    broker.close()


def test_a_partition_that_was_moved_by_hand_is_found_and_noted() -> None:
    disks = new_disks()
    broker = open_broker(disks)
    create(broker, "t", 2)
    append(broker.partitions.find("t", 1), b"moved")
    broker.close()
    source, target = disks["/b"], disks["/a"]
    target.mkdir("t-1")
    for name in source.listdir("t-1"):
        target.write_bytes(f"t-1/{name}", source.read_bytes(f"t-1/{name}"))
    source.remove_tree("t-1")
    again = open_broker(disks)
    assert values(again.partitions.find("t", 1)) == [b"moved"]
    first = again.log_dirs.dirs[0].meta.directory_id
    assert [it.directories for it in again.metadata.image.topics["t"].partitions] == [(first,), (first,)]
    again.close()


def test_one_folder_fails_and_the_other_serves_on(caplog: pytest.LogCaptureFixture) -> None:
    disks = new_disks()
    broker = open_broker(disks)
    zero, one = create(broker, "t", 2)
    disks["/b"].before_operation = failing("append", "t-1")
    assert refusal(lambda: append(one)) == STORAGE
    assert append(zero) == 0
    assert broker.fatal is None
    assert "the log dir /b is out of service" in caplog.text
    assert {folder_path(broker, it) for it in create(broker, "new", 2)} == {"/a"}
    at_once(broker.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=["t"]), version=5))
    broker.close()
    assert disks["/a"].exists(names.CLEAN_SHUTDOWN)
    assert not disks["/b"].exists(names.CLEAN_SHUTDOWN)
    # The topic is gone, its partition in the folder that failed goes at the next start.
    disks["/b"].before_operation = None
    open_broker(disks).close()
    assert [name for name in disks["/b"].listdir("") if name.startswith("t-1.") and name.endswith("-delete")]


def test_the_broker_ends_when_no_log_dir_is_left() -> None:
    broker = open_broker(new_disks("/a", "/b"), "metadata.log.dir=/a", "log.dirs=/a,/b")
    broker.take_offline(broker.log_dirs.dirs[1], EIO)
    assert not has_ended(broker)
    broker.take_offline(broker.log_dirs.dirs[0], EIO)
    assert has_ended(broker)
    broker.close()


def test_a_metadata_folder_apart_holds_no_partitions_and_does_not_count_as_a_log_dir() -> None:
    disks = new_disks("/m", "/a", "/b")
    config = load_config(data_dirs=["/a", "/b"], settings=["metadata.log.dir=/m"])
    broker = Broker.open(config, dict(disks), SystemClock())
    assert [folder_path(broker, it) for it in create(broker, "t", 4)] == ["/a", "/b", "/a", "/b"]
    broker.take_offline(broker.log_dirs.dirs[1], EIO)
    broker.take_offline(broker.log_dirs.dirs[0], EIO)
    assert broker.fatal is not None
    assert "no log dir is left" in broker.fatal
    broker.close()
    assert [disk.exists(names.CLEAN_SHUTDOWN) for disk in disks.values()] == [True, False, False]


def test_a_folder_whose_logs_cannot_be_recovered_is_out_of_service_and_the_others_serve() -> None:
    disks = new_disks()
    broker = open_broker(disks)
    for partition in create(broker, "t", 4):
        append(partition)
    crashed = killed(disks)
    for index in (1, 3):  # a torn tail is to be cut, and the disk does not let it
        path = f"t-{index}/00000000000000000000.log"
        crashed["/b"].write_bytes(path, crashed["/b"].read_bytes(path) + b"torn")
    fail, failures = failing("truncate", "t-3"), iter([True])

    def fail_once(name: str, path: str) -> None:
        # A second call would succeed; nobody may make one.
        if name == "truncate" and path.startswith("t-3") and next(failures, False):
            fail(name, path)

    crashed["/b"].before_operation = fail_once
    again = open_broker(crashed)
    assert [it.index for it in again.partitions] == [0, 2], "the others are out of service"
    for lost in (1, 3):
        assert refusal(partial(again.partitions.find, "t", lost)) == STORAGE
    assert append(again.partitions.find("t", 0)) == 1
    again.close()


def groups_by_folder(count: int) -> dict[str, str]:
    """Returns a group for each folder, by its partition of __consumer_offsets."""
    found: dict[str, str] = {}
    number = 0
    while len(found) < 2:
        group = f"group-{number}"
        found.setdefault("/ab"[java_hash(group) % count % 2 + 1], group)
        number += 1
    return {f"/{letter}": group for letter, group in found.items()}


def test_groups_whose_partition_is_out_of_service_have_no_coordinator() -> None:
    disks = new_disks()
    broker = open_broker(disks, "offsets.topic.num.partitions=4")
    at_once(broker.groups.runtime.topic.ensure())
    groups = groups_by_folder(4)
    assert at_once(broker.groups.runtime.coordinator_of(groups["/b"])) == 1
    broker.groups.runtime.find(groups["/b"])

    def check(running: Broker) -> None:
        service = running.groups
        assert at_once(service.runtime.coordinator_of(groups["/a"])) == 1
        beat = HeartbeatRequest(groups["/b"], 1, "member")
        assert refusal(lambda: service.heartbeat(beat)) == ErrorCode.NOT_COORDINATOR
        assert (
            refusal(lambda: at_once(service.runtime.coordinator_of(groups["/b"])))
            == ErrorCode.COORDINATOR_NOT_AVAILABLE
        )

    broker.take_offline(broker.log_dirs.dirs[1], EIO)
    check(broker)
    broker.close()
    # Nor after a start without it: an empty answer would send consumers back to the beginning.
    lame = open_broker({"/a": disks["/a"], "/b": locked(disks["/b"])}, "offsets.topic.num.partitions=4")
    check(lame)
    lame.close()


def test_clients_of_one_folder_continue_while_those_of_the_other_get_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    disks = new_disks("/a", "/b")
    monkeypatch.setattr(BrokerInThread, "_open_disk", lambda self: disks)
    settings = {"log.dirs": "/a,/b", "num.partitions": "2"}

    def produce(client: RawClient, index: int) -> tuple[int, int]:
        data = PartitionProduceData(index, memoryview(bytearray(build_batch([Record(value=b"x")]))))
        request = ProduceRequest(None, 1, 1000, [TopicProduceData("t", partition_data=[data])])
        answer = client.call(request, 9).responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    def fetch(client: RawClient, index: int, offset: int) -> tuple[int, int]:
        partition = FetchPartition(index, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=[FetchTopic("t", partitions=[partition])])
        answer = client.call(request, 11).responses[0].partitions[0]
        return answer.error_code, answer.high_watermark

    with BrokerInThread(settings=settings) as broker, RawClient(broker.address) as client:
        client.call(MetadataRequest([MetadataRequestTopic(name="t")], allow_auto_topic_creation=True), 9)
        assert [produce(client, 0), produce(client, 1)] == [(0, 0), (0, 0)]
        with RawClient(broker.address) as reader, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(fetch, reader, 1, 1)  # parked: there is no offset 1 yet
            disks["/b"].before_operation = failing("append", "t-1")
            assert produce(client, 1) == (STORAGE, -1)
            assert waiting.result(TIMEOUT_S) == (STORAGE, -1)
        assert produce(client, 0) == (0, 1)
        disks["/b"].before_operation = None
        assert produce(client, 1) == (STORAGE, -1)
        assert fetch(client, 1, 0) == (STORAGE, -1)
        assert fetch(client, 0, 0) == (0, 2)


def test_a_broker_has_the_epoch_of_its_last_stop_if_that_was_clean_in_every_folder() -> None:
    disks = new_disks()
    broker = open_broker(disks)
    assert broker.log_dirs.stopped_epoch == -1
    epoch = broker.metadata.image.brokers[1].broker_epoch
    assert epoch >= 0
    broker.close()
    again = open_broker(disks)
    assert again.log_dirs.stopped_epoch == epoch
    assert open_broker(killed(disks)).log_dirs.stopped_epoch == -1
    again.close()
    path = list(disks)[-1]
    disks[path].write_bytes(names.CLEAN_SHUTDOWN, encode_clean_shutdown(epoch + 1))
    assert open_broker(disks).log_dirs.stopped_epoch == -1, "the folders have different epochs"


def test_the_epoch_of_a_stop_is_unknown_while_a_folder_is_away() -> None:
    disks = new_disks()
    open_broker(disks).close()
    path = list(disks)[-1]
    disks[path] = FaultyDisk()
    assert open_broker(disks).log_dirs.stopped_epoch == -1
