"""Two brokers whose share-partitions are coordinated by one of them, while requests are lost and late."""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import trio
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from kwire_protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from kwire_protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from kwire_protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from kwire_protocol.messages.write_share_group_state import PartitionData, WriteShareGroupStateRequest
from outcome import Outcome

from kwire.names.topic_names import SHARE_GROUP_STATE
from kwire.runtime.futures import Future, begun
from kwire.runtime.loop import Host, Loop
from kwire.share.coordinator import persister as persisting
from kwire.share.coordinator.kinds import READ, WRITE
from kwire.share.coordinator.persister import MAX_ATTEMPTS, PATIENCE_MS
from kwire.share.coordinator.remote_states import MAX_PARTITIONS, MAX_REQUESTS, MAX_WAITING, Question, RemoteStates
from kwire.share.coordinator.state import SharePartitionKey, ShareState, ShareStateSummary, StateBatch
from testkit.basics.futures import at_once
from testkit.cluster.connected_cluster import ConnectedCluster
from testkit.cluster.scripted_cluster import create
from testkit.metadata.harness import FakeClock
from testkit.share.coordinator.persister_scene import BATCH, Scene, started


def two_brokers() -> Scene:
    cluster = ConnectedCluster()
    started(cluster, 1)
    broker = started(cluster, 2)
    create(broker, "t", 20, 2)
    at_once(broker.share_state.runtime.topic.ensure())
    cluster.elect(SHARE_GROUP_STATE, 0, 1)
    scene = Scene(cluster, broker.metadata.image.topics["t"].topic_id)
    scene.settle()
    return scene


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = two_brokers()
    yield scene
    for each in scene.cluster.brokers.values():
        each.close()


def error_of(future: Future[Outcome[Any]]) -> E:
    with pytest.raises(KafkaError) as raised:
        future.value.unwrap()
    return raised.value.code


