"""Whether the client of a request may do what it asks for; what it is told of that (KIP-430).

Whoever may not see a resource is not told whether it exists: names are checked before they are looked up. Ids are no
secret, so an id that nothing has is answered as unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from kwire_protocol.kafka_error import KafkaError

from kwire.metadata.image import ConfigResourceType
from kwire.security.authorizer import CLUSTER_NAME, REFUSALS, SUPPORTED, Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context
    from kwire.replicas.partition import Partition
    from kwire.replicas.table import TopicRef

NOT_ASKED: Final = -(1 << 31)
"""In the place of authorized operations, for a client that did not ask for them."""

T = TypeVar("T")


def allows(
    broker: Broker, context: Context, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> bool:
    """Whether the client may do that."""
    return broker.authorizer.allows(context.principal, operation, resource_type, name)


def check(
    broker: Broker, context: Context, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> None:
    """Raises KafkaError, the refusal for resources of that type."""
    if not broker.authorizer.allows(context.principal, operation, resource_type, name):
        raise KafkaError(REFUSALS[resource_type])


def divided(
    broker: Broker, context: Context, operation: Operation, topics: list[T], name_of: Callable[[T], str | None]
) -> tuple[list[T], list[T]]:
    """The topics that the client may do that to, and the others. An id that nothing has, and so no name, passes."""
    if broker.authorizer.allows_all:
        return topics, []
    allowed: list[T] = []
    refused: list[T] = []
    for topic in topics:
        name = name_of(topic)
        is_allowed = name is None or allows(broker, context, operation, ResourceType.TOPIC, name)
        (allowed if is_allowed else refused).append(topic)
    return allowed, refused


def finder(broker: Broker, context: Context, operation: Operation) -> Callable[[TopicRef, int], Partition]:
    """As `PartitionTable.find`, for a client that is going to do that; raises TOPIC_AUTHORIZATION_FAILED as well."""
    if broker.authorizer.allows_all:
        return broker.partitions.find
    return partial(_find, broker, context, operation)


def _find(broker: Broker, context: Context, operation: Operation, topic: TopicRef, index: int) -> Partition:
    if isinstance(topic, str):
        check(broker, context, operation, ResourceType.TOPIC, topic)
    elif (image := broker.metadata.image.topics_by_id.get(topic)) is not None:
        check(broker, context, operation, ResourceType.TOPIC, image.name)
    return broker.partitions.find(topic, index)


def authorized_operations(
    broker: Broker, context: Context, resource_type: ResourceType, name: str = CLUSTER_NAME, *, wanted: bool
) -> int:
    """What the client may do to the resource, as a bit field over the numbers of operations."""
    if not wanted:
        return NOT_ASKED
    return sum(
        1 << operation
        for operation in SUPPORTED[resource_type]
        if allows(broker, context, operation, resource_type, name)
    )


def cluster_operations(broker: Broker, context: Context, *, wanted: bool) -> int:
    """What the client may do to the cluster; nothing, as far as it is told, where it may not even describe it."""
    if wanted and not allows(broker, context, Operation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return authorized_operations(broker, context, ResourceType.CLUSTER, wanted=wanted)


def check_configs(broker: Broker, context: Context, operation: Operation, resource_type: int, name: str) -> None:
    """Raises KafkaError where the client may not do that to configurations. The type is a ConfigResource.Type."""
    match resource_type:
        case ConfigResourceType.TOPIC:
            check(broker, context, operation, ResourceType.TOPIC, name)
        case ConfigResourceType.GROUP:
            check(broker, context, operation, ResourceType.GROUP, name)
        case _:
            check(broker, context, operation, ResourceType.CLUSTER)
