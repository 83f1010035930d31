"""Helpers of the three APIs for ACLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.handlers.context import CloseConnection
from kwire.security.acls.acl import UNKNOWN
from kwire.security.acls.standard_authorizer import StandardAuthorizer

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization


def check_known(*numbers: int) -> None:
    """Closes the connection if one of the numbers is UNKNOWN. As in Kafka, such a request is not valid.

    Other numbers without a meaning are refused elsewhere, each with an error.
    """
    if UNKNOWN in numbers:
        raise CloseConnection(
            "a request about ACLs has a type, an operation or a permission of 0, which stands for none"
        )


def standard_authorizer(authorization: Authorization) -> StandardAuthorizer:
    """Returns the broker's authorizer. Raises KafkaError(SECURITY_DISABLED) if it does not use ACLs."""
    if isinstance(authorization.authorizer, StandardAuthorizer):
        return authorization.authorizer
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
