"""UpdateFeatures: v0-2 (KIP-584).

* v1: upgrade_type instead of allow_downgrade; validate_only (KIP-778)
* v2: one error for the request, no results per feature

Since Kafka 4.0 a request changes all features or none. So in every version the error is that of the request, and there
are results only if it succeeded. The rules are in `kwire.metadata.controller.feature_updates`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

from kwire.metadata.controller.feature_updates import update_features
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def handle(
    metadata: MetadataService, authorization: Authorization, request: UpdateFeaturesRequest, context: Context
) -> UpdateFeaturesResponse:
    try:
        authorization.check(context, Operation.ALTER, ResourceType.CLUSTER)
        return await metadata.change(update_features, request)
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
