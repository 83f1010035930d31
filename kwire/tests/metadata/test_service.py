"""The service over its log: first start, restart, crash at any moment, and a disk that refuses."""

from __future__ import annotations

import errno

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_configs import ConfigRecord
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.metadata.controller.configs.config_changes import ConfigChange, Operation, alter_configs
from kwire.metadata.controller.topics.auto_created_topics import auto_create_topic
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.metadata.image import Changes, ConfigResourceType, MetadataImage
from kwire.metadata.producer_ids import ProducerIds
from kwire.metadata.service import MetadataService
from kwire.runtime.futures import at_once
from testkit.metadata.config_requests import DELETE, SET, incremental
from testkit.metadata.harness import DIRECTORY_ID, open_service, record

BROKER = ConfigResourceType.BROKER


def forget_count(image: MetadataImage) -> MetadataImage:
    """Returns the image without its number of changes, which a replay need not repeat."""
    return attrs.evolve(image, epoch=0)


def busy(service: MetadataService) -> None:
    at_once(
        service.change(create_topics, CreateTopicsRequest([CreatableTopic("a", 3, 1), CreatableTopic("b.c", 1, 1)]))
    )
    at_once(service.change(delete_topics, DeleteTopicsRequest(topic_names=["a"]), version=5))
    at_once(
        service.change(
            alter_configs, [ConfigChange(BROKER, "1", [("log.retention.ms", Operation.SET, "5")])], validate_only=False
        )
    )
    at_once(ProducerIds(service).draw())


def test_first_start_sets_features_and_registers_this_broker() -> None:
    service, _ = open_service(settings={"broker.rack": "r1", "listeners": "PLAINTEXT://:0"})
    assert service.image.features == {
        "metadata.version": 30,
        "transaction.version": 2,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
    }
    (broker,) = service.image.live_brokers()
    assert (broker.broker_id, broker.rack, broker.log_dirs) == (1, "r1", (DIRECTORY_ID,))
    assert broker.endpoints["PLAINTEXT"].host == "localhost"
    # Like a KRaft broker's, its epoch is the offset of its registration.
    assert broker.broker_epoch == service.image.offset


def test_a_restart_restores_the_image_and_writes_nothing() -> None:
    disk = FaultyDisk()
    service, folder = open_service(disk)
    busy(service)
    folder.close()
    again, _ = open_service(disk.crash(), ids_from=1000)
    assert forget_count(again.image) == forget_count(service.image)
    assert again.configs.topic_defaults()["retention.ms"] == 5
    assert again.config == service.config


def test_changed_listeners_are_registered_again() -> None:
    disk = FaultyDisk()
    _, folder = open_service(disk)
    folder.close()
    service, _ = open_service(disk.kill(), {"listeners": "PLAINTEXT://127.0.0.1:7777"}, ids_from=1000)
    assert service.image.brokers[1].endpoints["PLAINTEXT"].port == 7777
    assert service.image.brokers[1].broker_epoch == service.image.offset


def test_what_was_answered_survives_a_power_cut_at_any_moment() -> None:
    disk = FaultyDisk()
    service, _ = open_service(disk)
    for step in range(6):
        at_once(service.change(create_topics, CreateTopicsRequest([CreatableTopic(f"t{step}", 2, 1)])))
        if step % 2:
            at_once(service.change(delete_topics, DeleteTopicsRequest(topic_names=[f"t{step - 1}"]), version=5))
        after, _ = open_service(disk.crash(), ids_from=1000)
        assert forget_count(after.image) == forget_count(service.image)


def test_producer_ids_are_never_given_twice_over_restarts() -> None:
    disk = FaultyDisk()
    given: list[int] = []
    for _ in range(3):
        service, _ = open_service(disk)
        ids = ProducerIds(service)
        given += [at_once(ids.draw()) for _ in range(3)]
        disk = disk.crash()
    assert given == [0, 1, 2, 1000, 1001, 1002, 2000, 2001, 2002]


def test_a_disk_that_refuses_changes_nothing_and_is_reported() -> None:
    disk = MemoryDisk()
    service, _ = open_service(disk)
    notified: list[Changes] = []
    service.watch(notified.append)
    before = service.image.offset

    def full(operation: str, path: str) -> None:
        raise OSError(errno.ENOSPC, "no space left on device", path)

    disk.before_operation = full
    with pytest.raises(KafkaError) as error:
        at_once(service.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)])))
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert service.image.offset == before
    assert service.image.topics == {}
    assert notified == []
    # And when there is room again, it continues by itself.
    disk.before_operation = None
    at_once(service.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)])))
    assert [it.name for it in notified[0].topics_created] == ["t"]


def test_watchers_see_the_image_already_changed() -> None:
    service, _ = open_service()
    seen: list[list[str]] = []
    service.watch(lambda changes: seen.append([it.name for it in changes.topics_created]))
    service.watch(lambda changes: seen.append(sorted(service.image.topics)))
    at_once(service.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)])))
    assert seen == [["t"], ["t"]]


