"""Changes of ISRs, the in-sync replicas of partitions, that leaders propose.

Kafka's leaders send AlterPartition to the controller (`isr_requests.py`). Here a leader appends the decision itself,
because it is made on the state that it changes. So an ISR changes only by its leader, in the leader's own epoch, and
only if it is still the ISR of the leader's proposal. A replica joins with the broker epoch under which it has fetched
(KIP-903): one that has restarted since may have lost records. As in Kafka's `ReplicationControlManager.alterPartition`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.wire import Uuid

from kwire.metadata.controller.brokers import brokers_that_may_lead
from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.metadata.controller.partitions.partition_changes import partition_change
from kwire.metadata.image import BrokerRegistration, LeaderRecoveryState, MetadataImage


@attrs.frozen
class IsrProposal:
    """A leader's proposal of a new ISR. `isr` are node ids with their broker epochs."""

    topic_id: Uuid
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: Mapping[int, int]
    is_recovered: bool = True
    """False while the leader has not recovered from the unclean election by which it was elected."""


def change_isrs(
    state: ClusterState, leader_id: int, proposals: Sequence[IsrProposal]
) -> tuple[Records, list[ErrorCode]]:
    """Returns the records of the valid proposals of `leader_id`, and for each proposal an error code or NONE.

    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_CONTROLLER (the leader has newer metadata than this broker), then
    FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION (another partition epoch), INVALID_REQUEST (not the leader, an ISR that
    has no replica of the partition or lacks the leader, or a recovery state that cannot be), INELIGIBLE_REPLICA
    (fenced, shutting down, or restarted since).
    """
    records: Records = []
    errors: list[ErrorCode] = []
    may_lead = brokers_that_may_lead(state.image)
    for proposal in proposals:
        error = _refusal(state.image, leader_id, proposal)
        errors.append(error)
        if error is not ErrorCode.NONE:
            continue
        topic = state.image.topics_by_id[proposal.topic_id]
        known = topic.partitions[proposal.index]
        # In the order of the replicas, which elections prefer.
        isr = [it for it in known.replicas if it in proposal.isr]
        if set(isr) == set(known.isr):
            isr = list(known.isr)
        # This also completes a reassignment that waited for the ISR.
        record = partition_change(
            state, topic, proposal.index, isr=isr, may_lead=may_lead, is_recovered=proposal.is_recovered
        )
        if record is not None:
            records.append(record)
    return records, errors


def is_eligible(broker: BrokerRegistration | None, broker_epoch: int) -> bool:
    """True if a broker may be in an ISR, with the broker epoch under which it fetches."""
    return (
        broker is not None
        and broker.broker_epoch == broker_epoch
        and not broker.fenced
        and not broker.in_controlled_shutdown
    )


def _refusal(image: MetadataImage, leader_id: int, proposal: IsrProposal) -> ErrorCode:
    topic = image.topics_by_id.get(proposal.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= proposal.index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    known = topic.partitions[proposal.index]
    if proposal.leader_epoch > known.leader_epoch or proposal.partition_epoch > known.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < known.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if known.leader != leader_id:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < known.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if leader_id not in proposal.isr or not set(proposal.isr) <= set(known.replicas):
        return ErrorCode.INVALID_REQUEST
    was_recovered = known.leader_recovery_state == LeaderRecoveryState.RECOVERED
    if not proposal.is_recovered and (was_recovered or len(proposal.isr) > 1):
        return ErrorCode.INVALID_REQUEST
    # A member of the ISR may stay: the decision that fences a broker removes it from the ISR.
    joining = {node_id: epoch for node_id, epoch in proposal.isr.items() if node_id not in known.isr}
    if not all(is_eligible(image.brokers.get(node_id), epoch) for node_id, epoch in joining.items()):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE
