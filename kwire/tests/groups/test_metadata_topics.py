"""The topics of the metadata, as groups see them: ids and partitions, racks, and a version of changes."""

from __future__ import annotations

from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest

from kwire.groups.metadata_topics import MetadataTopics
from kwire.groups.topics import metadata_hash
from kwire.metadata.controller.topics.partition_creation import create_partitions
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.metadata.producer_ids import ProducerIds
from kwire.metadata.service import MetadataService
from kwire.runtime.futures import at_once
from testkit.metadata.harness import open_service


def create(service: MetadataService, name: str, partitions: int = 2) -> None:
    at_once(service.change(create_topics, CreateTopicsRequest([CreatableTopic(name, partitions, 1)])))


def delete(service: MetadataService, name: str) -> None:
    at_once(service.change(delete_topics, DeleteTopicsRequest(topic_names=[name]), version=5))


def test_topics_are_found_by_name_and_named_by_id() -> None:
    service, _ = open_service()
    topics = MetadataTopics(service)
    assert topics.find("t") is None
    create(service, "t")
    found = topics.find("t")
    assert found is not None
    assert (found.name, found.spec.partition_count) == ("t", 2)
    assert topics.name_of(found.topic_id) == "t"
    assert list(topics.names()) == ["t"]
    delete(service, "t")
    assert topics.find("t") is None
    assert topics.name_of(found.topic_id) is None


def test_the_version_changes_with_the_topics_and_with_nothing_else() -> None:
    service, _ = open_service()
    topics = MetadataTopics(service)
    versions = [topics.version]
    create(service, "t")
    versions.append(topics.version)
    request = CreatePartitionsRequest([CreatePartitionsTopic("t", 3, assignments=None)])
    at_once(service.change(create_partitions, request))
    versions.append(topics.version)
    found = topics.find("t")
    assert found is not None
    assert found.spec.partition_count == 3
    delete(service, "t")
    versions.append(topics.version)
    assert len(set(versions)) == 4
    at_once(ProducerIds(service).draw())
    assert topics.version == versions[-1]


def test_a_topic_that_is_made_again_has_another_hash() -> None:
    service, _ = open_service()
    topics = MetadataTopics(service)
    create(service, "t")
    create(service, "u")
    before = metadata_hash(topics, ["t", "u", "gone"])
    assert before == metadata_hash(topics, ["u", "t"]), "whatever the order, and without those that do not exist"
    assert -(1 << 63) <= before < 1 << 63
    delete(service, "t")
    assert metadata_hash(topics, []) == 0
    create(service, "t")
    assert metadata_hash(topics, ["t", "u"]) != before


def test_partitions_have_the_racks_of_their_replicas() -> None:
    service, _ = open_service(settings={"broker.rack": "r1", "listeners": "PLAINTEXT://:0"})
    topics = MetadataTopics(service)
    create(service, "t")
    found = topics.find("t")
    assert found is not None
    assert found.spec.racks == (frozenset({"r1"}), frozenset({"r1"}))
