"""ElectLeaders: v0-2 (KIP-183).

* v1: election_type, a top-level error_code (KIP-460: unclean elections)
* v2: flexible

The rules are in `kwire.metadata.controller.partitions.leader_elections`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

from kwire.handlers._shared.authorization import check
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


async def handle(broker: Broker, request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    try:
        check(broker, context, Operation.ALTER, ResourceType.CLUSTER)
        return await broker.metadata.elect_leaders(request)
    except KafkaError as error:
        # As in Kafka, each partition has the error too, since v0 has no other place for it.
        return ElectLeadersResponse(
            error_code=error.code,
            replica_election_results=[
                ReplicaElectionResult(
                    it.topic, [PartitionResult(index, error.code, error.message) for index in it.partitions]
                )
                for it in request.topic_partitions or ()
            ],
        )
