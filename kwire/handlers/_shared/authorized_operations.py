"""Which operations a client may do (KIP-430), as a bit field over Kafka's AclOperation numbers.

Without an authorizer everything is allowed that a resource of that kind has; a client that did not ask is told the
smallest integer.
"""

from __future__ import annotations

from typing import Final

NOT_ASKED: Final = -(1 << 31)

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = range(3, 9)
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = range(9, 13)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


ALL_ON_A_TOPIC: Final = _bits(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
ALL_ON_THE_CLUSTER: Final = _bits(
    _CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE
)


def topic_operations(*, wanted: bool) -> int:
    return ALL_ON_A_TOPIC if wanted else NOT_ASKED


def cluster_operations(*, wanted: bool) -> int:
    return ALL_ON_THE_CLUSTER if wanted else NOT_ASKED
