"""StreamsGroupDescribe: v0-1, flexible (KIP-1071).

* v1: assignor_name; include_topology_description, topology_description and its status (KIP-1331)

Groups of other types are GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

from kwire.handlers._shared.group_protocols import STREAMS, check_protocol
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


def handle(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    request: StreamsGroupDescribeRequest,
    context: Context,
) -> StreamsGroupDescribeResponse:
    with_description = request.include_topology_description
    described = [
        _describe(metadata, authorization, groups, context, group_id, with_description)
        for group_id in request.group_ids
    ]
    if request.include_authorized_operations:
        for group in described:
            if not group.error_code:
                group.authorized_operations = authorization.operations(
                    context, ResourceType.GROUP, group.group_id, wanted=True
                )
    return StreamsGroupDescribeResponse(groups=described)


def _describe(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    context: Context,
    group_id: str,
    with_description: bool,
) -> DescribedGroup:
    try:
        check_protocol(metadata, STREAMS)
        authorization.check(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = groups.describe_streams(group_id, with_description=with_description)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    if not all(authorization.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in _topics(group)):
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="The described group uses topics that the client is not authorized to describe.",
        )
    return group


def _topics(group: DescribedGroup) -> set[str]:
    parts = [] if group.topology is None else group.topology.subtopologies or []
    return {
        name
        for part in parts
        for name in (
            *part.source_topics,
            *part.repartition_sink_topics,
            *(it.name for it in part.repartition_source_topics),
            *(it.name for it in part.state_changelog_topics),
        )
    }
