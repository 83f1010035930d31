"""Groups of all kinds: lists, describes and deletes them.

A group is classic, consumer (KIP-848), share (KIP-932) or streams (KIP-1071), and each kind has a request of its own
that describes it. So the first request is for the kind of the group: ListGroups has it from Kafka 3.8 on.
Brokers before that have classic groups only.

DescribeGroups has no generation, so a classic group has none here. Members of streams groups own tasks. The partitions
that they own here are those that their active tasks read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Protocol, TypeVar

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire_protocol.messages.delete_groups import DeleteGroupsRequest
from kwire_protocol.messages.describe_groups import DescribedGroupMember, DescribeGroupsRequest
from kwire_protocol.messages.list_groups import ListedGroup as ListedEntry
from kwire_protocol.messages.list_groups import ListGroupsRequest
from kwire_protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kwire_protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, TaskIds
from kwire_protocol.messages.streams_group_describe import Topology as DescribedTopology
from kwire_protocol.wire import ProtocolError, Reader

from kwire.client.cluster import Cluster, CoordinatorKind, TopicPartition
from kwire.client.connection import BrokerConnection
from kwire.client.errors import ClientError, ConnectionFailed, Refused, raise_worst, refused

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
KINDS: Final = (CLASSIC, CONSUMER, SHARE, STREAMS)
STATES: Final = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Stable",
    "Dead",
)
"""The states of all kinds of groups."""

_FIRST_WITH_STATES = 4
_FIRST_WITH_KINDS = 5
_DEAD: Final = "Dead"
_CONSUMER_PROTOCOL: Final = "consumer"
_MEMBER_PROTOCOLS: Final = {0: CLASSIC, 1: CONSUMER}
"""The protocol by member_type of ConsumerGroupDescribe v1."""

T = TypeVar("T")
P = TypeVar("P", ConsumerProtocolAssignment, ConsumerProtocolSubscription)


class GroupNotFound(Refused):
    """No coordinator has the group."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"group {quoted(group_id)} not found", ErrorCode.GROUP_ID_NOT_FOUND)


class GroupNotEmpty(Refused):
    """The group has members, and the requested operation needs a group without members."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.NON_EMPTY_GROUP)


@attrs.frozen
class ListedGroup:
    group_id: str
    kind: str
    """One of KINDS, or the name of a kind that a later broker returns."""
    state: str | None
    """None if the broker does not return it (before Kafka 2.6)."""
    protocol_type: str
    """"consumer", "connect", ...; empty for a group that only keeps offsets."""
    coordinator_id: int


@attrs.frozen
class MemberTasks:
    """The tasks of a member of a streams group: pairs of a subtopology's id and its partitions, by role."""

    active: tuple[tuple[str, tuple[int, ...]], ...] = ()
    standby: tuple[tuple[str, tuple[int, ...]], ...] = ()
    warmup: tuple[tuple[str, tuple[int, ...]], ...] = ()


@attrs.frozen
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    rack_id: str | None
    epoch: int | None
    """None in classic groups, which have no epochs."""
    protocol: str
    """The protocol of the member: a consumer group may have classic members, too."""
    topics: tuple[str, ...] | None
    """The topics that it subscribes to by name; None if its subscription is not in a known format."""
    regex: str | None
    partitions: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None
    """The target assignment. None if it is not known apart from `partitions`."""
    tasks: MemberTasks | None = None
    """None in other groups than streams groups."""
    target_tasks: MemberTasks | None = None
    process_id: str | None = None


@attrs.frozen
class GroupDescription:
    group_id: str
    kind: str
    state: str
    protocol_type: str
    assignor: str | None
    """The protocol that a classic group has chosen; None before it has."""
    epoch: int | None
    assignment_epoch: int | None
    coordinator_id: int
    members: tuple[GroupMember, ...]
    """The members, sorted by member id."""

    @property
    def is_inactive(self) -> bool:
        """True if the group has no members, according to the state that the coordinator returns."""
        return self.state in ("Empty", _DEAD)


