"""ConsumerGroupDescribe: v0-1, flexible (KIP-848).

* v1: member_type (KIP-1099)

Groups of other kinds are unknown to it: GROUP_ID_NOT_FOUND.
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
    from kwire.broker import Broker
    from kwire.context import Context


def handle(broker: Broker, request: ConsumerGroupDescribeRequest, context: Context) -> ConsumerGroupDescribeResponse:
    groups = described_groups(
        broker,
        request,
        context,
        protocol=CONSUMER,
        describe=broker.groups.describe_consumer,
        topics_of=_topics,
        empty=DescribedGroup,
    )
    return ConsumerGroupDescribeResponse(groups=groups)


def _topics(group: DescribedGroup) -> set[str]:
    return {
        name
        for member in group.members
        for name in (
            *(it.topic_name for it in member.assignment.topic_partitions),
            *(it.topic_name for it in member.target_assignment.topic_partitions),
        )
    }
