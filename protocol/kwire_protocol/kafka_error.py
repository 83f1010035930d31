"""The error that handlers and state machines raise to send an error code to the client: a response, no failure."""

from __future__ import annotations

from typing import Final

from kwire_protocol.errors import ErrorCode

_LONGEST_QUOTE: Final = 300


class KafkaError(Exception):
    """An error of one partition, topic or member, or of the whole response, wherever the protocol has a code."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.code.name if self.message is None else f"{self.code.name}: {self.message}"


def quoted(value: object) -> str:
    """Returns a client's value for an error's message: in quotes if it is text, on one line, and cut if it is long.

    A message is a string of the protocol, and a name may be as long as those can be.
    """
    text = repr(value)
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."
