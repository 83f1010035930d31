"""ElectLeaders: v0-2 (KIP-183).

* v1: election_type, a top-level error_code (KIP-460: unclean elections)
* v2: flexible

The rules are in `kwire.metadata.controller.partitions.leader_elections`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

from kwire.metadata.controller.partitions.leader_elections import elect_leaders
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService

FIRST_VERSION_WITH_TOP_LEVEL_ERROR = 1


async def handle(
    metadata: MetadataService, authorization: Authorization, request: ElectLeadersRequest, context: Context
) -> ElectLeadersResponse:
    try:
        authorization.check(context, Operation.ALTER, ResourceType.CLUSTER)
        return await metadata.change(elect_leaders, request)
    except KafkaError as error:
        # Each partition has the error, too: v0 has no other place for it.
        has_top_level = context.api_version >= FIRST_VERSION_WITH_TOP_LEVEL_ERROR
        return ElectLeadersResponse(
            error_code=error.code if has_top_level else ErrorCode.NONE,
            replica_election_results=[
                ReplicaElectionResult(
                    it.topic, [PartitionResult(index, error.code, error.message) for index in it.partitions]
                )
                for it in request.topic_partitions or ()
            ],
        )
