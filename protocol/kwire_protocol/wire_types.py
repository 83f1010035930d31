"""The Python types of the wire format's values, and the errors of encoding and decoding."""

from __future__ import annotations

import base64
import copy
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

Uuid: TypeAlias = bytes
"""16 raw bytes, most significant first."""

NULL_UUID: Uuid = bytes(16)

Buffer: TypeAlias = bytes | bytearray | memoryview

# Kafka's own limits, since 4.4 for the last two.
MAX_STRING_BYTES = 0x7FFF  # in both encodings, although the compact one allows more
MAX_ARRAY_LENGTH = 1_000_000
MAX_TAGGED_FIELDS = 10_000

_T = TypeVar("_T")


class ProtocolError(Exception):
    """The peer sent a malformed frame or message. Nothing more can be read from it: the connection is closed."""


class UnsupportedVersion(ValueError):
    """The message has no such version."""

    def __init__(self, message: str, version: int) -> None:
        super().__init__(f"{message} has no version {version}")


class UnsupportedField(ValueError):
    """The field has a value, but the version to be written does not have the field."""

    def __init__(self, field: str, version: int) -> None:
        super().__init__(f"{field} cannot be written in version {version}")


@runtime_checkable
class Region(Protocol):
    """Bytes stored elsewhere, such as a range of a file, which the socket layer sends without copying them here."""

    @property
    def size(self) -> int: ...


FRESH: Final[Any] = object()
"""The default of an argument for which each message makes a new value: a list, or a struct."""


class GeneratedMessage:
    """The base of all generated messages and structs: comparison, `repr` and `replace` by their fields.

    They are plain classes: a broker loads hundreds of them, and making these with attrs took a quarter of its start.
    """

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with other values in these fields."""
        changed = copy.copy(self)
        for name, value in changes.items():
            setattr(changed, name, value)
        return changed


def uuid_to_text(uuid: Uuid) -> str:
    """Returns Kafka's text form: base64 for URLs without padding, 22 characters."""
    return base64.urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """Does the reverse of `uuid_to_text`. Raises ValueError if `text` is not 22 characters of base64."""
    if len(text) != 22 or "+" in text or "/" in text:
        raise ValueError(f"a Kafka UUID has 22 characters of base64 for URLs: {text!r}")
    return base64.b64decode(text + "==", altchars=b"-_", validate=True)


def required(value: _T | None, field: str) -> _T:
    """Returns `value`, which must not be null in this version."""
    if value is None:
        raise ValueError(f"{field} must not be null in this version")
    return value
