"""A helper of ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe: authorization to describe groups."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol, TypeVar

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.handlers._shared.group_protocols import check_protocol
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


class DescribeRequest(Protocol):
    group_ids: list[str]
    include_authorized_operations: bool


class Described(Protocol):
    """A DescribedGroup of one of the APIs."""

    group_id: str
    error_code: int
    error_message: str | None
    authorized_operations: int


D = TypeVar("D", bound=Described)


def described_groups(
    metadata: MetadataService,
    authorization: Authorization,
    request: DescribeRequest,
    context: Context,
    *,
    protocol: str,
    describe: Callable[[str], D],
    topics_of: Callable[[D], Collection[str]],
    empty: Callable[[], D],
) -> list[D]:
    """Returns the groups of a request. `describe` is for groups of this protocol, and raises KafkaError for others.

    A group is not described to a client that may not describe one of the topics that members have or will have.
    """

    def refused(group_id: str, error: ErrorCode, message: str | None) -> D:
        group = empty()
        group.group_id, group.error_code, group.error_message = group_id, error, message
        return group

    def visible(group_id: str) -> D:
        try:
            check_protocol(metadata, protocol)
            authorization.check(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            group = describe(group_id)
        except KafkaError as error:
            return refused(group_id, error.code, error.message)
        if not _may_see(authorization, context, topics_of(group)):
            return refused(
                group_id,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The group has described topic(s) that the client is not authorized to describe.",
            )
        return group

    groups = [visible(group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = authorization.operations(
                    context, ResourceType.GROUP, group.group_id, wanted=True
                )
    return groups


def _may_see(authorization: Authorization, context: Context, topics: Collection[str]) -> bool:
    return all(authorization.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in topics)
