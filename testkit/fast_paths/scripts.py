"""Short stories that chance tells too seldom: each is about one condition of a fast path."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final

import attrs
from kwire_protocol.conversation import decode_reply
from kwire_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kwire_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch, read_header
from kwire_protocol.wire import ApiMessage

from kwire.config.tables.access import STANDARD_AUTHORIZER
from kwire.handlers.fast.templates import MARKED
from kwire.names.topic_names import CONSUMER_OFFSETS
from kwire.replicas.roles import Follower, Leader
from kwire.security.authorizer import Operation, ResourceType
from testkit.fast_paths import topics
from testkit.fast_paths.still_broker import StillBroker
from testkit.fast_paths.twins import Twins
from testkit.raw.client import request_frame

TOPIC, GROUP = 2, 32
SET, DELETE = 0, 1
LITERAL, ALLOW = 3, 3
HOST: Final = "127.0.0.1"
PRODUCER, CONSUMER, OTHER = f"{HOST}#p", f"{HOST}#c", f"{HOST}#o"
"""Each has a connection of its own."""
CLIENT: Final = "one"
NAME, INDEX = topics.BUSIEST


class Script:
    """Two brokers with a topic, and the usual requests."""

    def __init__(self, twins: Twins) -> None:
        self.twins = twins
        topics.create(twins, NAME)

    def send(self, request: ApiMessage, version: int, *, peer: str = HOST, client_id: str = CLIENT) -> bytes:
        return self.twins.send(peer, request_frame(request, version, client_id=client_id))

    def batch(self, value: bytes = b"v" * 100) -> bytes:
        return build_batch([Record(value=value, timestamp=self.twins.plain.clock.time_ms)])

    def produce(
        self, *, acks: int = 1, version: int = 12, name: str = NAME, index: int = INDEX, peer: str = PRODUCER
    ) -> None:
        data = [PartitionProduceData(index, self.batch())]
        request = ProduceRequest(None, acks, 1000, [TopicProduceData(name, partition_data=data)])
        self.send(request, version, peer=peer)

    def fetch(self, offset: int = 0, *, version: int = 12, peer: str = CONSUMER, **fields: Any) -> None:
        partition = FetchPartition(INDEX, fetch_offset=offset, partition_max_bytes=fields.pop("most", 1 << 20))
        partition.current_leader_epoch = fields.pop("epoch", -1)
        wanted = FetchTopic(fields.pop("name", NAME), partitions=[partition, *fields.pop("others", ())])
        fields = {"min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, **fields}
        self.send(FetchRequest(topics=[wanted], **fields), version, peer=peer)

    def open_session(
        self, *, offset: int = 0, version: int = 12, first: int = 0, others: int = 0, **fields: Any
    ) -> int:
        """Returns the session id."""
        names = [
            FetchPartition(index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index in range(first, first + 1 + others)
        ]
        fields = {"max_bytes": 1 << 20, "session_epoch": 0, **fields}
        request = FetchRequest(topics=[FetchTopic(NAME, partitions=names)], **fields)
        reply = self.send(request, version, peer=CONSUMER)
        session_id: int = decode_reply(memoryview(reply)[4:], FetchRequest.api_key, version)[1].session_id
        assert session_id
        return session_id

    def fetch_in_session(
        self, session_id: int, epoch: int, offset: int | None = None, *, version: int = 12, **fields: Any
    ) -> None:
        topics = [] if offset is None else [FetchTopic(NAME, partitions=[FetchPartition(0, -1, offset)])]
        for topic in topics:
            topic.partitions[0].partition_max_bytes = fields.pop("most", 1 << 20)
            topic.partitions[0].current_leader_epoch = fields.pop("leader_epoch", -1)
            topic.partitions[0].partition = fields.pop("index", INDEX)
        fields = {"min_bytes": 1, "max_bytes": 1 << 20, **fields}
        peer = fields.pop("peer", CONSUMER)
        request = FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, **fields)
        self.send(request, version, peer=peer)
        self.twins.compare_states()

    def heartbeat(self, epoch: int, *, member_id: str = "m", **fields: Any) -> None:
        self.send(ConsumerGroupHeartbeatRequest("readers", member_id, epoch, **fields), 1, peer=f"{HOST}#{member_id}")

    def join(self, member_id: str = "m", **fields: Any) -> None:
        fields = {"subscribed_topic_names": [NAME], **fields}
        self.heartbeat(0, member_id=member_id, rebalance_timeout_ms=5000, topic_partitions=[], **fields)

    def alter(self, resource: int, name: str, key: str, value: str | None) -> None:
        config = AlterableConfig(key, DELETE if value is None else SET, value)
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(resource, name, [config])])
        self.send(request, 1, peer=topics.ADMIN_HOST)

    def set_quota(self, key: str, value: float | None) -> None:
        entity = [AlterClientQuotasRequestEntityData("client-id", CLIENT)]
        entry = AlterClientQuotasRequestEntryData(entity, [OpData(key, value or 0.0, value is None)])
        self.send(AlterClientQuotasRequest([entry]), 1, peer=topics.ADMIN_HOST)
        self.twins.both(StillBroker.follow_quotas)

    def do(self, action: Callable[[StillBroker], object]) -> None:
        """Does something with both brokers. Their results cannot be compared."""

        def silent(it: StillBroker) -> None:
            action(it)

        self.twins.both(silent)


def flush_that_is_awaited(it: Script) -> None:
    it.produce()
    it.alter(TOPIC, NAME, "flush.messages", "1")
    it.produce(peer=OTHER)
    it.alter(TOPIC, NAME, "flush.messages", None)
    it.produce()


def flush_that_ends(it: Script) -> None:
    flush_that_is_awaited(it)
    it.twins.both(StillBroker.flush)
    it.twins.settle()
    for _ in range(2):
        it.produce()


def client_that_may_only_read(it: Script) -> None:
    for _ in range(2):
        it.produce()
        it.fetch()
    acl = AclCreation(ResourceType.TOPIC, NAME, LITERAL, "User:ANONYMOUS", "*", Operation.READ, ALLOW)
    it.send(CreateAclsRequest([acl]), 3, peer=topics.ADMIN_HOST)
    for _ in range(2):
        it.fetch()
        it.produce()


def quota_that_changes_a_request(it: Script) -> None:
    for _ in range(3):
        it.produce()
    it.set_quota("consumer_byte_rate", 10.0)
    it.fetch()
    it.set_quota("consumer_byte_rate", None)
    it.twins.advance(60_000)
    for _ in range(2):
        it.fetch()


def quota_that_begins_during_a_wait(it: Script) -> None:
    it.produce()
    it.fetch(0, peer=OTHER)
    for _ in range(2):
        it.fetch(1, max_wait_ms=500)
    # As `kwire.network.throttling` does when the first client gets a quota.
    it.do(lambda still: setattr(still.connections[CONSUMER][0]._context, "fetch_throttle_ms", lambda _: 77))
    it.produce()
    it.twins.settle()
    it.twins.advance(600)


def session(it: Script) -> None:
    """A consumer reads, waits in vain, is woken, and waits to its end."""
    it.produce()
    opened = it.open_session()
    epochs = count(1)
    it.fetch_in_session(opened, next(epochs), 1)
    it.fetch_in_session(opened, next(epochs), 1)
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs))
        it.produce()
        it.fetch_in_session(opened, next(epochs))
        it.fetch_in_session(opened, next(epochs), 2)


def session_that_waits(it: Script) -> None:
    opened = it.open_session()
    epochs = count(1)
    for end in range(1, 5):
        for _ in range(2):
            it.fetch_in_session(opened, next(epochs), max_wait_ms=500)
        it.produce()
        it.twins.settle()
        for _ in range(2):
            it.fetch_in_session(opened, next(epochs), end, max_wait_ms=500)
        it.twins.advance(300)
        it.twins.advance(300)
        it.twins.compare_states()


def session_that_waits_for_more(it: Script) -> None:
    opened = it.open_session()
    epochs = count(1)
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs), max_wait_ms=500, min_bytes=400)
    for _ in range(3):
        it.produce()
        it.twins.settle()
        it.twins.advance(100)
    it.twins.advance(600)
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs), 2, max_wait_ms=500, min_bytes=400)
    it.twins.advance(600)
    # Above the high watermark: it does not rest.
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs), 4, max_wait_ms=500)
    it.produce()
    it.produce()
    it.twins.advance(600)
    # A change that brings too little: the rest of the time is what is left.
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs), 5, max_wait_ms=500, min_bytes=400)
    it.twins.advance(300)
    it.produce()
    it.twins.settle()
    for _ in range(3):
        it.twins.advance(150)


def session_with_a_limit(it: Script) -> None:
    for _ in range(4):
        it.produce()
    opened = it.open_session()
    epochs = count(1)
    for most in (1 << 20, 1 << 20, 200, 1, 1, 1 << 20):
        it.fetch_in_session(opened, next(epochs), 0, most=most)
    for most in (200, 1, 1, 1 << 20):
        it.fetch_in_session(opened, next(epochs), 0, max_bytes=most)
        it.fetch_in_session(opened, next(epochs), 0, max_bytes=most)


def session_of_another_epoch(it: Script) -> None:
    opened = it.open_session()
    for epoch in (1, 2, 3, 3, 4, 9, 4, 5):
        it.fetch_in_session(opened, epoch)


def session_of_another_reader(it: Script) -> None:
    it.produce()
    opened = it.open_session()
    epochs = count(1)
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs))
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs), peer="127.0.0.2#c")
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs), peer="127.0.0.3#c")
    it.fetch_in_session(opened, next(epochs))


def session_that_waits_elsewhere(it: Script) -> None:
    opened = it.open_session()
    epochs = count(1)
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs), max_wait_ms=500)
        it.fetch_in_session(opened, next(epochs), max_wait_ms=500, peer=OTHER)
        # The request that waited is answered, since another one has come.
        it.twins.settle()
    it.twins.advance(600)


def session_of_two_partitions(it: Script) -> None:
    it.produce()
    it.produce(index=1)
    opened = it.open_session(others=1)
    epochs = count(1)
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs))
        it.fetch_in_session(opened, next(epochs), 1)
        it.produce(index=1)


def session_that_gets_another_partition(it: Script) -> None:
    it.produce(index=1)
    opened = it.open_session()
    epochs = count(1)
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs), 0)
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs), 0, index=1)


def session_with_a_changed_leader(it: Script) -> None:
    it.produce()
    opened = it.open_session()
    epochs = count(1)
    for _ in range(2):
        it.fetch_in_session(opened, next(epochs), 1, leader_epoch=0)
        it.fetch_in_session(opened, next(epochs))
    for role in (Leader(1, 1, (1,), (1,)), Follower(2, 2), Leader(1, 3, (1,), (1,))):
        it.do(partial(_take, role=role))
        it.fetch_in_session(opened, next(epochs))
        it.fetch_in_session(opened, next(epochs), 1, leader_epoch=0)
        it.fetch_in_session(opened, next(epochs), 1)


def _take(still: StillBroker, *, role: Follower | Leader) -> None:
    still.broker.partitions.find(NAME, INDEX).take_role(attrs.evolve(role))


def session_with_aborted_transactions(it: Script) -> None:
    opened = it.open_session(isolation_level=1)
    epochs = count(1)
    for _ in range(2):
        it.fetch_in_session(opened, next(epochs), 0, isolation_level=1)
    it.do(_begin_transaction)
    for _ in range(2):
        it.fetch_in_session(opened, next(epochs), 0, isolation_level=1)
    it.do(_abort_transaction)
    for offset in (0, 0, 2, 0):
        it.fetch_in_session(opened, next(epochs), offset, isolation_level=1)


def unknown_isolation_level(it: Script) -> None:
    it.produce()
    for _ in range(2):
        it.fetch(isolation_level=2)


def transaction_that_is_aborted(it: Script) -> None:
    for _ in range(2):
        it.fetch(isolation_level=1)
    it.do(_begin_transaction)
    it.fetch(isolation_level=1)
    it.do(_abort_transaction)
    it.fetch(isolation_level=1)


def _begin_transaction(still: StillBroker) -> None:
    record = Record(value=b"of a transaction", timestamp=still.clock.time_ms)
    built = build_batch([record], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    batch = memoryview(bytearray(built))
    still.broker.partitions.find(NAME, INDEX).append(batch, read_header(batch), acks=1, now_ms=still.clock.time_ms)


def _abort_transaction(still: StillBroker) -> None:
    still.broker.partitions.find(NAME, INDEX).write_marker(
        producer_id=9,
        producer_epoch=0,
        committed=False,
        coordinator_epoch=0,
        transaction_version=1,
        now_ms=still.clock.time_ms,
    )


def session_of_which_the_log_start_moves(it: Script) -> None:
    for _ in range(3):
        it.produce()
    opened = it.open_session(offset=3)
    epochs = count(1)
    for _ in range(2):
        it.fetch_in_session(opened, next(epochs))
    it.do(lambda still: still.broker.partitions.find(NAME, INDEX).delete_records_before(2, now_ms=still.clock.time_ms))
    for _ in range(2):
        it.fetch_in_session(opened, next(epochs))
    for offset in (0, 3, 9, 3):
        it.fetch_in_session(opened, next(epochs), offset)


def session_with_a_quota_during_a_wait(it: Script) -> None:
    opened = it.open_session()
    epochs = count(1)
    for _ in range(2):
        it.fetch_in_session(opened, next(epochs), max_wait_ms=500)
    it.do(lambda still: setattr(still.connections[CONSUMER][0]._context, "fetch_throttle_ms", lambda _: 77))
    it.produce()
    it.twins.settle()


def session_of_a_client_that_may_not_read_any_more(it: Script) -> None:
    it.produce()
    opened = it.open_session()
    epochs = count(1)
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs), 0)
    for _ in range(2):
        it.fetch_in_session(opened, next(epochs), 1, max_wait_ms=500)
    acl = AclCreation(ResourceType.TOPIC, NAME, LITERAL, "User:ANONYMOUS", "*", Operation.WRITE, ALLOW)
    it.send(CreateAclsRequest([acl]), 3, peer=topics.ADMIN_HOST)
    it.produce()
    it.twins.settle()
    for _ in range(2):
        it.fetch_in_session(opened, next(epochs), 0)


def follower(it: Script) -> None:
    for version in (9, 10, 12):
        it.fetch(version=version)
        it.do(lambda broker: broker.broker.partitions.find(NAME, INDEX).take_role(Follower(2, 1)))
        it.fetch(version=version)
        it.produce()
        it.do(lambda broker: broker.broker.partitions.find(NAME, INDEX).take_role(Leader(1, 2, (1,), (1,))))


def other_replicas(it: Script) -> None:
    it.produce(acks=-1)
    it.do(lambda broker: broker.broker.partitions.find(NAME, INDEX).take_role(Leader(1, 1, (1, 2), (1, 2))))
    it.produce(acks=-1)
    it.twins.advance(2_000)


def end_of_a_wait(it: Script) -> None:
    for _ in range(2):
        it.fetch(0, max_wait_ms=500)
    it.twins.advance(499)
    it.twins.advance(1)
    it.twins.advance(1000)
    for _ in range(2):
        it.fetch(0, max_wait_ms=500, min_bytes=1000)
    it.twins.advance(300)
    it.produce()
    it.twins.settle()
    it.twins.advance(300)
    it.twins.advance(300)


def role_that_changes_before_a_wait_goes_on(it: Script) -> None:
    for _ in range(2):
        it.fetch(0, max_wait_ms=500, epoch=0)
    batch = it.batch()

    def lose(still: StillBroker) -> None:
        partition = still.broker.partitions.find(NAME, INDEX)
        mine = memoryview(bytearray(batch))
        partition.append(mine, read_header(mine), acks=1, now_ms=still.clock.time_ms)
        partition.take_role(Follower(2, 1))

    it.do(lose)
    it.twins.settle()


def internal_topic(it: Script) -> None:
    it.alter(TOPIC, CONSUMER_OFFSETS, "cleanup.policy", "delete")
    for _ in range(2):
        it.produce(name=CONSUMER_OFFSETS)


def log_start(it: Script) -> None:
    for _ in range(3):
        it.produce()
    it.do(lambda still: still.broker.partitions.find(NAME, INDEX).delete_records_before(2, now_ms=still.clock.time_ms))
    it.produce()


def heartbeats_of_a_member(it: Script) -> None:
    it.join()
    for _ in range(3):
        it.heartbeat(2)
        it.twins.advance(1000)
    it.twins.compare_states()
    # The interval changes, then the topics, then the protocol.
    it.alter(GROUP, "readers", "consumer.heartbeat.interval.ms", "6000")
    for _ in range(2):
        it.heartbeat(2)
    topics.create(it.twins, "busy")
    it.heartbeat(2)
    it.twins.compare_states()
    it.heartbeat(2)
    it.heartbeat(3)


def heartbeats_with_other_fields(it: Script) -> None:
    it.join()
    for fields in ({}, {"server_assignor": "range"}, {}, {"server_assignor": "uniform"}, {"server_assignor": "range"}):
        for epoch in (2, 3, 4, 5):
            it.heartbeat(epoch, **fields)
    it.twins.compare_states()


def heartbeats_of_two_members(it: Script) -> None:
    it.join()
    for _ in range(2):
        it.heartbeat(2)
    it.join("n")
    for epoch in (2, 2, 3, 3):
        it.heartbeat(epoch)
        it.heartbeat(epoch, member_id="n")
        it.twins.compare_states()
    it.heartbeat(-1, member_id="n")
    it.heartbeat(3)
    it.heartbeat(4)
    it.twins.compare_states()


def heartbeat_after_another_member_has_left(it: Script) -> None:
    topics.create(it.twins, "busy")
    it.join()
    it.join("n", subscribed_topic_names=["busy"])
    for epoch in (2, 3, 3):
        it.heartbeat(epoch)
    it.heartbeat(-1, member_id="n")
    # The target assignment of the new epoch has not been computed yet.
    it.heartbeat(3)
    it.twins.compare_states()


def heartbeats_from_elsewhere(it: Script) -> None:
    it.join()
    request = ConsumerGroupHeartbeatRequest("readers", "m", 2)
    for peer, client_id in ((HOST, CLIENT), (HOST, CLIENT), ("127.0.0.2", CLIENT), (HOST, "two"), (HOST, CLIENT)):
        it.send(request, 1, peer=f"{peer}#m", client_id=client_id)
        it.twins.compare_states()


def heartbeats_with_a_regular_expression(it: Script) -> None:
    it.join()
    it.join("n", subscribed_topic_names=None, subscribed_topic_regex="b.*")
    for epoch in (2, 3, 3, 3):
        it.heartbeat(epoch)
        it.heartbeat(epoch, member_id="n")
    it.twins.advance(20_000)
    it.heartbeat(3)
    it.twins.compare_states()


def heartbeats_before_the_state_is_committed(it: Script) -> None:
    it.join()
    it.heartbeat(2)
    it.heartbeat(2)
    # The offsets topic gets another replica, which has not fetched yet: what is appended then is not committed.
    for index in range(3):
        it.do(partial(_add_replica, index=index))
    for number in range(9):
        joining = ConsumerGroupHeartbeatRequest(f"group {number}", "n", 0, rebalance_timeout_ms=5000)
        joining.subscribed_topic_names, joining.topic_partitions = [NAME], []
        it.send(joining, 1, peer=f"{HOST}#{number}")
    it.heartbeat(2)
    it.twins.advance(10)


def _add_replica(still: StillBroker, *, index: int) -> None:
    partition = still.broker.partitions.find(CONSUMER_OFFSETS, index)
    # In the same leader epoch, so that the coordinator stays.
    partition.take_role(Leader(1, partition.role.leader_epoch, (1, 2), (1, 2)))


def protocol_that_is_disabled(it: Script) -> None:
    it.join()
    it.heartbeat(2)
    it.heartbeat(2)
    it.do(_disable_protocol)
    it.heartbeat(2)


def _disable_protocol(still: StillBroker) -> None:
    metadata = still.broker.metadata
    metadata.config = attrs.evolve(metadata.config, group_coordinator_rebalance_protocols=("classic",))


def throttled_producer(it: Script) -> None:
    it.produce()
    it.set_quota("producer_byte_rate", 1.0)
    for _ in range(3):
        it.produce()
    it.twins.advance(20_000)


def another_version(it: Script) -> None:
    # Of a compact string the first byte is the length and one more.
    name = "fifteen-letters"
    it.send(CreateTopicsRequest([CreatableTopic(name, 1, 1)], 1000), 7, peer=topics.ADMIN_HOST)
    named = TopicProduceData(name, partition_data=[PartitionProduceData(0, it.batch())])
    by_id = TopicProduceData("", b"\x10" + name.encode(), [PartitionProduceData(0, it.batch())])
    for topic, version in ((named, 12), (by_id, 13), (named, 12), (by_id, 13), (by_id, 13)):
        it.send(ProduceRequest(None, 1, 1000, [topic]), version)


def log_line_of_a_client(it: Script) -> None:
    topic = TopicProduceData(NAME, partition_data=[PartitionProduceData(INDEX, it.batch())])
    request = ProduceRequest(None, 0, 1000, [topic])
    for client_id in ("one", "two"):
        it.send(request, 12, client_id=client_id)

    def refuse(operation: str, path: str) -> None:
        if operation == "append" and path.endswith(".log"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    it.do(lambda still: setattr(still.disk, "before_operation", refuse))
    # The append fails, and with acks=0 the connection is closed with a log line.
    it.send(request, 12, client_id="one")


def topic_named_like_the_marks(it: Script) -> None:
    name = f"{MARKED.decode()}{MARKED.decode()}"
    for _ in range(2):
        it.produce(name=name)
        it.fetch(name=name)


def negative_partitions(it: Script) -> None:
    it.produce()
    it.produce(index=1)
    for index in (-1, -2):
        for _ in range(2):
            it.produce(index=index)
    opened = it.open_session()
    epochs = count(1)
    it.fetch_in_session(opened, next(epochs), 0, index=-1)
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs))


def session_of_a_negative_partition(it: Script) -> None:
    it.produce(index=1)
    opened = it.open_session(first=-1)
    epochs = count(1)
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs))
    for _ in range(3):
        it.fetch_in_session(opened, next(epochs), 0, index=-1)


SCRIPTS: Final = (
    flush_that_is_awaited,
    flush_that_ends,
    client_that_may_only_read,
    quota_that_changes_a_request,
    quota_that_begins_during_a_wait,
    session,
    session_that_waits,
    session_that_waits_for_more,
    session_with_a_limit,
    session_of_another_epoch,
    session_of_another_reader,
    session_that_waits_elsewhere,
    session_of_two_partitions,
    session_that_gets_another_partition,
    session_with_a_changed_leader,
    session_with_aborted_transactions,
    transaction_that_is_aborted,
    unknown_isolation_level,
    session_of_which_the_log_start_moves,
    session_with_a_quota_during_a_wait,
    session_of_a_client_that_may_not_read_any_more,
    follower,
    other_replicas,
    end_of_a_wait,
    role_that_changes_before_a_wait_goes_on,
    internal_topic,
    log_start,
    heartbeats_of_a_member,
    heartbeats_with_other_fields,
    heartbeats_of_two_members,
    heartbeat_after_another_member_has_left,
    heartbeats_from_elsewhere,
    heartbeats_with_a_regular_expression,
    heartbeats_before_the_state_is_committed,
    protocol_that_is_disabled,
    throttled_producer,
    another_version,
    log_line_of_a_client,
    topic_named_like_the_marks,
    negative_partitions,
    session_of_a_negative_partition,
)


def run(script: Callable[[Script], None]) -> None:
    """Runs one of the scripts. Raises `Different`."""
    settings = [
        f"authorizer.class.name={STANDARD_AUTHORIZER}",
        "allow.everyone.if.no.acl.found=true",
        "group.consumer.regex.refresh.interval.ms=10000",
    ]
    with Twins(settings) as twins:
        script(Script(twins))
        twins.compare_all()
