"""The service over a log that is slow and shared: races, repeated decisions, and responses."""

from __future__ import annotations

import errno
from collections.abc import Coroutine
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_configs import ConfigRecord, ProducerIdsRecord
from kwire_protocol.internal.metadata_topics import PartitionRecord, TopicRecord
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest

from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.metadata.controller.topics.partition_creation import create_partitions
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.metadata.image import Changes, ConfigResourceType
from kwire.metadata.producer_ids import ProducerIds
from kwire.runtime.futures import Future, drive
from testkit.basics.futures import at_once
from testkit.metadata.distant_log import NEWS, answered, settle
from testkit.metadata.harness import distant_service

E = ErrorCode
THEIRS = b"of somebody else"


def creation(name: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, partitions, 1)])


def in_flight(*requests: Coroutine[Future[Any], None, Any]) -> list[Any]:
    """Begins all of them; their answers are added to the list as they come."""
    answers: list[Any] = []

    async def note(request: Coroutine[Future[Any], None, Any]) -> None:
        answers.append(await request)

    for request in requests:
        drive(note(request))
    return answers


def theirs(name: str) -> list[TopicRecord | PartitionRecord]:
    return [TopicRecord(name, THEIRS), PartitionRecord(0, THEIRS, replicas=[1], isr=[1], leader=1)]


def test_nobody_is_answered_before_the_log_has_it() -> None:
    service, _ = distant_service()
    answers = in_flight(service.change(create_topics, creation("t")))
    assert answers == []
    assert service.image.topics == {}
    settle()
    assert [it.topics[0].error_code for it in answers] == [E.NONE]


