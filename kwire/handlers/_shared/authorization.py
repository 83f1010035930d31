"""Checks whether the client of a request is authorized, and reports its authorized operations (KIP-430).

A client that may not see a resource does not learn whether it exists: a name is checked before it is looked up. Ids
are not secret, so an unknown id is answered as unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Set
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages import APIS

from kwire.metadata.image import ConfigResourceType
from kwire.security.authorizer import CLUSTER_NAME, REFUSALS, SUPPORTED, Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context
    from kwire.replicas.partition import Partition
    from kwire.replicas.table import TopicRef

NOT_ASKED: Final = -(1 << 31)
"""The value of authorized operations for a client that did not ask for them."""

MAY_NOT_READ: Final = "The client is not authorized to read the topic."

T = TypeVar("T")


def allows(
    broker: Broker, context: Context, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> bool:
    """Whether the client may perform the operation."""
    return broker.authorizer.allows(context.requester, operation, resource_type, name)


def check(
    broker: Broker, context: Context, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> None:
    """Raises the KafkaError for resources of that type if the client may not perform the operation."""
    if not broker.authorizer.allows_all and not _is_allowed(broker, context, operation, resource_type, name):
        raise refusal(operation, resource_type)


def refusal(operation: Operation, resource_type: ResourceType) -> KafkaError:
    """The error that the client is told. Its message is in Kafka's words, and without the name: it may be a secret."""
    resource = resource_type.name.lower().replace("_", " ")
    message = f"{resource.capitalize()} authorization failed. It needs {operation.name} on the {resource}."
    return KafkaError(REFUSALS[resource_type], message)


def _is_allowed(broker: Broker, context: Context, operation: Operation, resource_type: ResourceType, name: str) -> bool:
    """As `allows`, for what the request is about: the audit log has the decision."""
    allowed = broker.authorizer.allows(context.requester, operation, resource_type, name)
    if not allowed or broker.audit.has_all:
        api = APIS[context.api_key].name
        broker.audit.decided(context.requester, operation, resource_type, name, api=api, allowed=allowed)
    return allowed


def divided(
    broker: Broker, context: Context, operation: Operation, topics: list[T], name_of: Callable[[T], str | None]
) -> tuple[list[T], list[T]]:
    """The topics that the client is authorized for, and the others. An unknown id has no name, and passes."""
    if broker.authorizer.allows_all:
        return topics, []
    allowed: list[T] = []
    refused: list[T] = []
    for topic in topics:
        name = name_of(topic)
        is_allowed = name is None or _is_allowed(broker, context, operation, ResourceType.TOPIC, name)
        (allowed if is_allowed else refused).append(topic)
    return allowed, refused


def named_once(names: Iterable[str]) -> Set[str]:
    """A request that names something twice is wrong, and that is said before anybody asks whether it is allowed."""
    return {name for name, count in Counter(names).items() if count == 1}


def finder(broker: Broker, context: Context, operation: Operation) -> Callable[[TopicRef, int], Partition]:
    """Like `PartitionTable.find`, with the client's authorization: raises TOPIC_AUTHORIZATION_FAILED as well."""
    if broker.authorizer.allows_all:
        return broker.partitions.find
    # With every decision in the audit log, none is remembered.
    granted = frozenset() if broker.audit.has_all else broker.authorizer.granted(context.requester, operation)
    return partial(_find, granted, broker, context, operation)


def _find(
    granted: Set[TopicRef], broker: Broker, context: Context, operation: Operation, topic: TopicRef, index: int
) -> Partition:
    if topic not in granted:
        _check_topic(broker, context, operation, topic)
    return broker.partitions.find(topic, index)


def _check_topic(broker: Broker, context: Context, operation: Operation, topic: TopicRef) -> None:
    if isinstance(topic, str):
        name = topic
    elif (image := broker.metadata.image.topics_by_id.get(topic)) is not None:
        name = image.name
    else:
        return
    check(broker, context, operation, ResourceType.TOPIC, name)
    broker.authorizer.grant(context.requester, operation, topic)


def authorized_operations(
    broker: Broker, context: Context, resource_type: ResourceType, name: str = CLUSTER_NAME, *, wanted: bool
) -> int:
    """The client's operations on the resource, as a bit field of operation codes."""
    if not wanted:
        return NOT_ASKED
    return sum(
        1 << operation
        for operation in SUPPORTED[resource_type]
        if allows(broker, context, operation, resource_type, name)
    )


def cluster_operations(broker: Broker, context: Context, *, wanted: bool) -> int:
    """The client's operations on the cluster; 0 if it may not describe the cluster."""
    if wanted and not allows(broker, context, Operation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return authorized_operations(broker, context, ResourceType.CLUSTER, wanted=wanted)


def check_configs(broker: Broker, context: Context, operation: Operation, resource_type: int, name: str) -> None:
    """Raises KafkaError if the client may not perform the operation on configurations.

    `resource_type` is a ConfigResource.Type.
    """
    match resource_type:
        case ConfigResourceType.TOPIC:
            check(broker, context, operation, ResourceType.TOPIC, name)
        case ConfigResourceType.GROUP:
            check(broker, context, operation, ResourceType.GROUP, name)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER | ConfigResourceType.CLIENT_METRICS:
            check(broker, context, operation, ResourceType.CLUSTER)
        case _:
            pass  # there is no such type, which the client will be told
