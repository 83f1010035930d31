"""What the client raises: one line each, which says what happened, at which broker, and what may be done.

`may_pass` tells whether asking again is of use, perhaps with fresh metadata and over a new connection. The client's own
operations do so until their deadline, and raise the last error then.
"""

from __future__ import annotations

from kwire_protocol.errors import RETRIABLE, ErrorCode


class ClientError(Exception):
    """Whatever the client cannot do. `message` is one line."""

    may_pass = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidAddress(ClientError):
    """A text that is not HOST:PORT."""


class ConnectionFailed(ClientError):
    """A broker that cannot be reached, hung up, or took too long. What was asked may have been done."""

    may_pass = True


class NoBrokerReached(ConnectionFailed):
    """None of the bootstrap addresses answers."""


class NotABroker(ClientError):
    """What answers breaks Kafka's protocol."""


class VersionNotServed(ClientError):
    """The broker is too old, or too new, for a request."""


class Refused(ClientError):
    """A broker's answer is an error. `code` is Kafka's number for it."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
        self.may_pass = code in RETRIABLE


class UnknownTopic(Refused):
    """The cluster has no such topic, or no such partition of it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.may_pass = False  # for a broker that has just not heard of it; the metadata have, or there is none


def error_name(code: int) -> str:
    """An error code as Kafka calls it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