@attrs.frozen
class GroupAdmin:
    """Requests about groups. They raise ClientError if the cluster refuses them.

    A request to a coordinator that is loading, moving or not reached is retried until the cluster's timeout.
    """

    cluster: Cluster

    def list_groups(self, *, kinds: Collection[str] = (), states: Collection[str] = ()) -> list[ListedGroup]:
        """Returns the groups of all brokers, by id; only those of these kinds and states, if any are given."""
        request = ListGroupsRequest([*states], [*kinds])
        at_least = _FIRST_WITH_KINDS if kinds else _FIRST_WITH_STATES if states else 0

        def attempt() -> list[ListedGroup]:
            self.cluster.metadata([])
            found: dict[str, ListedGroup] = {}
            problems: list[ClientError] = []
            requests = dict.fromkeys(self.cluster.node_ids(), request)
            for node_id, answer in self.cluster.call_each(requests, at_least=at_least).items():
                if isinstance(answer, ClientError):
                    problems.append(answer)
                elif answer.error_code:
                    problems.append(refused(f"the groups of broker {node_id} cannot be listed", answer.error_code))
                else:
                    found |= {it.group_id: _listed(it, node_id) for it in answer.groups}
            raise_worst(problems)
            return [found[group_id] for group_id in sorted(found)]

        return self.cluster.until_done(attempt)

    def describe(self, group_id: str) -> GroupDescription:
        """Raises GroupNotFound."""

        def call(coordinator: BrokerConnection) -> GroupDescription:
            node_id = self.cluster.coordinator(CoordinatorKind.GROUP, group_id)
            answer = coordinator.call(ListGroupsRequest())
            if answer.error_code:
                raise refused(f"group {quoted(group_id)} cannot be looked up", answer.error_code)
            entry = next((it for it in answer.groups if it.group_id == group_id), None)
            # A group that is not listed may be hidden from us, or still be loading: DescribeGroups has the error.
            listed = _listed(entry or ListedEntry(group_id), node_id)
            match listed.kind:
                case "consumer":
                    return _describe_consumer_group(coordinator, listed)
                case "share":
                    return _describe_share_group(coordinator, listed)
                case "streams":
                    return _describe_streams_group(coordinator, listed)
                case "classic":
                    return _describe_classic_group(coordinator, listed)
                case _:
                    return _without_members(listed)

        found = self.cluster.call_coordinator(CoordinatorKind.GROUP, group_id, call)
        return self._with_partitions_that_exist(found) if found.kind == STREAMS else found

    def _with_partitions_that_exist(self, group: GroupDescription) -> GroupDescription:
        """Removes partitions that do not exist: a subtopology has as many tasks as its largest topic has partitions."""
        existing: set[TopicPartition] = set()
        for topic in sorted({it.topic for member in group.members for it in member.partitions}):
            try:
                existing |= {TopicPartition(topic, index) for index in self.cluster.topic(topic).leaders}
            except ClientError:
                continue  # It is gone, or hidden from us.
        members = [
            attrs.evolve(it, partitions=tuple(at for at in it.partitions if at in existing)) for it in group.members
        ]
        return attrs.evolve(group, members=tuple(members))

    def delete(self, group_id: str) -> None:
        """Deletes a group and its offsets. Raises GroupNotFound, GroupNotEmpty."""

        def call(coordinator: BrokerConnection) -> None:
            for it in once(lambda: coordinator.call(DeleteGroupsRequest([group_id]))).results:
                if it.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                    raise GroupNotFound(group_id)
                if it.error_code == ErrorCode.NON_EMPTY_GROUP:
                    raise GroupNotEmpty(f"group {quoted(group_id)} is not deleted: it has members (NON_EMPTY_GROUP)")
                if it.error_code:
                    raise refused(f"group {quoted(group_id)} is not deleted", it.error_code, it.error_message)

        self.cluster.call_coordinator(CoordinatorKind.GROUP, group_id, call)


