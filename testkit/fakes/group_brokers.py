"""A made-up cluster with groups of all kinds: coordinators, what they keep, and the logs of topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from kwire_protocol.messages import alter_share_group_offsets as alter
from kwire_protocol.messages import consumer_group_describe as consumer
from kwire_protocol.messages import delete_share_group_offsets as delete_share
from kwire_protocol.messages import describe_groups as classic
from kwire_protocol.messages import describe_share_group_offsets as share_offsets
from kwire_protocol.messages import share_group_describe as share
from kwire_protocol.messages import streams_group_describe as streams
from kwire_protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kwire_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kwire_protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kwire_protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kwire_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kwire_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kwire_protocol.wire import Writer

from kwire.client.cluster import Cluster, TopicPartition
from testkit.fakes.brokers import HOST, Answer, FakeBrokers

E = ErrorCode
_NEWEST = 3


@attrs.define(eq=False)
class Group:
    """A group at its coordinator. `members` are those of the response that describes its kind."""

    kind: str = "classic"
    state: str = "Stable"
    members: list[Any] = attrs.field(factory=list)
    offsets: dict[TopicPartition, int] = attrs.field(factory=dict)
    lags: dict[TopicPartition, int] = attrs.field(factory=dict)
    """The start offsets of a share group."""
    protocol_type: str = "consumer"
    assignor: str = "range"
    node_id: int = 1
    description: streams.TopologyDescription | None = None
    """The description of a streams group's topology."""


