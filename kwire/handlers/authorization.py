"""Checks whether the client of a request is authorized, and reports its authorized operations (KIP-430).

Responses do not reveal to an unauthorized client whether a resource exists: a name is checked before it is looked up.
Ids are not secret, so an unknown id is reported as unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Set
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages import APIS

from kwire.metadata.image import ConfigResourceType
from kwire.security.authorizer import CLUSTER_NAME, REFUSALS, SUPPORTED, Authorizer, Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService
    from kwire.replicas.partition import Partition
    from kwire.replicas.table import PartitionTable, TopicRef
    from kwire.security.audit import AuditLog

NOT_REQUESTED: Final = -(1 << 31)
"""The value of authorized operations if the request does not include them."""

MAY_NOT_READ: Final = "The client is not authorized to read the topic."

T = TypeVar("T")


@attrs.define(eq=False)
class Authorization:
    """The authorization of requests to one broker, as in Kafka's `AuthHelper`."""

    authorizer: Authorizer
    audit: AuditLog
    _metadata: MetadataService
    _partitions: PartitionTable

    def allows(
        self, context: Context, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> bool:
        """True if the client may perform the operation."""
        return self.authorizer.allows(context.requester, operation, resource_type, name)

    def check(
        self, context: Context, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> None:
        """Raises the KafkaError for resources of that type if the client may not perform the operation."""
        if not self.authorizer.allows_all and not self._decides(context, operation, resource_type, name):
            raise refusal(operation, resource_type)

    def _decides(self, context: Context, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Returns what `allows` does, for a resource of the request, and writes the decision to the audit log."""
        allowed = self.authorizer.allows(context.requester, operation, resource_type, name)
        if not allowed or self.audit.has_all:
            api = APIS[context.api_key].name
            self.audit.decided(context.requester, operation, resource_type, name, api=api, allowed=allowed)
        return allowed

    def check_configs(self, context: Context, operation: Operation, resource_type: int, name: str) -> None:
        """Raises KafkaError if the client may not perform the operation on configurations.

        `resource_type` is a ConfigResource.Type.
        """
        match resource_type:
            case ConfigResourceType.TOPIC:
                self.check(context, operation, ResourceType.TOPIC, name)
            case ConfigResourceType.GROUP:
                self.check(context, operation, ResourceType.GROUP, name)
            case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER | ConfigResourceType.CLIENT_METRICS:
                self.check(context, operation, ResourceType.CLUSTER)
            case _:
                pass  # the type does not exist, which is reported to the client later

    def divided(
        self, context: Context, operation: Operation, topics: list[T], name_of: Callable[[T], str | None]
    ) -> tuple[list[T], list[T]]:
        """Returns the topics that the client is authorized for, and the others. Unknown ids have no name, and pass."""
        if self.authorizer.allows_all:
            return topics, []
        allowed: list[T] = []
        refused: list[T] = []
        for topic in topics:
            name = name_of(topic)
            is_allowed = name is None or self._decides(context, operation, ResourceType.TOPIC, name)
            (allowed if is_allowed else refused).append(topic)
        return allowed, refused

    def finder(self, context: Context, operation: Operation) -> Callable[[TopicRef, int], Partition]:
        """Returns `PartitionTable.find` with the client's authorization: it also raises TOPIC_AUTHORIZATION_FAILED."""
        if self.authorizer.allows_all:
            return self._partitions.find
        # If every decision is in the audit log, none is cached.
        granted = frozenset() if self.audit.has_all else self.authorizer.granted(context.requester, operation)
        return partial(self._find, granted, context, operation)

    def has_granted(self, context: Context, operation: Operation, topic: TopicRef) -> bool:
        """True if the client is known to be authorized, and the audit log does not have the decision.

        False says nothing: `finder` decides.
        """
        if self.authorizer.allows_all:
            return True
        return not self.audit.has_all and topic in self.authorizer.granted(context.requester, operation)

    def allows_unaudited(self, context: Context, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """True if the client may perform the operation, and the audit log does not have the decision.

        False says nothing: `check` decides.
        """
        if self.authorizer.allows_all:
            return True
        return not self.audit.has_all and self.allows(context, operation, resource_type, name)

    def _find(
        self, granted: Set[TopicRef], context: Context, operation: Operation, topic: TopicRef, index: int
    ) -> Partition:
        if topic not in granted:
            self._check_topic(context, operation, topic)
        return self._partitions.find(topic, index)

    def _check_topic(self, context: Context, operation: Operation, topic: TopicRef) -> None:
        if isinstance(topic, str):
            name = topic
        elif (image := self._metadata.image.topics_by_id.get(topic)) is not None:
            name = image.name
        else:
            return
        self.check(context, operation, ResourceType.TOPIC, name)
        self.authorizer.grant(context.requester, operation, topic)

    def operations(
        self, context: Context, resource_type: ResourceType, name: str = CLUSTER_NAME, *, wanted: bool
    ) -> int:
        """Returns the client's operations on the resource, as a bit field of operation codes."""
        if not wanted:
            return NOT_REQUESTED
        return sum(
            1 << operation
            for operation in SUPPORTED[resource_type]
            if self.allows(context, operation, resource_type, name)
        )

    def cluster_operations(self, context: Context, *, wanted: bool) -> int:
        """Returns the client's operations on the cluster; 0 if it may not describe the cluster."""
        if wanted and not self.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER):
            return 0
        return self.operations(context, ResourceType.CLUSTER, wanted=wanted)


def refusal(operation: Operation, resource_type: ResourceType) -> KafkaError:
    """Returns the error for the client. Its message is Kafka's, without the resource name, which may be a secret."""
    resource = resource_type.name.lower().replace("_", " ")
    message = f"{resource.capitalize()} authorization failed. It needs {operation.name} on the {resource}."
    return KafkaError(REFUSALS[resource_type], message)


def named_once(names: Iterable[str]) -> Set[str]:
    """Returns the names that occur once. Duplicates are an error, which is reported before authorization is checked."""
    return {name for name, count in Counter(names).items() if count == 1}