def once(call: Callable[[], T]) -> T:
    """Sends a request that is not retried: if its response is lost, the change may be made, and a retry would fail."""
    try:
        return call()
    except ConnectionFailed as error:
        error.may_pass = False
        raise


def _listed(it: ListedEntry, node_id: int) -> ListedGroup:
    kind = it.group_type.lower() or CLASSIC
    return ListedGroup(it.group_id, kind, it.group_state or None, it.protocol_type, node_id)


def _without_members(listed: ListedGroup) -> GroupDescription:
    return GroupDescription(
        group_id=listed.group_id,
        kind=listed.kind,
        state=listed.state or "-",
        protocol_type=listed.protocol_type,
        assignor=None,
        epoch=None,
        assignment_epoch=None,
        coordinator_id=listed.coordinator_id,
        members=(),
    )


class _Described(Protocol):
    """The fields that the responses have in common."""

    error_code: int
    error_message: str | None
    group_state: str


def _check(group_id: str, it: _Described) -> None:
    # DescribeGroups before v6 returns the state Dead for an unknown group.
    if it.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (not it.error_code and it.group_state == _DEAD):
        raise GroupNotFound(group_id)
    if it.error_code:
        raise refused(f"group {quoted(group_id)} cannot be described", it.error_code, it.error_message)


def _describe_consumer_group(coordinator: BrokerConnection, listed: ListedGroup) -> GroupDescription:
    (found,) = coordinator.call(ConsumerGroupDescribeRequest([listed.group_id])).groups
    _check(listed.group_id, found)
    members = [
        GroupMember(
            member_id=it.member_id,
            instance_id=it.instance_id,
            client_id=it.client_id,
            host=_host(it.client_host),
            rack_id=it.rack_id or None,
            epoch=it.member_epoch,
            protocol=_MEMBER_PROTOCOLS.get(it.member_type, CONSUMER),
            topics=tuple(sorted(it.subscribed_topic_names)),
            regex=it.subscribed_topic_regex or None,
            partitions=_partitions((topic.topic_name, topic.partitions) for topic in it.assignment.topic_partitions),
            target=_partitions((topic.topic_name, topic.partitions) for topic in it.target_assignment.topic_partitions),
        )
        for it in found.members
    ]
    return _with_epochs(listed, found, members)


def _describe_share_group(coordinator: BrokerConnection, listed: ListedGroup) -> GroupDescription:
    (found,) = coordinator.call(ShareGroupDescribeRequest([listed.group_id])).groups
    _check(listed.group_id, found)
    members = [
        GroupMember(
            member_id=it.member_id,
            instance_id=None,
            client_id=it.client_id,
            host=_host(it.client_host),
            rack_id=it.rack_id or None,
            epoch=it.member_epoch,
            protocol=SHARE,
            topics=tuple(sorted(it.subscribed_topic_names)),
            regex=None,
            partitions=_partitions((topic.topic_name, topic.partitions) for topic in it.assignment.topic_partitions),
            target=None,
        )
        for it in found.members
    ]
    return _with_epochs(listed, found, members)


def _describe_streams_group(coordinator: BrokerConnection, listed: ListedGroup) -> GroupDescription:
    (found,) = coordinator.call(StreamsGroupDescribeRequest([listed.group_id])).groups
    _check(listed.group_id, found)
    sources = _sources(found.topology)
    members = [
        GroupMember(
            member_id=it.member_id,
            instance_id=it.instance_id,
            client_id=it.client_id,
            host=_host(it.client_host),
            rack_id=it.rack_id or None,
            epoch=it.member_epoch,
            protocol=CLASSIC if it.is_classic else STREAMS,
            topics=None,
            regex=None,
            partitions=_partitions(
                (topic, tasks.partitions)
                for tasks in it.assignment.active_tasks
                for topic in sources.get(tasks.subtopology_id, ())
            ),
            target=None,
            tasks=_tasks(it.assignment.active_tasks, it.assignment.standby_tasks, it.assignment.warmup_tasks),
            target_tasks=_tasks(
                it.target_assignment.active_tasks,
                it.target_assignment.standby_tasks,
                it.target_assignment.warmup_tasks,
            ),
            process_id=it.process_id,
        )
        for it in found.members
    ]
    return attrs.evolve(
        _without_members(listed),
        state=found.group_state,
        assignor=found.assignor_name or None,
        epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        members=_by_id(members),
    )


