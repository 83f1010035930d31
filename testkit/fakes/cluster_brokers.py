"""Brokers that have partitions with replicas: they describe them, and perform the requests of `kwire cluster`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kwire_protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kwire_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kwire_protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kwire_protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)
from kwire_protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kwire_protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kwire_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kwire_protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire_protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

from kwire.client.cluster import Cluster, TopicPartition
from testkit.fakes.brokers import HOST, Answer, FakeBrokers

E = ErrorCode


@attrs.define
class Replicated:
    """A partition. `sizes` are the bytes of its replicas by node."""

    leader: int
    replicas: list[int]
    isr: list[int]
    adding: list[int] = attrs.field(factory=list)
    removing: list[int] = attrs.field(factory=list)
    sizes: dict[int, int] = attrs.field(factory=dict)


@attrs.define(eq=False)
class ClusterBrokers:
    """`nodes` are in service, `fenced` are not. `refuses`: an error code by the request's class."""

    nodes: list[int] = attrs.field(factory=lambda: [1, 2, 3])
    fenced: list[int] = attrs.field(factory=list)
    partitions: dict[TopicPartition, Replicated] = attrs.field(factory=dict)
    controller_id: int = 1
    quorum_leader: int = 2
    min_isr: str = "1"
    refuses: dict[type, int] = attrs.field(factory=dict)
    copies_per_request: int | None = None
    """Bytes that each new replica copies whenever log dirs are described; None if nothing is ever completed."""
    configs: dict[tuple[int, str], dict[str, str]] = attrs.field(factory=dict)
    """The changed configurations, by type and name of the resource."""
    network: FakeBrokers = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        answers: dict[type, Answer] = {
            AlterPartitionReassignmentsRequest: self._alter,
            DescribeClusterRequest: self._describe,
            DescribeConfigsRequest: self._configs,
            DescribeLogDirsRequest: self._log_dirs,
            DescribeQuorumRequest: self._quorum,
            ElectLeadersRequest: self._elect,
            IncrementalAlterConfigsRequest: self._configure,
            ListPartitionReassignmentsRequest: self._list,
            MetadataRequest: self._metadata,
            UnregisterBrokerRequest: self._unregister,
        }
        self.network = FakeBrokers(answers=answers, node_ids=self.nodes)

    def cluster(self) -> Cluster:
        return self.network.cluster()

    def has(
        self, name: str, replicas: Sequence[int], isr: Sequence[int] | None = None, *, leader: int | None = None
    ) -> Replicated:
        """Adds a partition `topic-0`; by default in sync everywhere, and led by its first replica."""
        topic, _, index = name.rpartition("-")
        it = Replicated(replicas[0] if leader is None else leader, [*replicas], [*(replicas if isr is None else isr)])
        self.partitions[TopicPartition(topic, int(index))] = it
        return it

    def moves(self, name: str, before: Sequence[int], target: Sequence[int], **sizes: int) -> Replicated:
        """A partition with a reassignment in progress. `sizes`: n1=100 for the bytes of node 1."""
        removing = [it for it in before if it not in target]
        it = self.has(name, [*target, *removing], before, leader=before[0])
        it.adding = [it for it in target if it not in before]
        it.removing = removing
        it.sizes = {int(node.removeprefix("n")): size for node, size in sizes.items()}
        return it

    def does_not_serve(self, request: type[Any], newest: int = -1) -> None:
        """Serves that request only up to version `newest`, by default not at all."""
        self.network.newest[request.api_key] = newest

    def requests(self, kind: type) -> list[Any]:
        return self.network.requests(kind)

    def _by_topic(self) -> dict[str, list[tuple[int, Replicated]]]:
        found: dict[str, list[tuple[int, Replicated]]] = defaultdict(list)
        for (topic, index), it in self.partitions.items():
            found[topic].append((index, it))
        return found

    def _metadata(self, _: int, request: MetadataRequest) -> MetadataResponse:
        known = self._by_topic()
        names = list(known) if request.topics is None else [it.name or "" for it in request.topics]
        topics = [
            MetadataResponseTopic(
                E.NONE if name in known else E.UNKNOWN_TOPIC_OR_PARTITION,
                name,
                partitions=[
                    MetadataResponsePartition(
                        E.NONE if it.leader >= 0 else E.LEADER_NOT_AVAILABLE,
                        index,
                        it.leader,
                        replica_nodes=it.replicas,
                        isr_nodes=it.isr,
                    )
                    for index, it in known.get(name, [])
                ],
            )
            for name in names
        ]
        brokers = [MetadataResponseBroker(node_id, HOST, node_id, f"rack-{node_id}") for node_id in self.nodes]
        return MetadataResponse(0, brokers, "a-cluster", self.controller_id, topics)

    def _describe(self, _: int, request: DescribeClusterRequest) -> DescribeClusterResponse:
        assert request.include_fenced_brokers
        in_service = [DescribeClusterBroker(it, HOST, it, f"rack-{it}") for it in self.nodes]
        fenced = [DescribeClusterBroker(it, HOST, it, None, True) for it in self.fenced]
        return DescribeClusterResponse(
            error_code=self.refuses.get(DescribeClusterRequest, 0),
            cluster_id="a-cluster",
            controller_id=self.controller_id,
            brokers=in_service + fenced,
        )

    def _quorum(self, _: int, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        (topic,) = request.topics
        data = DescribeQuorumResponsePartitionData(0, leader_id=self.quorum_leader)
        return DescribeQuorumResponse(
            error_code=self.refuses.get(DescribeQuorumRequest, 0),
            topics=[DescribeQuorumResponseTopicData(topic.topic_name, [data])],
        )

    def _configs(self, _: int, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        code = self.refuses.get(DescribeConfigsRequest, 0)
        results = []
        for it in request.resources:
            if it.configuration_keys is None:
                known = self.configs.get((it.resource_type, it.resource_name), {})
                configs = [DescribeConfigsResourceResult(name, value, config_source=1) for name, value in known.items()]
            else:
                assert it.configuration_keys == ["min.insync.replicas"]
                configs = [] if code else [DescribeConfigsResourceResult("min.insync.replicas", self.min_isr)]
            results.append(DescribeConfigsResult(code, None, it.resource_type, it.resource_name, configs))
        return DescribeConfigsResponse(results=results)

    def _configure(self, node_id: int, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        (resource,) = request.resources
        assert node_id == (self.controller_id if resource.resource_type == 2 else int(resource.resource_name))
        code = self.refuses.get(IncrementalAlterConfigsRequest, 0)
        known = self.configs.setdefault((resource.resource_type, resource.resource_name), {})
        for it in resource.configs if not code else ():
            elements = known[it.name].split(",") if it.name in known else []
            match it.config_operation:
                case 0:
                    elements = (it.value or "").split(",")
                case 1:
                    elements = []
                case 2:
                    elements += [new for new in (it.value or "").split(",") if new not in elements]
                case 3:
                    elements = [old for old in elements if old not in (it.value or "").split(",")]
            known.pop(it.name, None)
            if elements:
                known[it.name] = ",".join(elements)
        answer = AlterConfigsResourceResponse(code, None, resource.resource_type, resource.resource_name)
        return IncrementalAlterConfigsResponse(responses=[answer])

    def _list(self, node_id: int, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
        assert node_id == self.controller_id
        wanted = None
        if request.topics is not None:
            wanted = {TopicPartition(it.name, index) for it in request.topics for index in it.partition_indexes}
        response = ListPartitionReassignmentsResponse(error_code=self.refuses.get(ListPartitionReassignmentsRequest, 0))
        for at, it in self.partitions.items():
            if (it.adding or it.removing) and (wanted is None or at in wanted):
                ongoing = OngoingPartitionReassignment(at.partition, it.replicas, it.adding, it.removing)
                response.topics.append(OngoingTopicReassignment(at.topic, [ongoing]))
        return response

    def _alter(self, node_id: int, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
        assert node_id == self.controller_id
        ((topic, requested),) = [(topic.name, it) for topic in request.topics for it in topic.partitions]
        it = self.partitions[TopicPartition(topic, requested.partition_index)]
        code, why = self.refuses.get(AlterPartitionReassignmentsRequest, 0), None
        if code:
            why = "the broker's own words"
        elif requested.replicas is None and not (it.adding or it.removing):
            code = E.NO_REASSIGNMENT_IN_PROGRESS
        elif requested.replicas is None:
            it.replicas = [node for node in it.replicas if node not in it.adding]
            it.adding, it.removing = [], []
        else:
            it.adding = [node for node in requested.replicas if node not in it.replicas]
            it.removing = [node for node in it.replicas if node not in requested.replicas]
            it.replicas = [*requested.replicas, *it.removing]
        results = [ReassignablePartitionResponse(requested.partition_index, code, why)]
        return AlterPartitionReassignmentsResponse(responses=[ReassignableTopicResponse(topic, results)])

    def _log_dirs(self, node_id: int, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        topics = []
        for topic in request.topics or ():
            for index in topic.partitions:
                it = self.partitions[TopicPartition(topic.topic, index)]
                if node_id in it.sizes:
                    described = DescribeLogDirsPartition(index, it.sizes[node_id])
                    copy = DescribeLogDirsPartition(index, 1, 0, True)
                    topics.append(DescribeLogDirsTopic(topic.topic, [described, copy]))
                if self.copies_per_request is not None and node_id in it.adding:
                    self._copy(it, node_id, self.copies_per_request)
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(0, "/data", topics)])

    def _copy(self, it: Replicated, node_id: int, size: int) -> None:
        it.sizes[node_id] = it.sizes.get(node_id, 0) + size
        if it.sizes[node_id] > it.sizes[it.leader]:
            it.isr.append(node_id)
        if set(it.adding) <= set(it.isr):
            it.replicas = [node for node in it.replicas if node not in it.removing]
            it.isr = [*it.replicas]
            it.leader = it.replicas[0]
            it.adding, it.removing = [], []

    def _elect(self, node_id: int, request: ElectLeadersRequest) -> ElectLeadersResponse:
        assert node_id == self.controller_id
        response = ElectLeadersResponse(error_code=self.refuses.get(ElectLeadersRequest, 0))
        for topic in request.topic_partitions or ():
            for index in topic.partitions:
                it = self.partitions[TopicPartition(topic.topic, index)]
                result = PartitionResult(index, 0, None)
                able = [node for node in it.replicas if node in self.nodes]
                if request.election_type == 1 and able:
                    it.leader, it.isr = able[0], able[:1]
                elif it.leader == it.replicas[0]:
                    result.error_code = E.ELECTION_NOT_NEEDED
                elif request.election_type == 0 and it.replicas[0] in it.isr:
                    it.leader = it.replicas[0]
                else:
                    result.error_code = E.PREFERRED_LEADER_NOT_AVAILABLE
                    result.error_message = f"broker {it.replicas[0]} is not in sync"
                response.replica_election_results.append(ReplicaElectionResult(topic.topic, [result]))
        return response

    def _unregister(self, _: int, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        if request.broker_id not in self.fenced:
            return UnregisterBrokerResponse(error_code=E.BROKER_ID_NOT_REGISTERED, error_message=None)
        self.fenced.remove(request.broker_id)
        return UnregisterBrokerResponse(error_message=None)
