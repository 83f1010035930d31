"""The permissions of principals: the interface that every handler uses, and an authorizer that allows everything.

Operations and resource types are Kafka's (AclOperation, ResourceType), by their numbers on the wire. In Kafka the
checks, and the responses to a refusal, are in `KafkaApis` and `ControllerApis`.
"""

from __future__ import annotations

from collections.abc import Set
from enum import IntEnum
from typing import Final, Protocol

from kwire_protocol.errors import ErrorCode
from kwire_protocol.wire import Uuid

from kwire.security.principal import Requester

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class Operation(IntEnum):
    """Operations on a resource."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """Types of protected resources."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


SUPPORTED: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that each resource type supports (AclEntry.supportedOperations)."""

REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error for a refused operation, by resource type. Operations on users concern their delegation tokens."""


class Authorizer(Protocol):
    """Decides which operations a requester may perform."""

    allows_all: bool
    """True if everything is allowed, so that the hottest paths need no check."""

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Returns True if the requester may perform the operation on the resource."""
        ...

    def allows_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """Returns True if the operation is allowed on some resource of the type (authorizeByResourceType)."""
        ...

    def granted(self, requester: Requester, operation: Operation) -> Set[str | Uuid]:
        """Returns the topics, by name or id, for which `grant` has recorded the operation.

        Produce and Fetch check this set first. A change of permissions empties it.
        """
        ...

    def grant(self, requester: Requester, operation: Operation, topic: str | Uuid) -> None:
        """Records that `allows` has allowed this. A topic may be given by its id, whose name never changes."""
        ...


class AllowAll:
    """Allows everything, like Apache Kafka without an authorizer."""

    allows_all = True

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:  # noqa: ARG002
        """See `Authorizer`."""
        return True

    def allows_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:  # noqa: ARG002
        """See `Authorizer`."""
        return True

    def granted(self, requester: Requester, operation: Operation) -> Set[str | Uuid]:  # noqa: ARG002
        """See `Authorizer`. Not needed by callers that check `allows_all` first."""
        return frozenset()

    def grant(self, requester: Requester, operation: Operation, topic: str | Uuid) -> None:
        """See `Authorizer`."""
