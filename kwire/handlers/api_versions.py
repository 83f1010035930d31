"""ApiVersions: v0-5.

* v1: throttle_time_ms
* v3: flexible; the client's software name and version; features (KIP-584)
* v4: features whose lowest version is 0 are listed as supported (KAFKA-17011); v3 has them finalized only, as Kafka
* v5: cluster_id and node_id of the broker that the client expects (KIP-1242)

A version that is not served is answered in v0 with UNSUPPORTED_VERSION and the list, so that a newer client can retry
with an older version. Such a request cannot be decoded, so `request` is None.

During an authentication the response is ILLEGAL_SASL_STATE, and the connection is closed.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

from kwire.handlers._shared.failed_authentications import failed_authentication_is_over
from kwire.handlers.context import CloseAfterResponse, CloseConnection
from kwire.metadata.answers import EncodedResponse
from kwire.runtime.futures import Future
from kwire.security.sasl.exchange import IllegalSaslState

if TYPE_CHECKING:
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService

Response = ApiVersionsResponse | EncodedResponse

PRODUCE = 0
FIRST_VERSION_WITH_SOFTWARE_NAME = 3
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    metadata: MetadataService, request: ApiVersionsRequest | None, context: Context
) -> Response | Coroutine[Future[Any], None, ApiVersionsResponse]:
    if context.sasl is not None:
        try:
            context.sasl.check_versions()
        except IllegalSaslState as error:
            if not error.is_answered:
                raise CloseConnection(str(error)) from None
            return _refused(metadata, str(error))
    response = _answer(metadata, request, context)
    if context.sasl is not None and isinstance(response, EncodedResponse):
        context.sasl.versions_are_known()
    return response


async def _refused(metadata: MetadataService, reason: str) -> ApiVersionsResponse:
    await failed_authentication_is_over(metadata)
    raise CloseAfterResponse(reason, ApiVersionsResponse(ErrorCode.ILLEGAL_SASL_STATE))


def _answer(metadata: MetadataService, request: ApiVersionsRequest | None, context: Context) -> Response:
    """Returns the list of versions, or an error. The list is encoded once for each version, until the metadata
    change."""
    if request is None:
        return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, _listed(context.served_versions))
    version = context.api_version
    if version >= FIRST_VERSION_WITH_SOFTWARE_NAME and not (
        SOFTWARE_NAME.fullmatch(request.client_software_name)
        and SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if _is_another_broker(metadata, request):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    key = "ApiVersions", version
    listed = metadata.answers.get(key)
    return metadata.answers.put(key, _described(metadata, context), version) if listed is None else listed


def _described(metadata: MetadataService, context: Context) -> ApiVersionsResponse:
    image = metadata.image
    return ApiVersionsResponse(
        api_keys=_listed(context.served_versions),
        supported_features=[
            SupportedFeatureKey(name, lowest, highest)
            for name, (lowest, highest) in metadata.supported_features.items()
            if context.api_version > FIRST_VERSION_WITH_SOFTWARE_NAME or lowest > 0
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in image.features.items() if level],
    )


def _listed(served_versions: Mapping[int, range]) -> list[ApiVersion]:
    """Returns the list of versions. As in Kafka, Produce is listed from v0, though v0 to v2 are refused (KAFKA-18659:
    librdkafka takes a missing v0 for a broker without compression)."""
    return [
        ApiVersion(key, 0 if key == PRODUCE else versions.start, versions.stop - 1)
        for key, versions in served_versions.items()
    ]


def _is_another_broker(metadata: MetadataService, request: ApiVersionsRequest) -> bool:
    return (request.cluster_id is not None and request.cluster_id != metadata.cluster_id) or (
        request.node_id != -1 and request.node_id != metadata.config.node_id
    )
