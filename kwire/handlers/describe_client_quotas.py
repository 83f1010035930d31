"""DescribeClientQuotas: v0-1 (KIP-546).

* v1: flexible

The filter is in `kwire.metadata.quota_description`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

from kwire.handlers._shared.authorization import check
from kwire.metadata.quota_description import describe_client_quotas
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


def handle(broker: Broker, request: DescribeClientQuotasRequest, context: Context) -> DescribeClientQuotasResponse:
    try:
        check(broker, context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        return describe_client_quotas(broker.metadata.image.access.quotas, request)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
