"""The requests of the share coordinator about one share-partition, as raw requests to its coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import delete_share_group_state as deleting
from kwire_protocol.messages import initialize_share_group_state as initializing
from kwire_protocol.messages import read_share_group_state as reading
from kwire_protocol.messages import read_share_group_state_summary as summarizing
from kwire_protocol.messages import write_share_group_state as writing
from kwire_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.wire import Uuid, uuid_to_text

from testkit.basics.waiting import eventually
from testkit.raw.client import RawClient

SHARE = 2
FIND_VERSION = 6
METADATA_VERSION = 12

Batch = tuple[int, int, int, int]
"""First offset, last offset, delivery state, delivery count."""


def topic_id(client: RawClient, name: str) -> Uuid:
    (found,) = client.call(MetadataRequest([MetadataRequestTopic(name=name)]), METADATA_VERSION).topics
    assert found.error_code == 0
    identity: Uuid = found.topic_id
    return identity


def leader(client: RawClient, name: str, partition: int = 0) -> str:
    """The address of the partition's leader."""
    answer = client.call(MetadataRequest([MetadataRequestTopic(name=name)]), METADATA_VERSION)
    (leader_id,) = [it.leader_id for it in answer.topics[0].partitions if it.partition_index == partition]
    (node,) = [it for it in answer.brokers if it.node_id == leader_id]
    return f"{node.host}:{node.port}"


def find(client: RawClient, key: str, *, version: int = FIND_VERSION) -> Coordinator:
    (found,) = client.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), version).coordinators
    assert isinstance(found, Coordinator)
    return found


@attrs.frozen
class SharePartition:
    """`client` is connected to its coordinator. The methods return the only result of the response."""

    client: RawClient
    group: str
    topic_id: Uuid
    partition: int = 0

    def of(self, **changes: Any) -> SharePartition:
        """Another one, for requests to the same broker."""
        return attrs.evolve(self, **changes)

    @property
    def key(self) -> str:
        return f"{self.group}:{uuid_to_text(self.topic_id)}:{self.partition}"

    def find(self) -> int:
        """The node that coordinates it."""
        found = find(self.client, self.key)
        assert found.error_code == 0
        return found.node_id

    def wait_until_known(self) -> None:
        """A coordinator that has just been elected may still be loading, and Apache Kafka's learns of topics late."""
        eventually(lambda: self.summary()[0] == ErrorCode.NONE, "its coordinator knows it")

    def initialize(self, *, state_epoch: int = 0, start_offset: int = 0) -> ErrorCode:
        data = initializing.PartitionData(self.partition, state_epoch, start_offset)
        topics = [initializing.InitializeStateData(self.topic_id, [data])]
        return self._error(initializing.InitializeShareGroupStateRequest(self.group, topics), 0)

    def read(self, leader_epoch: int = -1) -> reading.PartitionResult:
        topics = [reading.ReadStateData(self.topic_id, [reading.PartitionData(self.partition, leader_epoch)])]
        result = self._only(reading.ReadShareGroupStateRequest(self.group, topics), 0)
        assert isinstance(result, reading.PartitionResult)
        return result

    def batches(self) -> list[Batch]:
        result = self.read()
        assert result.error_code == 0
        return [(it.first_offset, it.last_offset, it.delivery_state, it.delivery_count) for it in result.state_batches]

    def write(
        self,
        *batches: Batch,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        complete: int = 0,
        version: int = 1,
    ) -> ErrorCode:
        data = writing.PartitionData(
            self.partition,
            state_epoch,
            leader_epoch,
            start_offset,
            complete,
            [writing.StateBatch(*batch) for batch in batches],
        )
        request = writing.WriteShareGroupStateRequest(self.group, [writing.WriteStateData(self.topic_id, [data])])
        return self._error(request, version)

    def delete(self) -> ErrorCode:
        topics = [deleting.DeleteStateData(self.topic_id, [deleting.PartitionData(self.partition)])]
        return self._error(deleting.DeleteShareGroupStateRequest(self.group, topics), 0)

    def summary(self, *, version: int = 1) -> tuple[ErrorCode, int, int, int, int]:
        """Error, state epoch, leader epoch, start offset, number of completed deliveries."""
        data = summarizing.PartitionData(self.partition, 0)
        topics = [summarizing.ReadStateSummaryData(self.topic_id, [data])]
        result = self._only(summarizing.ReadShareGroupStateSummaryRequest(self.group, topics), version)
        return (
            ErrorCode(result.error_code),
            result.state_epoch,
            result.leader_epoch,
            result.start_offset,
            result.delivery_complete_count,
        )

    def _only(self, request: Any, version: int) -> Any:
        (topic,) = self.client.call(request, version).results
        assert topic.topic_id == self.topic_id
        (result,) = topic.partitions
        assert result.partition == self.partition
        assert (result.error_message is None) == (result.error_code == 0)
        return result

    def _error(self, request: Any, version: int) -> ErrorCode:
        return ErrorCode(self._only(request, version).error_code)


@contextmanager
def share_partition(bootstrap: str, group: str, topic: str, partition: int = 0) -> Iterator[SharePartition]:
    """A share-partition and a connection to its coordinator, once there is one."""
    with RawClient(bootstrap) as client:
        identity = topic_id(client, topic)
        key = f"{group}:{uuid_to_text(identity)}:{partition}"

        def found() -> Coordinator | None:
            answer = find(client, key)
            return None if answer.error_code else answer

        coordinator = eventually(found, f"{key} has a coordinator")
        assert coordinator is not None
    with RawClient(f"{coordinator.host}:{coordinator.port}") as client:
        there = SharePartition(client, group, identity, partition)
        there.wait_until_known()
        yield there
