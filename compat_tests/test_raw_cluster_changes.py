"""Changes of the metadata that go to different brokers, one right after the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_protocol.messages.metadata import MetadataRequest

from testkit.raw.client import RawClient
from testkit.servers.brokers import Broker

TIMEOUT_MS = 30_000


def test_each_broker_changes_what_another_one_has_just_changed(broker: Broker, unique: Callable[[str], str]) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(RawClient(broker.bootstrap))
        brokers = first.call(MetadataRequest(topics=[]), 12).brokers
        clients = [stack.enter_context(RawClient(f"{it.host}:{it.port}")) for it in brokers]
        for number in range(60):
            one, other, third = (clients[(number + step) % len(clients)] for step in range(3))
            name = unique("t")
            (created,) = one.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)], TIMEOUT_MS), 5).topics
            more = CreatePartitionsRequest([CreatePartitionsTopic(name, 2, None)], TIMEOUT_MS)
            (grown,) = other.call(more, 3).results
            (deleted,) = third.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), 5).responses
            assert (created.error_code, grown.error_code, deleted.error_code) == (0, 0, 0), number
