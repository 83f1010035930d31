"""The image: the effect of each record, notices to watchers, and replay that gives what was there live."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kwire_protocol.internal.metadata_brokers import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from kwire_protocol.internal.metadata_configs import ConfigRecord, FeatureLevelRecord, ProducerIdsRecord
from kwire_protocol.internal.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from kwire_protocol.internal.metadata_topics import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kwire_protocol.wire import ProtocolError

from kwire.metadata.image import Changes, ConfigResourceType, MetadataImage, PartitionRegistration
from kwire.metadata.records import MetadataRecord, decode_record, encode_record
from kwire.metadata.snapshots import difference_records

A, B = b"a" * 16, b"b" * 16
TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER


def partition(topic_id: bytes, index: int) -> PartitionRecord:
    return PartitionRecord(
        index, topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0, directories=[B]
    )


def applied(*records: MetadataRecord, image: MetadataImage | None = None) -> tuple[MetadataImage, Changes]:
    image = image or MetadataImage()
    changes = Changes()
    for record in records:
        image.apply(record, offset=image.offset + 1, changes=changes)
    image.publish(changes)
    return image, changes


def test_topic_is_found_by_name_and_id() -> None:
    image, changes = applied(TopicRecord("t", A), partition(A, 0), partition(A, 1))
    topic = image.topics["t"]
    assert topic is image.topics_by_id[A]
    assert [it.leader for it in topic.partitions] == [1, 1]
    assert image.partition("t", 1) == PartitionRegistration(1, 0, (1,), (1,), 0, (B,))
    assert image.partition("t", 2) is None
    assert image.partition("u", 0) is None
    assert changes == Changes(topics_created=[topic])


def test_partitions_added_later_are_listed_apart() -> None:
    image, _ = applied(TopicRecord("t", A), partition(A, 0))
    image, changes = applied(partition(A, 1), partition(A, 2), image=image)
    assert changes.topics_created == []
    assert [index for _, index in changes.partitions_added] == [1, 2]


def test_removed_topic_takes_its_configuration_along() -> None:
    image, _ = applied(TopicRecord("t.a", A), ConfigRecord(TOPIC, "t.a", "segment.ms", "5"), partition(A, 0))
    assert image.colliding_names == {"t_a": {"t.a"}}
    image, changes = applied(RemoveTopicRecord(A), image=image)
    assert attrs.evolve(image, offset=-1, epoch=0) == MetadataImage()
    assert [topic.name for topic in changes.topics_deleted] == ["t.a"]
    assert changes.configs == {(TOPIC, "t.a")}


def test_topic_that_came_and_went_leaves_no_trace() -> None:
    image, changes = applied(TopicRecord("t", A), partition(A, 0), RemoveTopicRecord(A))
    assert changes == Changes()
    image, changes = applied(
        TopicRecord("t", A), partition(A, 0), RemoveTopicRecord(A), TopicRecord("t", B), partition(B, 0), image=image
    )
    assert changes == Changes(topics_created=[image.topics["t"]])


def test_partitions_of_a_deleted_topic_are_no_change() -> None:
    image, _ = applied(TopicRecord("t", A), partition(A, 0))
    _, changes = applied(partition(A, 1), PartitionChangeRecord(0, A, isr=[]), RemoveTopicRecord(A), image=image)
    assert changes.partitions_added == changes.partitions_changed == []
    assert len(changes.topics_deleted) == 1


def test_partition_change_keeps_what_it_does_not_name() -> None:
    image, _ = applied(TopicRecord("t", A), partition(A, 0))
    image, changes = applied(PartitionChangeRecord(0, A, isr=[1, 2]), image=image)
    assert image.partition("t", 0) == PartitionRegistration(1, 0, (1,), (1, 2), 1, (B,))
    assert [(topic.name, index) for topic, index in changes.partitions_changed] == [("t", 0)]


def test_new_leader_means_new_leader_epoch() -> None:
    image, _ = applied(TopicRecord("t", A), partition(A, 0), PartitionChangeRecord(0, A, leader=2, replicas=[2, 1]))
    changed = image.partition("t", 0)
    assert changed is not None
    assert (changed.leader, changed.leader_epoch, changed.replicas, changed.partition_epoch) == (2, 1, (2, 1), 1)


def test_configuration_is_set_and_unset() -> None:
    image, changes = applied(ConfigRecord(BROKER, "", "a", "1"), ConfigRecord(BROKER, "1", "a", "2"))
    assert image.config(BROKER, "") == {"a": "1"}
    assert image.config(BROKER, "1") == {"a": "2"}
    assert changes.configures_this_broker(1)
    assert not Changes().configures_this_broker(1)
    image, _ = applied(ConfigRecord(BROKER, "", "a", None), ConfigRecord(BROKER, "9", "b", None), image=image)
    assert image.config(BROKER, "") == {}
    assert (BROKER, "") not in image.configs


def test_configured_topics_are_named() -> None:
    _, changes = applied(ConfigRecord(TOPIC, "t", "segment.ms", "5"), ConfigRecord(BROKER, "2", "a", "1"))
    assert changes.configured_topics() == ["t"]
    assert not changes.configures_this_broker(1)


def test_features_and_producer_ids() -> None:
    image, changes = applied(FeatureLevelRecord("metadata.version", 30), ProducerIdsRecord(1, 0, 1000))
    assert image.features == {"metadata.version": 30}
    assert image.next_producer_id == 1000
    assert changes.features
    image, _ = applied(FeatureLevelRecord("metadata.version", 0), image=image)
    assert image.features == {"metadata.version": 0}


def test_a_brokers_life() -> None:
    image, changes = applied(
        RegisterBrokerRecord(
            2, broker_epoch=5, rack="r", log_dirs=[A], end_points=[BrokerEndpoint("PLAINTEXT", "h", 9, 0)]
        )
    )
    assert changes.brokers
    assert image.brokers[2].endpoints["PLAINTEXT"].port == 9
    assert image.live_brokers() == []
    image, _ = applied(BrokerRegistrationChangeRecord(2, 5, fenced=-1), image=image)
    assert [broker.broker_id for broker in image.live_brokers()] == [2]
    assert image.brokers[2].log_dirs == (A,)
    image, _ = applied(BrokerRegistrationChangeRecord(2, 5, in_controlled_shutdown=1), image=image)
    assert image.live_brokers() == []
    image, _ = applied(FenceBrokerRecord(2, 5), UnfenceBrokerRecord(2, 5), image=image)
    assert not image.brokers[2].fenced
    image, _ = applied(UnregisterBrokerRecord(2, 5), image=image)
    assert image.brokers == {}


def test_transaction_takes_effect_at_its_end() -> None:
    image, changes = applied(BeginTransactionRecord("create"), TopicRecord("t", A), partition(A, 0))
    assert image.topics == {}
    image, changes = applied(EndTransactionRecord(), image=image)
    assert list(image.topics) == ["t"]
    assert len(changes.topics_created) == 1


def test_aborted_transaction_has_no_effect() -> None:
    image, changes = applied(BeginTransactionRecord(), TopicRecord("t", A), AbortTransactionRecord(), NoOpRecord())
    assert image.topics == {}
    assert changes == Changes()
    assert image.offset == 3
    assert image.epoch == 4


def test_unknown_frames_are_refused() -> None:
    assert decode_record(encode_record(TopicRecord("t", A))) == TopicRecord("t", A)
    for value in (b"", b"\x02\x02\x00", b"\x01\x63\x00", b"\x01\x02\x09"):
        with pytest.raises(ProtocolError):
            decode_record(value)


names = st.sampled_from(["a", "b", "a.b", "a_b", "c"])


@st.composite
def histories(draw: st.DrawFn) -> list[MetadataRecord]:
    """Any sequence of records that a controller might write."""
    topics: dict[str, tuple[bytes, int]] = {}
    ids = 0
    records: list[MetadataRecord] = []
    for _ in range(draw(st.integers(0, 25))):
        name = draw(names)
        if name not in topics:
            ids += 1
            topics[name] = ids.to_bytes(16, "big"), draw(st.integers(1, 3))
            topic_id, count = topics[name]
            records += [TopicRecord(name, topic_id), *(partition(topic_id, index) for index in range(count))]
            continue
        topic_id, count = topics[name]
        match draw(st.integers(0, 5)):
            case 0:
                records.append(RemoveTopicRecord(topic_id))
                del topics[name]
            case 1:
                records.append(partition(topic_id, count))
                topics[name] = topic_id, count + 1
            case 2:
                records.append(PartitionChangeRecord(draw(st.integers(0, count - 1)), topic_id, leader=2))
            case 3:
                value = draw(st.none() | st.sampled_from(["1", "2"]))
                records.append(ConfigRecord(TOPIC, name, draw(names), value))
            case 4:
                records.append(ProducerIdsRecord(1, 1, draw(st.integers(0, 5000))))
            case _:
                records.append(FeatureLevelRecord(name, draw(st.integers(0, 3))))
    return records


@given(histories(), st.data())
@settings(max_examples=150, deadline=None)
def test_replay_of_the_bytes_gives_the_live_image(records: list[MetadataRecord], data: Any) -> None:
    live, _ = applied(*records)
    replayed, _ = applied(*(decode_record(encode_record(record)) for record in records))
    assert replayed == live

    # And whoever follows the changes, batch by batch, has the same topics and partitions at the end.
    followed: dict[bytes, int] = {}
    image = MetadataImage()
    at = 0
    while at < len(records):
        step = data.draw(st.integers(1, 6))
        image, changes = applied(*records[at : at + step], image=image)
        at += step
        for topic in changes.topics_deleted:
            del followed[topic.topic_id]
        for topic in changes.topics_created:
            followed[topic.topic_id] = len(topic.partitions)
        for topic, index in changes.partitions_added:
            assert followed[topic.topic_id] == index
            followed[topic.topic_id] += 1
    assert followed == {topic.topic_id: len(topic.partitions) for topic in live.topics.values()}


@given(histories(), st.data())
@settings(max_examples=150, deadline=None)
def test_the_difference_of_two_images_turns_one_into_the_other(records: list[MetadataRecord], data: Any) -> None:
    behind, _ = applied(*records[: data.draw(st.integers(0, len(records)))])
    ahead, _ = applied(*records)
    difference = [decode_record(encode_record(it)) for it in difference_records(behind, ahead)]
    image, changes = applied(*difference, image=behind)
    assert attrs.evolve(image, offset=0, epoch=0) == attrs.evolve(ahead, offset=0, epoch=0)
    assert not list(difference_records(image, ahead))
    assert {it.topic_id for it in changes.topics_created} <= ahead.topics_by_id.keys()
