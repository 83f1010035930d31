"""DescribeClientQuotas: v0-1 (KIP-546).

* v1: flexible

The filter is in `kwire.metadata.quota_description`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

from kwire.metadata.quota_description import describe_client_quotas
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


def handle(
    metadata: MetadataService, authorization: Authorization, request: DescribeClientQuotasRequest, context: Context
) -> DescribeClientQuotasResponse:
    try:
        authorization.check(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        return describe_client_quotas(metadata.image.access.quotas, request)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
