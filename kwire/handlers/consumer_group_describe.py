"""ConsumerGroupDescribe: v0-1, flexible (KIP-848).

* v1: member_type (KIP-1099)

Groups of other types are GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

from kwire.handlers._shared.described_groups import described_groups
from kwire.handlers._shared.group_protocols import CONSUMER

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


def handle(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    request: ConsumerGroupDescribeRequest,
    context: Context,
) -> ConsumerGroupDescribeResponse:
    described = described_groups(
        metadata,
        authorization,
        request,
        context,
        protocol=CONSUMER,
        describe=groups.describe_consumer,
        topics_of=_topics,
        empty=DescribedGroup,
    )
    return ConsumerGroupDescribeResponse(groups=described)


def _topics(group: DescribedGroup) -> set[str]:
    return {
        name
        for member in group.members
        for name in (
            *(it.topic_name for it in member.assignment.topic_partitions),
            *(it.topic_name for it in member.target_assignment.topic_partitions),
        )
    }
