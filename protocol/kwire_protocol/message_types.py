"""The types of generated messages, as their users see them."""

from __future__ import annotations

from typing import ClassVar, Protocol, Self

from kwire_protocol.reader import Reader
from kwire_protocol.writer import Writer


class Message(Protocol):
    """The methods of every generated message, and of its structs that occur outside arrays."""

    @classmethod
    def read(cls, r: Reader, version: int) -> Self: ...

    def write(self, w: Writer, version: int) -> None: ...


class ApiMessage(Message, Protocol):
    """The methods of every generated request, response and record with a type number."""

    api_key: ClassVar[int]
    versions: ClassVar[range]
    flexible_since: ClassVar[int | None]
