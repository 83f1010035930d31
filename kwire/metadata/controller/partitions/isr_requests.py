"""Decides on AlterPartition, by which a leader requests another ISR (KIP-497); the rules are in `isr_changes.py`."""

from __future__ import annotations

from typing import Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from kwire_protocol.wire import Uuid

from kwire.metadata.controller.deciding import ClusterState, Records, check_batch_size
from kwire.metadata.controller.partitions.isr_changes import IsrProposal, change_isrs
from kwire.metadata.image import LeaderRecoveryState, MetadataImage, changed_partition

ANY_EPOCH: Final = -1
"""The broker epoch of a request that names none."""


def alter_partition(state: ClusterState, request: AlterPartitionRequest) -> tuple[Records, AlterPartitionResponse]:
    """Decides on AlterPartition. Each partition succeeds or fails independently.

    NEW_LEADER_ELECTED: the change is made, and another broker leads because of it. Raises KafkaError:
    STALE_BROKER_EPOCH, or POLICY_VIOLATION for a request that is too large.
    """
    registered = state.image.brokers.get(request.broker_id)
    if registered is None or registered.broker_epoch != request.broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    records: Records = []
    response = AlterPartitionResponse()
    seen: set[tuple[Uuid, int]] = set()
    for topic in request.topics:
        answers = AlterPartitionResponseTopicData(topic.topic_id)
        response.topics.append(answers)
        for it in topic.partitions:
            is_repeated = (topic.topic_id, it.partition_index) in seen
            seen.add((topic.topic_id, it.partition_index))
            proposal = None if is_repeated else _proposal(state.image, topic.topic_id, it)
            if proposal is None:
                answers.partitions.append(_failed(it.partition_index, ErrorCode.INVALID_REQUEST))
                continue
            made, [error] = change_isrs(state, request.broker_id, [proposal])
            records += made
            if error is not ErrorCode.NONE:
                answers.partitions.append(_failed(it.partition_index, error))
                continue
            after = state.image.topics_by_id[topic.topic_id].partitions[it.partition_index]
            for record in made:
                assert isinstance(record, PartitionChangeRecord)
                after = changed_partition(after, record)
            answers.partitions.append(
                _failed(it.partition_index, ErrorCode.NEW_LEADER_ELECTED)
                if after.leader != request.broker_id
                else AlterPartitionResponsePartitionData(
                    it.partition_index,
                    ErrorCode.NONE,
                    after.leader,
                    after.leader_epoch,
                    list(after.isr),
                    after.leader_recovery_state,
                    after.partition_epoch,
                )
            )
    check_batch_size(records)
    return records, response


def _failed(index: int, error: ErrorCode) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(index, error)


def _proposal(image: MetadataImage, topic_id: Uuid, it: AlterPartitionRequestPartitionData) -> IsrProposal | None:
    """Returns None if the request is inconsistent. Before version 3 a request has no broker epochs, and -1 is any."""
    isr = [(broker.broker_id, broker.broker_epoch) for broker in it.new_isr_with_epochs]
    isr += [(broker_id, ANY_EPOCH) for broker_id in it.new_isr]
    epochs = {
        broker_id: image.brokers[broker_id].broker_epoch if epoch == ANY_EPOCH and broker_id in image.brokers else epoch
        for broker_id, epoch in isr
    }
    if len(epochs) < len(isr) or it.leader_recovery_state not in {*LeaderRecoveryState}:
        return None
    is_recovered = it.leader_recovery_state == LeaderRecoveryState.RECOVERED
    return IsrProposal(topic_id, it.partition_index, it.leader_epoch, it.partition_epoch, epochs, is_recovered)