def test_a_topic_that_exists_is_not_created_again() -> None:
    service, _ = open_service()
    at_once(service.change(auto_create_topic, "t"))
    with pytest.raises(KafkaError) as error:
        at_once(service.change(auto_create_topic, "t"))
    assert error.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_configuration_that_this_version_refuses_keeps_no_other_from_being_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = FaultyDisk()
    service, folder = open_service(disk)
    for name, value in (("log.retention.ms", "0"), ("max.connections", "7"), ("num.partitions", "9")):
        record(service, ConfigRecord(BROKER, "", name, value))
    folder.close()
    caplog.clear()
    again, _ = open_service(disk.crash())
    assert (again.config.max_connections, again.config.num_partitions) == (7, 1)
    assert again.configs.topic_defaults()["retention.ms"] == 604_800_000
    assert [message.partition(": ")[2].partition(" ")[0] for message in caplog.messages] == [
        "Invalid",
        "num.partitions",
    ]


UNFIT = {
    "group.consumer.assignment.interval.ms": "20000",
    "log.roll.jitter.ms": "-1",
    "log.roll.ms": "-1",
    "max.connections": "0",
    "max.connections.per.ip": "0",
}
"""Another version may have accepted these."""


def test_what_does_not_fit_in_the_log_is_named_and_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    service, folder = open_service(disk)
    for name, value in UNFIT.items():
        record(service, ConfigRecord(BROKER, "", name, value))
    folder.close()
    caplog.clear()
    again, _ = open_service(disk.crash(), {"max.connections": "5", "log.roll.ms": "7000"})
    assert {name for name in UNFIT if any(name in message for message in caplog.messages)} == UNFIT.keys()
    assert all(message.startswith("the metadata log has a configuration") for message in caplog.messages)
    topics = again.configs.topic_defaults()
    assert (topics["segment.ms"], topics["segment.jitter.ms"]) == (7000, 0)
    assert (again.config.max_connections, again.config.max_connections_per_ip) == (5, 2**31 - 1)
    assert again.configs.of_group({}).values["consumer.assignment.interval.ms"] == 0


def test_what_does_not_fit_in_the_log_is_set_right_one_by_one() -> None:
    service, _ = open_service()
    for name, value in UNFIT.items():
        record(service, ConfigRecord(BROKER, "", name, value))
    assert incremental(service, BROKER, "", ("log.roll.ms", SET, "9")) == (ErrorCode.NONE, None)
    assert incremental(service, BROKER, "", ("max.connections", DELETE, None)) == (ErrorCode.NONE, None)
    assert incremental(service, BROKER, "", ("log.retention.ms", SET, "5")) == (ErrorCode.NONE, None)
    overrides = ("max.connections.per.ip.overrides", SET, "10.0.0.1:5")
    assert incremental(service, BROKER, "", overrides) == (ErrorCode.NONE, None)
    assert service.configs.topic_defaults()["segment.ms"] == 9
    assert service.configs.topic_defaults()["retention.ms"] == 5
    assert sorted(service.configs.refused) == ["group.consumer.assignment.interval.ms", "log.roll.jitter.ms"]
    assert service.config.max_connections_per_ip == 0, "it fits now"


def test_what_does_not_fit_of_a_topic_or_a_group_in_the_log_is_named(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    service, folder = open_service(disk)
    at_once(service.change(auto_create_topic, "t"))
    record(service, ConfigRecord(ConfigResourceType.TOPIC, "t", "min.compaction.lag.ms", "10"))
    record(service, ConfigRecord(ConfigResourceType.TOPIC, "t", "max.compaction.lag.ms", "9"))
    record(service, ConfigRecord(ConfigResourceType.GROUP, "g", "consumer.session.timeout.ms", "x"))
    warnings = [
        "the metadata log has a configuration of topic t that is not followed: conflict topic config setting "
        "min.compaction.lag.ms (10) > max.compaction.lag.ms (9); change or remove it",
        "the metadata log has a configuration of group g that is not followed: Invalid value x for configuration "
        "consumer.session.timeout.ms: Not a number of type INT (from -2147483648 to 2147483647); change or remove it",
    ]
    assert caplog.messages == warnings
    folder.close()
    caplog.clear()
    again, _ = open_service(disk.crash())
    assert caplog.messages == warnings
    assert again.topic_values("t")["min.compaction.lag.ms"] == 0


def test_an_unclean_election_is_logged_when_it_happens(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    service, folder = open_service(disk)
    at_once(service.change(auto_create_topic, "t"))
    topic_id = service.image.topics["t"].topic_id
    record(service, PartitionChangeRecord(0, topic_id, leader=-1, isr=[], last_known_elr=[1]))
    assert caplog.messages == []
    record(service, PartitionChangeRecord(0, topic_id, leader=2, isr=[2]))
    assert caplog.messages == [
        "unclean election: partition 0 of topic t, which broker 1 led, is led by broker 2, which was not in sync: "
        "acknowledged records that broker 2 lacks are lost"
    ]
    record(service, PartitionChangeRecord(0, topic_id, isr=[2, 1]))
    record(service, PartitionChangeRecord(0, topic_id, leader=1))
    assert len(caplog.messages) == 1, "the other election is clean"
    record(service, PartitionChangeRecord(0, topic_id, leader=-1, isr=[], last_known_elr=[1]))
    record(service, PartitionChangeRecord(0, topic_id, leader=1, isr=[1]))
    assert len(caplog.messages) == 1, "broker 1 had all that was acknowledged"
    folder.close()
    caplog.clear()
    open_service(disk.crash())
    assert caplog.messages == []