@attrs.define(eq=False)
class GroupBrokers:
    """`logs`: first offset and end of each partition; `times`: its records' timestamps, by offset."""

    groups: dict[str, Group] = attrs.field(factory=dict)
    logs: dict[TopicPartition, tuple[int, int]] = attrs.field(factory=dict)
    times: dict[TopicPartition, dict[int, int]] = attrs.field(factory=dict)
    subscribed: set[str] = attrs.field(factory=set)
    """Topics whose offsets cannot be deleted."""
    passing_errors: list[int] = attrs.field(factory=list)
    """The error codes of ListGroups before it succeeds."""
    hidden: set[str] = attrs.field(factory=set)
    """Groups that this client may not see."""
    network: FakeBrokers = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        answers: dict[type, Answer] = {
            FindCoordinatorRequest: self._coordinator,
            ListGroupsRequest: self._list,
            ListOffsetsRequest: self._list_offsets,
            OffsetFetchRequest: self._fetch,
            OffsetCommitRequest: self._commit,
            OffsetDeleteRequest: self._delete_offsets,
            DeleteGroupsRequest: self._delete,
            classic.DescribeGroupsRequest: self._describe_classic,
            consumer.ConsumerGroupDescribeRequest: self._describe_consumer,
            share.ShareGroupDescribeRequest: self._describe_share,
            streams.StreamsGroupDescribeRequest: self._describe_streams,
            share_offsets.DescribeShareGroupOffsetsRequest: self._share_offsets,
            alter.AlterShareGroupOffsetsRequest: self._alter_share_offsets,
            delete_share.DeleteShareGroupOffsetsRequest: self._delete_share_offsets,
        }
        self.network = FakeBrokers(answers=answers)

    def cluster(self) -> Cluster:
        return self.network.cluster()

    def has_topic(self, name: str, *logs: tuple[int, int], leaders: list[int] | None = None) -> None:
        """A partition for each first offset and end."""
        self.network.leaders[name] = leaders or [1] * len(logs)
        self.logs |= {TopicPartition(name, index): log for index, log in enumerate(logs)}

    def requests(self, kind: type) -> list[tuple[int, Any]]:
        return [(node_id, request) for node_id, request in self.network.received if isinstance(request, kind)]

    def _at(self, node_id: int, group_id: str, kind: str) -> Group | None:
        found = self.groups.get(group_id)
        assert found is None or found.node_id == node_id
        return found if found is not None and found.kind == kind else None

    def _coordinator(self, _: int, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        (key,) = request.coordinator_keys
        node_id = self.groups[key].node_id if key in self.groups else 1
        return FindCoordinatorResponse(coordinators=[Coordinator(key, node_id, HOST, node_id)])

    def _list(self, node_id: int, request: ListGroupsRequest) -> ListGroupsResponse:
        if self.passing_errors:
            return ListGroupsResponse(error_code=self.passing_errors.pop(0))
        with_kinds = self.network.versions[ListGroupsRequest] >= 5
        return ListGroupsResponse(
            groups=[
                ListedGroup(name, it.protocol_type, it.state, it.kind.capitalize() if with_kinds else "")
                for name, it in self.groups.items()
                if it.node_id == node_id
                and name not in self.hidden
                and (not request.states_filter or it.state in request.states_filter)
                and (not request.types_filter or it.kind in request.types_filter)
            ]
        )

    def _describe_classic(self, node_id: int, request: Any) -> classic.DescribeGroupsResponse:
        (name,) = request.groups
        if name in self.hidden:
            found = classic.DescribedGroup(E.GROUP_AUTHORIZATION_FAILED, group_id=name)
        elif (it := self._at(node_id, name, "classic")) is not None:
            found = classic.DescribedGroup(0, None, name, it.state, it.protocol_type, it.assignor, it.members)
        elif self.network.versions[classic.DescribeGroupsRequest] >= 6:
            found = classic.DescribedGroup(E.GROUP_ID_NOT_FOUND, "it is not known", name, "Dead")
        else:
            found = classic.DescribedGroup(0, None, name, "Dead")
        return classic.DescribeGroupsResponse(groups=[found])

    def _describe_consumer(self, node_id: int, request: Any) -> consumer.ConsumerGroupDescribeResponse:
        (name,) = request.group_ids
        it = self._at(node_id, name, "consumer")
        assert it is not None
        found = consumer.DescribedGroup(0, None, name, it.state, 7, 6, it.assignor, it.members)
        return consumer.ConsumerGroupDescribeResponse(groups=[found])

    def _describe_share(self, node_id: int, request: Any) -> share.ShareGroupDescribeResponse:
        (name,) = request.group_ids
        it = self._at(node_id, name, "share")
        assert it is not None
        found = share.DescribedGroup(0, None, name, it.state, 3, 3, "simple", it.members)
        return share.ShareGroupDescribeResponse(groups=[found])

    def _describe_streams(self, node_id: int, request: Any) -> streams.StreamsGroupDescribeResponse:
        """Subtopology 0 reads orders and few, and 1 a repartition topic."""
        (name,) = request.group_ids
        it = self._at(node_id, name, "streams")
        if it is None:
            refused = streams.DescribedGroup(E.GROUP_ID_NOT_FOUND, f"Group {name} is not a streams group.", name)
            return streams.StreamsGroupDescribeResponse(groups=[refused])
        parts = [
            streams.Subtopology("0", ["orders", "few"], ["again"]),
            streams.Subtopology("1", repartition_source_topics=[streams.TopicInfo("again", 2)]),
        ]
        found = streams.DescribedGroup(0, None, name, it.state, 5, 4, streams.Topology(0, parts), it.members)
        if request.include_topology_description:
            found.topology_description = it.description
            found.topology_description_status = 1 if it.description is None else 3
        return streams.StreamsGroupDescribeResponse(groups=[found])

    def _fetch(self, node_id: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
        (requested,) = request.groups
        it = self.groups.get(requested.group_id)
        assert it is None or (it.node_id == node_id and it.kind != "share")
        topics = [
            OffsetFetchResponseTopics(at.topic, partitions=[OffsetFetchResponsePartitions(at.partition, offset)])
            for at, offset in (it.offsets if it else {}).items()
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(requested.group_id, topics)])

    def _commit(self, node_id: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
        it = self.groups.setdefault(request.group_id, Group(state="Empty"))
        assert (it.node_id, it.members) == (node_id, [])
        response = OffsetCommitResponse()
        for topic in request.topics:
            for partition in topic.partitions:
                it.offsets[TopicPartition(topic.name, partition.partition_index)] = partition.committed_offset
            results = [OffsetCommitResponsePartition(partition.partition_index) for partition in topic.partitions]
            response.topics.append(OffsetCommitResponseTopic(topic.name, partitions=results))
        return response

    def _delete_offsets(self, _: int, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        it = self.groups[request.group_id]
        response = OffsetDeleteResponse()
        for topic in request.topics:
            code = E.GROUP_SUBSCRIBED_TO_TOPIC if topic.name in self.subscribed else E.NONE
            results = []
            for partition in topic.partitions:
                results.append(OffsetDeleteResponsePartition(partition.partition_index, code))
                if not code:
                    del it.offsets[TopicPartition(topic.name, partition.partition_index)]
            response.topics.append(OffsetDeleteResponseTopic(topic.name, results))
        return response

    def _delete(self, node_id: int, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        (name,) = request.groups_names
        it = self.groups.get(name)
        if it is None:
            return DeleteGroupsResponse(results=[DeletableGroupResult(name, E.GROUP_ID_NOT_FOUND)])
        assert it.node_id == node_id
        if it.members:
            return DeleteGroupsResponse(results=[DeletableGroupResult(name, E.NON_EMPTY_GROUP)])
        del self.groups[name]
        return DeleteGroupsResponse(results=[DeletableGroupResult(name)])

    def _share_offsets(self, _: int, request: Any) -> share_offsets.DescribeShareGroupOffsetsResponse:
        (requested,) = request.groups
        assert requested.topics is None
        it = self.groups[requested.group_id]
        topics = [
            share_offsets.DescribeShareGroupOffsetsResponseTopic(
                at.topic,
                partitions=[
                    share_offsets.DescribeShareGroupOffsetsResponsePartition(
                        at.partition, offset, lag=it.lags.get(at, -1)
                    )
                ],
            )
            for at, offset in it.offsets.items()
        ]
        group = share_offsets.DescribeShareGroupOffsetsResponseGroup(requested.group_id, topics)
        return share_offsets.DescribeShareGroupOffsetsResponse(groups=[group])

    def _alter_share_offsets(self, _: int, request: Any) -> alter.AlterShareGroupOffsetsResponse:
        it = self.groups[request.group_id]
        response = alter.AlterShareGroupOffsetsResponse()
        for topic in request.topics:
            results = []
            for partition in topic.partitions:
                it.offsets[TopicPartition(topic.topic_name, partition.partition_index)] = partition.start_offset
                results.append(alter.AlterShareGroupOffsetsResponsePartition(partition.partition_index))
            response.responses.append(alter.AlterShareGroupOffsetsResponseTopic(topic.topic_name, partitions=results))
        return response

    def _delete_share_offsets(self, _: int, request: Any) -> delete_share.DeleteShareGroupOffsetsResponse:
        it = self.groups[request.group_id]
        if it.members:
            return delete_share.DeleteShareGroupOffsetsResponse(error_code=E.NON_EMPTY_GROUP)
        names = [topic.topic_name for topic in request.topics]
        it.offsets = {at: offset for at, offset in it.offsets.items() if at.topic not in names}
        results = [delete_share.DeleteShareGroupOffsetsResponseTopic(name) for name in names]
        return delete_share.DeleteShareGroupOffsetsResponse(responses=results)

    def _list_offsets(self, _: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        response = ListOffsetsResponse()
        for topic in request.topics:
            results = []
            for it in topic.partitions:
                at = TopicPartition(topic.name, it.partition_index)
                first, end = self.logs[at]
                match it.timestamp:
                    case -2:
                        offset = first
                    case -1:
                        offset = end
                    case _:
                        later = [offset for offset, ms in self.times.get(at, {}).items() if ms >= it.timestamp]
                        offset = min(later, default=-1)
                results.append(ListOffsetsPartitionResponse(it.partition_index, offset=offset))
            response.topics.append(ListOffsetsTopicResponse(topic.name, results))
        return response


def classic_member(name: str, topics: Iterable[str], owned: Mapping[str, list[int]]) -> classic.DescribedGroupMember:
    """A consumer of a classic group, which writes its newest version."""
    subscription, assignment = Writer(), Writer()
    subscription.int16(_NEWEST)
    ConsumerProtocolSubscription([*topics], rack_id="a").write(subscription, _NEWEST)
    assignment.int16(_NEWEST)
    partitions = [ConsumerProtocolAssignmentTopicPartition(topic, some) for topic, some in owned.items()]
    ConsumerProtocolAssignment(partitions).write(assignment, _NEWEST)
    return classic.DescribedGroupMember(
        name, None, f"client-{name}", "/127.0.0.1", subscription.getvalue(), assignment.getvalue()
    )


def consumer_member(
    name: str, topics: Iterable[str], owned: Mapping[str, list[int]], target: Mapping[str, list[int]] | None = None
) -> consumer.Member:
    def assignment(partitions: Mapping[str, list[int]]) -> consumer.Assignment:
        found = [consumer.TopicPartitions(bytes(16), topic, some) for topic, some in partitions.items()]
        return consumer.Assignment(found)

    return consumer.Member(
        member_id=name,
        member_epoch=6,
        client_id=f"client-{name}",
        client_host="/127.0.0.1",
        subscribed_topic_names=[*topics],
        assignment=assignment(owned),
        target_assignment=assignment(owned if target is None else target),
        member_type=1,
    )


def share_member(name: str, topics: Iterable[str], owned: Mapping[str, list[int]]) -> share.Member:
    found = [share.TopicPartitions(bytes(16), topic, some) for topic, some in owned.items()]
    return share.Member(name, None, 3, f"client-{name}", "/127.0.0.1", [*topics], share.Assignment(found))
