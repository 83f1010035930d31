"""AlterPartition: v2-3 (KIP-497).

* v2: topic ids; Apache Kafka has removed all earlier versions
* v3: new_isr_with_epochs (KIP-903)

A leader requests a change of the ISR. Brokers of a kwire cluster do not send it, because each leader can change the ISR
on its own. The rules are in `kwire.metadata.controller.partitions.isr_requests`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

from kwire.metadata.controller.partitions.isr_requests import alter_partition
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def handle(
    metadata: MetadataService, authorization: Authorization, request: AlterPartitionRequest, context: Context
) -> AlterPartitionResponse:
    try:
        authorization.check(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        return await metadata.change(alter_partition, request)
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code)
