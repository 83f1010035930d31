"""Decides on AlterPartitionReassignments: other brokers get a partition's replicas, while it is served.

The new replicas are added, catch up, and join the ISR; when all final replicas are in sync, the others are dropped
(`partition_changes.Replicas.completed`). A reassignment that is cancelled drops the new ones. KIP-455.
"""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)

from kwire.metadata.controller.brokers import brokers_that_may_lead
from kwire.metadata.controller.deciding import ClusterState, Records, check_batch_size
from kwire.metadata.controller.partitions.elections import Election
from kwire.metadata.controller.partitions.partition_changes import Replicas, partition_change
from kwire.metadata.controller.partitions.placement import check_assignment
from kwire.metadata.image import PartitionRegistration, TopicImage
from kwire.names.topic_names import no_such_topic


def reassign_partitions(
    state: ClusterState, request: AlterPartitionReassignmentsRequest
) -> tuple[Records, AlterPartitionReassignmentsResponse]:
    """Reassigns partitions, each independently. Raises KafkaError for a request that is too large."""
    records: Records = []
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            answer = ReassignablePartitionResponse(partition.partition_index, error_message=None)
            try:
                record = _reassign(state, topic, partition, may_change_factor=request.allow_replication_factor_change)
                if record is not None:
                    records.append(record)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
            answers.append(answer)
        response.responses.append(ReassignableTopicResponse(topic.name, answers))
    check_batch_size(records)
    return records, response


def _reassign(
    state: ClusterState, topic: ReassignableTopic, requested: ReassignablePartition, *, may_change_factor: bool
) -> PartitionChangeRecord | None:
    image = state.image.topics.get(topic.name)
    if image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, no_such_topic(topic.name))
    index = requested.partition_index
    if not 0 <= index < len(image.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic.name!r} exists, but it has no partition {index}."
        )
    before = image.partitions[index]
    if requested.replicas is None:
        return _cancel(state, image, index, before)
    check_assignment(state.image, requested.replicas, None)
    target = tuple(requested.replicas)
    factor = len(set(before.replicas) - set(before.removing_replicas))
    if not may_change_factor and len(target) != factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor of {topic.name}-{index} is {factor}, and {len(target)} replicas were given: allow "
            "the replication factor to change, or give as many as it has.",
        )
    adding = tuple(sorted(set(target) - set(before.replicas)))
    removing = tuple(sorted(set(before.replicas) - set(target)))
    wanted = Replicas((*target, *removing), before.isr, adding, removing)
    return partition_change(state, image, index, may_lead=brokers_that_may_lead(state.image), wanted=wanted)


def _cancel(
    state: ClusterState, topic: TopicImage, index: int, before: PartitionRegistration
) -> PartitionChangeRecord | None:
    if not before.adding_replicas and not before.removing_replicas:
        raise KafkaError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"No reassignment of {topic.name}-{index} is in progress."
        )
    replicas = tuple(it for it in before.replicas if it not in before.adding_replicas)
    isr = tuple(it for it in before.isr if it not in before.adding_replicas)
    election = Election.ONLINE
    if not isr and not set(replicas) & set(before.eligible_leader_replicas):
        if not state.allows_unclean_election(topic.name):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert the reassignment of {topic.name}-{index}: only replicas that it adds are in sync, "
                "and unclean.leader.election.enable is false. Wait until it is complete.",
            )
        isr, election = replicas[:1], Election.UNCLEAN
    return partition_change(
        state,
        topic,
        index,
        may_lead=brokers_that_may_lead(state.image),
        wanted=Replicas(replicas, isr),
        election=election,
    )