def test_requests_in_flight_are_decided_one_after_the_other_on_what_the_one_before_left() -> None:
    service, _ = distant_service()
    more = CreatePartitionsRequest([CreatePartitionsTopic("t", 3, None)])
    answers = in_flight(
        service.change(create_topics, creation("t", 2)),
        service.change(create_topics, creation("t", 5)),
        service.change(create_partitions, more),
        service.change(delete_topics, DeleteTopicsRequest(topic_names=["t"]), version=5),
        service.change(create_partitions, more),
    )
    settle()
    assert [answers[it].topics[0].error_code for it in (0, 1)] == [E.NONE, E.TOPIC_ALREADY_EXISTS]
    assert answers[2].results[0].error_code == E.NONE
    assert answers[3].responses[0].error_code == E.NONE
    assert answers[4].results[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert service.image.topics == {}


def test_whoever_was_slower_decides_again_on_what_the_other_left() -> None:
    service, log = distant_service()
    log.others = lambda: None if log.appends > 1 else log.record_as_other(*theirs("t"))
    log.appends = 0
    (refused,) = answered(service.change(create_topics, creation("t"))).topics
    assert refused.error_code == E.TOPIC_ALREADY_EXISTS
    assert service.image.topics["t"].topic_id == THEIRS
    assert log.appends == 1


def test_whoever_was_slower_and_finds_it_still_possible_comes_next() -> None:
    service, log = distant_service()
    log.appends = 0
    log.others = lambda: None if log.appends > 3 else log.record_as_other(ConfigRecord(2, "x", str(log.appends), ""))
    (created,) = answered(service.change(create_topics, creation("t"))).topics
    assert created.error_code == E.NONE
    assert log.appends == 4
    assert service.image.configs[ConfigResourceType.TOPIC, "x"].keys() == {"1", "2", "3"}


def test_nothing_is_refused_because_the_news_of_another_node_has_not_arrived() -> None:
    service, log = distant_service()
    log.record_without_news(*theirs("t"))
    (deleted,) = answered(service.change(delete_topics, DeleteTopicsRequest(topic_names=["t"]), version=5)).responses
    assert deleted.error_code == E.NONE
    log.record_without_news(*theirs("u"))
    log.record_without_news(*theirs("v"))
    assert answered(service.change(existing, "v")) == THEIRS


def test_a_refusal_is_answered_even_if_the_log_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    service, log = distant_service()
    log.is_unreadable = True
    with pytest.raises(KafkaError) as refused:
        answered(service.change(existing, "t"))
    assert refused.value.code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert "the connection is lost" in caplog.text


def existing(state: ClusterState, name: str) -> tuple[Records, bytes]:
    """Returns the id of a topic, and no records. Raises KafkaError if it does not exist."""
    found = state.image.topics.get(name)
    if found is None:
        raise KafkaError(E.UNKNOWN_TOPIC_OR_PARTITION)
    return [], found.topic_id


def test_what_others_append_is_followed_without_a_request() -> None:
    service, log = distant_service()
    notified: list[Changes] = []
    service.watch(notified.append)
    log.record_as_other(*theirs("t"))
    settle()
    assert [it.name for it in notified[0].topics_created] == ["t"]
    assert service.image.topics["t"].topic_id == THEIRS


def test_a_refusal_of_the_log_is_returned_to_its_caller_and_the_next_change_succeeds() -> None:
    service, log = distant_service()
    log.refuses = OSError(errno.EIO, "the connection is lost")
    with pytest.raises(KafkaError) as refused:
        answered(service.change(create_topics, creation("t")))
    assert refused.value.code == E.KAFKA_STORAGE_ERROR
    assert "the connection is lost" in (refused.value.message or "")
    log.refuses = None
    assert answered(service.change(create_topics, creation("t"))).topics[0].error_code == E.NONE


def test_a_change_whose_client_hangs_up_is_still_carried_out() -> None:
    service, _ = distant_service()
    request = service.change(create_topics, creation("t"))
    request.send(None)
    request.close()
    settle()
    assert "t" in service.image.topics


def test_a_bug_in_one_decision_reaches_its_caller_and_nobody_else() -> None:
    service, _ = distant_service()

    def broken(_: object) -> tuple[list[Any], None]:
        raise ZeroDivisionError

    answers = in_flight(service.change(create_topics, creation("a")))
    with pytest.raises(ZeroDivisionError):
        answered(service.change(broken))
    answers += in_flight(service.change(create_topics, creation("b")))
    settle()
    assert sorted(service.image.topics) == ["a", "b"]


def test_a_new_topic_is_seen_when_its_partitions_are_served_and_not_before() -> None:
    service, _ = distant_service()
    opened: Future[None] = Future()

    async def follow(changes: Changes) -> None:
        if changes.topics_created:
            await opened

    service.follow = follow
    answers = in_flight(service.change(create_topics, creation("t", 3)))
    settle()
    assert "t" not in service.image.topics
    epoch = service.image.epoch
    opened.set(None)
    settle()
    assert len(service.image.topics["t"].partitions) == 3
    assert service.image.epoch > epoch, "what was answered meanwhile is forgotten"
    assert answers[0].topics[0].error_code == E.NONE


# -- producer ids


def drawn(ids: ProducerIds, count: int) -> list[int]:
    return [answered(ids.draw()) for _ in range(count)]


def test_the_next_block_is_fetched_when_half_of_the_present_one_is_used() -> None:
    service, log = distant_service()
    ids = ProducerIds(service)
    assert drawn(ids, 499) == list(range(499))
    settle()
    appends = log.appends
    assert drawn(ids, 1) == [499]
    settle()
    assert log.appends == appends + 1
    assert [at_once(ids.draw()) for _ in range(501)] == list(range(500, 1001))


def test_a_block_that_somebody_else_took_meanwhile_is_not_given_out() -> None:
    service, log = distant_service()
    ids = ProducerIds(service)
    log.appends = 0
    log.others = lambda: log.record_as_other(ProducerIdsRecord(2, 5, 7000)) if log.appends == 1 else None
    assert drawn(ids, 2) == [7000, 7001]


def test_a_machine_that_finds_no_id_gets_a_retriable_error_and_one_is_fetched() -> None:
    service, _ = distant_service()
    ids = ProducerIds(service)
    with pytest.raises(KafkaError) as refused:
        ids.take()
    assert refused.value.code == E.COORDINATOR_LOAD_IN_PROGRESS
    settle()
    assert ids.take() == 0


def test_all_who_wait_for_a_block_get_ids_of_it_and_it_is_one() -> None:
    service, log = distant_service()
    ids = ProducerIds(service)
    log.appends = 0
    answers = in_flight(*(ids.draw() for _ in range(5)))
    assert answers == []
    settle()
    assert sorted(answers) == [0, 1, 2, 3, 4]
    assert log.appends == 1


def test_who_waits_for_a_block_that_cannot_be_had_gets_an_error_and_the_next_tries_again() -> None:
    service, log = distant_service()
    ids = ProducerIds(service)
    log.refuses = OSError(errno.ENOSPC, "full")
    with pytest.raises(KafkaError) as refused:
        answered(ids.draw())
    assert refused.value.code == E.KAFKA_STORAGE_ERROR
    log.refuses = None
    assert drawn(ids, 1) == [0]


def test_a_start_skips_what_was_left_of_a_block() -> None:
    service, log = distant_service()
    ids = ProducerIds(service)
    assert drawn(ids, 3) == [0, 1, 2]
    settle()
    NEWS.clear()
    again, _ = distant_service(log=log)
    assert drawn(ProducerIds(again), 1) == [1000]
