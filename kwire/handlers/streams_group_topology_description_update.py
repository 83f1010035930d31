"""StreamsGroupTopologyDescriptionUpdate: v0, flexible (KIP-1331).

A member sends it to describe its topology on request. `groups/streams/descriptions.py` has the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

from kwire.handlers._shared.group_protocols import STREAMS, check_protocol
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def handle(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    request: StreamsGroupTopologyDescriptionUpdateRequest,
    context: Context,
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    try:
        check_protocol(metadata, STREAMS)
        authorization.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        _check(groups, request)
        await groups.update_topology_description(request)
    except KafkaError as error:
        return StreamsGroupTopologyDescriptionUpdateResponse(error_code=error.code, error_message=error.message)
    return StreamsGroupTopologyDescriptionUpdateResponse()


def _check(groups: GroupService, request: StreamsGroupTopologyDescriptionUpdateRequest) -> None:
    """Raises KafkaError: UNSUPPORTED_VERSION if the broker stores no descriptions of topologies, INVALID_REQUEST."""
    if not groups.describes_topologies:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The broker has no streams group topology description plugin configured.",
        )
    if not request.member_id.strip():
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    if not request.group_id.strip():
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