def _sources(topology: DescribedTopology | None) -> dict[str, list[str]]:
    """The topics that each subtopology reads."""
    parts = [] if topology is None else topology.subtopologies or []
    return {it.subtopology_id: [*it.source_topics, *(of.name for of in it.repartition_source_topics)] for it in parts}


def _tasks(*roles: Iterable[TaskIds]) -> MemberTasks:
    return MemberTasks(
        *(tuple(sorted((it.subtopology_id, tuple(sorted(it.partitions))) for it in tasks)) for tasks in roles)
    )


class _WithEpochs(Protocol):
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str


def _with_epochs(listed: ListedGroup, found: _WithEpochs, members: Iterable[GroupMember]) -> GroupDescription:
    return GroupDescription(
        group_id=listed.group_id,
        kind=listed.kind,
        state=found.group_state,
        protocol_type=listed.protocol_type,
        assignor=found.assignor_name or None,
        epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        coordinator_id=listed.coordinator_id,
        members=_by_id(members),
    )


def _describe_classic_group(coordinator: BrokerConnection, listed: ListedGroup) -> GroupDescription:
    (found,) = coordinator.call(DescribeGroupsRequest([listed.group_id])).groups
    _check(listed.group_id, found)
    return GroupDescription(
        group_id=listed.group_id,
        kind=CLASSIC,
        state=found.group_state,
        protocol_type=found.protocol_type,
        assignor=found.protocol_data or None,
        epoch=None,
        assignment_epoch=None,
        coordinator_id=listed.coordinator_id,
        members=_by_id(_classic_member(it, found.protocol_type) for it in found.members),
    )


def _classic_member(it: DescribedGroupMember, protocol_type: str) -> GroupMember:
    """Parses the metadata and assignment of consumers only: other protocols, such as Connect's, have other formats."""
    subscription: ConsumerProtocolSubscription | None = None
    assignment: ConsumerProtocolAssignment | None = None
    if protocol_type == _CONSUMER_PROTOCOL:
        subscription = _parsed(ConsumerProtocolSubscription, it.member_metadata)
        assignment = _parsed(ConsumerProtocolAssignment, it.member_assignment)
    owned = [] if assignment is None else assignment.assigned_partitions
    return GroupMember(
        member_id=it.member_id,
        instance_id=it.group_instance_id,
        client_id=it.client_id,
        host=_host(it.client_host),
        rack_id=None if subscription is None else subscription.rack_id or None,
        epoch=None,
        protocol=CLASSIC,
        topics=None if subscription is None else tuple(sorted(subscription.topics)),
        regex=None,
        partitions=_partitions((topic.topic, topic.partitions) for topic in owned),
        target=None,
    )


def _parsed(kind: type[P], data: bytes) -> P | None:
    """Returns None before the group has chosen a protocol, and if the data is no such message.

    Some clients claim a later version than they write, and each version begins with the fields of version 0.
    """
    reader = Reader(data)
    try:
        claimed = reader.int16()
    except ProtocolError:
        return None
    for version in (min(claimed, kind.versions[-1]), 0):
        if version >= 0:
            reader = Reader(data)
            try:
                reader.int16()
                return kind.read(reader, version)
            except ProtocolError:
                continue
    return None


def _by_id(members: Iterable[GroupMember]) -> tuple[GroupMember, ...]:
    return tuple(sorted(members, key=lambda it: it.member_id))


def _partitions(topics: Iterable[tuple[str, Sequence[int]]]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(name, index) for name, indexes in topics for index in indexes))


def _host(client_host: str) -> str:
    """Java writes an address without a name as /127.0.0.1."""
    return client_host.removeprefix("/")
