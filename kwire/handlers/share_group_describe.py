"""ShareGroupDescribe: v1, flexible (KIP-932).

Groups of other types are GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

from kwire.handlers._shared.described_groups import described_groups
from kwire.handlers._shared.group_protocols import SHARE

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


def handle(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    request: ShareGroupDescribeRequest,
    context: Context,
) -> ShareGroupDescribeResponse:
    described = described_groups(
        metadata,
        authorization,
        request,
        context,
        protocol=SHARE,
        describe=groups.describe_share,
        topics_of=_topics,
        empty=DescribedGroup,
    )
    return ShareGroupDescribeResponse(groups=described)


def _topics(group: DescribedGroup) -> set[str]:
    return {
        name for member in group.members for name in (*(it.topic_name for it in member.assignment.topic_partitions),)
    }
