"""The primitives of Kafka's wire format: a Reader of received bytes, and a Writer of bytes to send.

Numbers are big-endian. A string, byte string or array is preceded by its length, and has two encodings:

* classic: a signed int16 (strings) or int32 (the rest); negative means null;
* compact, in flexible versions (KIP-482): length + 1 as an unsigned varint; 0 means null.

A struct of a flexible version ends with its tagged fields: a count, then for each its tag, its size, its bytes.
A reader skips unknown tags.

The Reader does not trust its input. Every read is checked against the end of the buffer. Before anything is allocated,
a claimed count is compared with the remaining bytes, divided by the smallest size of an element. Malformed bytes
always raise a ProtocolError, never another exception: the generated code converts the errors in MALFORMED. As in Kafka,
a repeated tag replaces the earlier one, a varint may be longer than needed but not longer than five bytes, a negative
classic length is null, and bytes after a message are ignored (`Reader.remaining`).

The Writer trusts its caller: a number that does not fit raises struct.error, and is a bug.
"""

from __future__ import annotations

from kwire_protocol.message_types import ApiMessage, Message
from kwire_protocol.reader import MALFORMED, SHORT_TEXT, Reader
from kwire_protocol.wire_types import (
    FRESH,
    MAX_ARRAY_LENGTH,
    MAX_STRING_BYTES,
    MAX_TAGGED_FIELDS,
    NULL_UUID,
    Buffer,
    GeneratedMessage,
    ProtocolError,
    Region,
    UnsupportedField,
    UnsupportedVersion,
    Uuid,
    required,
    uuid_from_text,
    uuid_to_text,
)
from kwire_protocol.writer import OWN_PIECE_BYTES, Writer

__all__ = [
    "FRESH",
    "MALFORMED",
    "MAX_ARRAY_LENGTH",
    "MAX_STRING_BYTES",
    "MAX_TAGGED_FIELDS",
    "NULL_UUID",
    "OWN_PIECE_BYTES",
    "SHORT_TEXT",
    "ApiMessage",
    "Buffer",
    "GeneratedMessage",
    "Message",
    "ProtocolError",
    "Reader",
    "Region",
    "UnsupportedField",
    "UnsupportedVersion",
    "Uuid",
    "Writer",
    "required",
    "uuid_from_text",
    "uuid_to_text",
]
