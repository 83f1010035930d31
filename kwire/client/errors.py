"""The client's errors. Each message is one line with the failure, the broker, and the remedy.

`may_pass` is True if a retry may help, perhaps with fresh metadata and a new connection. The client's own operations
retry until their deadline, then raise the last error.
"""

from __future__ import annotations

from collections.abc import Sequence

from kwire_protocol.errors import RETRIABLE, ErrorCode


class ClientError(Exception):
    """Base of the client's errors. `message` is one line."""

    may_pass = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidAddress(ClientError):
    """A text that is not HOST:PORT."""


class ConnectionFailed(ClientError):
    """A broker cannot be reached, closed the connection, or took too long. It may have carried out the request."""

    may_pass = True


class TlsFailed(ConnectionFailed):
    """The two sides could not agree on TLS, or one does not trust the other."""

    may_pass = False


class NoBrokerReached(ConnectionFailed):
    """No bootstrap address answers."""


class NotABroker(ClientError):
    """The peer violates Kafka's protocol."""


class VersionNotServed(ClientError):
    """The broker is too old, or too new, for a request."""


class Refused(ClientError):
    """A broker responded with an error. `code` is Kafka's error code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
        self.may_pass = code in RETRIABLE


class TopicExists(Refused):
    """A topic with this name already exists."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.TOPIC_ALREADY_EXISTS)


class UnknownTopic(Refused):
    """The cluster has no such topic, or no such partition of it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.may_pass = False  # The error of a broker without the latest metadata may pass; this one is final.


def error_name(code: int) -> str:
    """Returns Kafka's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def refused(what: str, code: int, message: str | None = None) -> Refused:
    """Returns the error with the failed operation, Kafka's name of the error, and the broker's own message, if any."""
    return Refused(f"{what}: {error_name(code)}" + (f" ({message})" if message else ""), code)


def raise_worst(problems: Sequence[ClientError]) -> None:
    """Raises one of the errors, if there are any. A permanent one first, since a retry would not help."""
    if problems:
        raise min(problems, key=lambda it: it.may_pass)
