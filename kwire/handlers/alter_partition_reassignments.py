"""AlterPartitionReassignments: v0-1 (KIP-455).

* v1: allow_replication_factor_change (KIP-860)

The rules are in `kwire.metadata.controller.partitions.reassignments`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

from kwire.handlers._shared.authorization import check
from kwire.metadata.controller.partitions.reassignments import reassign_partitions
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


async def handle(
    broker: Broker, request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    try:
        check(broker, context, Operation.ALTER, ResourceType.CLUSTER)
        return await broker.metadata.change(reassign_partitions, request)
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
