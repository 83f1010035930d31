"""ApiVersions: v0-5.

* v1: throttle_time_ms
* v3: flexible; the client's software name and version; features (KIP-584)
* v4: features whose lowest version is 0 are listed as supported (KAFKA-17011); v3 has them finalized only, as Kafka
* v5: cluster_id and node_id of the broker the client thinks it reached (KIP-1242)

A version that is not served is answered in v0 with UNSUPPORTED_VERSION and the list, so that a newer client can retry
with an older version. Such a request cannot be decoded, so `request` is None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context

PRODUCE = 0
FIRST_VERSION_WITH_SOFTWARE_NAME = 3
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: Broker, request: ApiVersionsRequest | None, context: Context) -> ApiVersionsResponse:
    if request is None:
        return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, _listed(context.served_versions))
    version = context.api_version
    if version >= FIRST_VERSION_WITH_SOFTWARE_NAME and not (
        SOFTWARE_NAME.fullmatch(request.client_software_name)
        and SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if _is_another_broker(broker, request):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    image = broker.metadata.image
    return ApiVersionsResponse(
        api_keys=_listed(context.served_versions),
        supported_features=[
            SupportedFeatureKey(name, lowest, highest)
            for name, (lowest, highest) in broker.metadata.supported_features.items()
            if version > FIRST_VERSION_WITH_SOFTWARE_NAME or lowest > 0
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in image.features.items() if level],
    )


def _listed(served_versions: Mapping[int, range]) -> list[ApiVersion]:
    """Produce is listed from 0, though 0 to 2 are refused, as Kafka does (KAFKA-18659: librdkafka reads a missing v0 as
    a broker without compression)."""
    return [
        ApiVersion(key, 0 if key == PRODUCE else versions.start, versions.stop - 1)
        for key, versions in served_versions.items()
    ]


def _is_another_broker(broker: Broker, request: ApiVersionsRequest) -> bool:
    return (request.cluster_id is not None and request.cluster_id != broker.metadata.cluster_id) or (
        request.node_id != -1 and request.node_id != broker.config.node_id
    )
