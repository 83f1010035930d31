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

from kwire.metadata.controller.partitions.reassignments import reassign_partitions
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def handle(
    metadata: MetadataService,
    authorization: Authorization,
    request: AlterPartitionReassignmentsRequest,
    context: Context,
) -> AlterPartitionReassignmentsResponse:
    try:
        authorization.check(context, Operation.ALTER, ResourceType.CLUSTER)
        return await metadata.change(reassign_partitions, request)
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
