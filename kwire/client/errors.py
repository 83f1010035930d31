"""What the client raises: one line each, which says what happened, at which broker, and what may be done.

`may_pass` tells whether asking again is of use, perhaps with fresh metadata and over a new connection. The client's own
operations do so until their deadline, and raise the last error then.
"""

from __future__ import annotations

from collections.abc import Sequence

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


class TopicExists(Refused):
    """A topic of that name is there already."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.TOPIC_ALREADY_EXISTS)


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


def refused(what: str, code: int, told: str | None = None) -> Refused:
    """What did not happen, Kafka's name of the reason, and what the broker says of it besides."""
    return Refused(f"{what}: {error_name(code)}" + (f" ({told})" if told else ""), code)


def raise_worst(problems: Sequence[ClientError]) -> None:
    """Raises one of them, if there are any. One that does not pass comes first: asking again would not help."""
    if problems:
        raise min(problems, key=lambda it: it.may_pass)