def test_a_local_coordinator_is_called_without_a_request(scene: Scene) -> None:
    scene.initialize()
    scene.write(1).value.unwrap()
    assert scene.read(1, leader_epoch=5).value.unwrap() == ShareState(0, 0, (BATCH,))
    summary = ShareStateSummary(0, 5, 0, 3)
    topic_id, persister = scene.topic_id, scene.persister(1)
    assert at_once(persister.read_summary("g", {topic_id: [(0, 5)]})) == {(topic_id, 0): summary}
    assert error_of(scene.read(1, leader_epoch=4)) is E.FENCED_LEADER_EPOCH
    assert at_once(persister.delete("g", {topic_id: [0, 19, 20]})) == {
        (topic_id, 0): E.NONE,
        (topic_id, 19): E.NONE,
        (topic_id, 20): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert error_of(scene.read(1)) is E.INVALID_REQUEST
    assert (scene.cluster.in_flight, scene.cluster.pauses) == ([], [])


def test_requests_to_another_broker_have_the_same_answers(scene: Scene) -> None:
    topic_id, persister = scene.topic_id, scene.persister(2)
    assert scene.run(2, persister.initialize("g", {topic_id: [(0, 0, 7), (1, 0, -1)], bytes(16): [(0, 0, 0)]})) == {
        (topic_id, 0): E.NONE,
        (topic_id, 1): E.NONE,
        (bytes(16), 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    scene.run(
        2,
        persister.write(
            "g",
            topic_id,
            0,
            state_epoch=0,
            leader_epoch=0,
            start_offset=8,
            delivery_complete_count=2,
            batches=[StateBatch(7, 9, 0, 1), StateBatch(9, 9, 2, 1)],
        ),
    )
    state = scene.run(2, persister.read("g", topic_id, 0, 4))
    assert state == ShareState(0, 8, (StateBatch(8, 8, 0, 1), StateBatch(9, 9, 2, 1)))
    assert scene.run(2, persister.read_summary("g", {topic_id: [(0, 4), (1, 0), (99, 0)]})) == {
        (topic_id, 0): ShareStateSummary(0, 4, 8, 2),
        (topic_id, 1): ShareStateSummary(0, 0, -1, -1),
        (topic_id, 99): ShareStateSummary(0, 0, 0, -1, E.UNKNOWN_TOPIC_OR_PARTITION),
    }
    assert scene.run(2, persister.delete("g", {topic_id: [0]})) == {(topic_id, 0): E.NONE}
    with pytest.raises(KafkaError) as raised:
        scene.run(2, persister.read("g", topic_id, 0, 4))
    assert raised.value.code is E.INVALID_REQUEST
    assert scene.cluster.pauses == []


def test_what_is_wanted_while_a_request_is_under_way_shares_the_next_one(scene: Scene) -> None:
    scene.initialize(*range(5))
    futures = [scene.write(2, partition) for partition in range(5)]
    first = scene.cluster.taken(WriteShareGroupStateRequest)
    assert (scene.partitions_of(first), scene.cluster.in_flight) == ([0], [])
    first.deliver()
    second = scene.cluster.taken(WriteShareGroupStateRequest)
    assert (scene.partitions_of(second), scene.cluster.in_flight) == ([1, 2, 3, 4], [])
    second.deliver()
    assert all(future.value.unwrap() is None for future in futures)


def test_other_kinds_and_other_groups_do_not_wait_for_each_other(scene: Scene) -> None:
    scene.initialize(0, 1)
    persister = scene.persister(2)
    scene.write(2, 0)
    scene.read(2, 0)
    begun(persister.initialize("h", {scene.topic_id: [(0, 0, 0)]}))
    begun(persister.delete("h", {scene.topic_id: [0]}))
    begun(persister.read_summary("h", {scene.topic_id: [(0, 0)]}))
    kinds = {type(sent.request) for sent in scene.cluster.in_flight}
    assert kinds == {
        WriteShareGroupStateRequest,
        ReadShareGroupStateRequest,
        InitializeShareGroupStateRequest,
        DeleteShareGroupStateRequest,
        ReadShareGroupStateSummaryRequest,
    }
    scene.cluster.deliver_all()


def test_a_coordinator_that_has_moved_is_looked_for_again(scene: Scene) -> None:
    scene.initialize()
    future = scene.write(2)
    late = scene.cluster.taken(WriteShareGroupStateRequest)
    scene.move_coordinator(2)
    late.deliver()
    assert not future.is_set
    scene.pass_pause()
    future.value.unwrap()
    assert scene.read(2).value.unwrap().batches == (BATCH,)
    assert scene.cluster.in_flight == []
    # And for the broker that has lost it, it is the other one.
    read = scene.read(1)
    scene.cluster.taken(ReadShareGroupStateRequest).deliver()
    assert read.value.unwrap().batches == (BATCH,)


@pytest.mark.parametrize(
    "passing", [E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, None]
)
def test_what_passes_is_waited_for(scene: Scene, passing: E | None) -> None:
    scene.initialize()
    future = scene.read(2)
    for _ in range(3):
        sent = scene.cluster.taken(ReadShareGroupStateRequest)
        if passing is None:
            sent.fail()
        else:
            sent.respond(READ.all_refused(sent.request, KafkaError(passing)))
        assert (future.is_set, scene.cluster.in_flight) == (False, [])
        scene.pass_pause()
    scene.cluster.deliver_all()
    assert future.value.unwrap() == ShareState(0, 0, ())


def test_a_write_that_was_done_and_not_answered_is_done_again_without_harm(scene: Scene) -> None:
    scene.initialize()
    future = scene.write(2)
    lost = scene.cluster.taken(WriteShareGroupStateRequest)
    lost.handle()
    lost.fail()
    scene.pass_pause()
    scene.cluster.deliver_all()
    future.value.unwrap()
    assert scene.read(1).value.unwrap().batches == (BATCH,)


def test_a_broker_that_never_answers_is_given_up(scene: Scene) -> None:
    scene.initialize()
    future = scene.read(2)
    attempts = 0
    while not future.is_set:
        scene.cluster.taken(ReadShareGroupStateRequest).fail()
        attempts += 1
        if not future.is_set:
            scene.pass_pause()
    assert error_of(future) is E.COORDINATOR_NOT_AVAILABLE
    assert attempts == MAX_ATTEMPTS
    assert (scene.cluster.in_flight, scene.cluster.pauses) == ([], [])


def test_patience_ends(scene: Scene) -> None:
    scene.initialize()
    clock = FakeClock()
    scene.persister(2)._clock = clock
    future = scene.read(2)
    scene.cluster.taken(ReadShareGroupStateRequest).fail()
    scene.pass_pause()
    clock.time_ms += PATIENCE_MS
    scene.cluster.taken(ReadShareGroupStateRequest).fail()
    assert error_of(future) is E.COORDINATOR_NOT_AVAILABLE


def test_an_answer_without_the_partition_and_a_code_that_is_not_known_are_errors(scene: Scene) -> None:
    scene.initialize()
    future = scene.read(2)
    scene.cluster.taken(ReadShareGroupStateRequest).respond(READ.response({}))
    scene.pass_pause()
    sent = scene.cluster.taken(ReadShareGroupStateRequest)
    response = READ.all_refused(sent.request, KafkaError(E.INVALID_REQUEST))
    response.results[0].partitions[0].error_code = 9_999
    sent.respond(response)
    assert error_of(future) is E.UNKNOWN_SERVER_ERROR


def test_writes_of_a_partition_are_done_in_order_even_if_one_is_repeated(scene: Scene) -> None:
    scene.initialize()
    futures = [scene.write(2, start_offset=offset, batches=()) for offset in (1, 2, 3)]
    scene.cluster.taken(WriteShareGroupStateRequest).fail()
    assert scene.cluster.in_flight == [], "the next one waits for the pause of the first"
    scene.pass_pause()
    for offset in (1, 2, 3):
        sent = scene.cluster.taken(WriteShareGroupStateRequest)
        assert sent.request.topics[0].partitions[0].start_offset == offset
        sent.deliver()
    assert all(future.value.unwrap() is None for future in futures)
    assert scene.read(1).value.unwrap().start_offset == 3
    assert scene.persister(2)._writes == {}


def test_a_caller_that_goes_away_lets_the_others_on(scene: Scene) -> None:
    scene.initialize()
    persister = scene.persister(2)

    def writing(offset: int) -> Coroutine[Any, None, None]:
        return persister.write(
            "g",
            scene.topic_id,
            0,
            state_epoch=0,
            leader_epoch=0,
            start_offset=offset,
            delivery_complete_count=0,
            batches=(),
        )

    first, second = writing(1), writing(2)
    first.send(None)
    second.send(None)
    last = begun(writing(3))
    second.close()
    first.close()
    assert not last.is_set
    # The request of the first one is carried out, or not.
    scene.cluster.deliver_all()
    last.value.unwrap()
    assert persister._writes == {}
    assert scene.read(1).value.unwrap().start_offset == 3


def test_a_server_that_ends_while_it_writes_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", errors.append)

    async def run() -> None:
        scene = two_brokers()
        scene.initialize()
        for _ in range(3):
            scene.write(2)

    trio.run(run)
    gc.collect()
    assert not errors


def test_too_many_writes_that_wait_are_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persisting, "MAX_WRITES_WAITING", 2)
    scene.initialize()
    futures = [scene.write(2) for _ in range(4)]
    assert error_of(futures.pop()) is E.COORDINATOR_NOT_AVAILABLE
    scene.cluster.deliver_all()
    assert all(future.value.unwrap() is None for future in futures)


def test_a_write_is_answered_when_the_replicas_have_it(scene: Scene) -> None:
    scene.initialize()
    partition = scene.cluster.led(SHARE_GROUP_STATE, 0, 1)
    partition.propose_isr((1, 2))
    future = scene.write(1)
    assert not future.is_set
    partition.note_fetch(2, partition.log_end_offset)
    future.value.unwrap()


def test_a_write_that_the_replicas_did_not_get_is_sent_to_the_next_coordinator(scene: Scene) -> None:
    scene.initialize()
    scene.cluster.replicate(SHARE_GROUP_STATE, 0, source=1, target=2)
    scene.cluster.led(SHARE_GROUP_STATE, 0, 1).propose_isr((1, 2))
    future = scene.write(1)
    assert not future.is_set
    scene.cluster.elect(SHARE_GROUP_STATE, 0, 2)
    scene.settle()
    assert not future.is_set
    scene.pass_pause()
    scene.cluster.taken(WriteShareGroupStateRequest).deliver()
    future.value.unwrap()
    assert scene.read(2).value.unwrap().batches == (BATCH,)


def test_requests_about_several_groups_leave_in_one_go(scene: Scene) -> None:
    persister = scene.persister(2)
    turns: deque[Callable[[], object]] = deque()

    def no_task(_: object) -> None:
        raise AssertionError("it starts no task")

    persister._peers.loop = Loop(Host(turns.append, no_task))
    for group_id in ("g", "h", "g"):
        begun(persister.initialize(group_id, {scene.topic_id: [(0, 0, 0), (1, 0, 0)]}))
    assert scene.cluster.in_flight == []
    while turns:
        turns.popleft()()
    assert [(sent.request.group_id, scene.partitions_of(sent)) for sent in scene.cluster.in_flight] == [
        ("g", [0, 1]),
        ("h", [0, 1]),
    ]


# The machine by itself


def question(partition: int, group_id: str = "g") -> Question:
    return Question(WRITE, SharePartitionKey(group_id, bytes(16), partition), PartitionData(partition))


def test_a_partition_is_named_once_in_a_request() -> None:
    machine = RemoteStates()
    twice = [question(3), question(3)]
    for each in twice:
        machine.add(each, 1)
    first = machine.next_request(1)
    assert first is not None
    assert first.questions == twice[:1]
    assert machine.next_request(1) is None, "one is under way"
    machine.answered(first, None)
    second = machine.next_request(1)
    assert second is not None
    assert second.questions == twice[1:]


def test_requests_and_what_waits_for_them_are_limited() -> None:
    machine = RemoteStates()
    for number in range(MAX_WAITING):
        machine.add(question(number), 1)
    with pytest.raises(KafkaError) as raised:
        machine.add(question(0), 1)
    assert raised.value.code is E.COORDINATOR_NOT_AVAILABLE
    machine.add(question(0), 2)
    sent = machine.next_request(1)
    assert sent is not None
    assert len(sent.questions) == MAX_PARTITIONS
    machine.add(question(0), 1)
    busy = [sent]
    for number in range(MAX_REQUESTS):
        machine.add(question(0, f"h{number}"), 1)
    while (sent := machine.next_request(1)) is not None:
        busy.append(sent)
    assert len(busy) == MAX_REQUESTS
    answered = 0
    while busy:
        answered += len(machine.answered(busy.pop(), None))
        while (sent := machine.next_request(1)) is not None:
            busy.append(sent)
    assert answered == MAX_WAITING + 1 + MAX_REQUESTS
    other = machine.next_request(2)
    assert other is not None
    machine.answered(other, None)
    assert machine._nodes == {}
