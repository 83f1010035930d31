"""The bytes of a shape's response around the values that differ, from the generated messages."""

from __future__ import annotations

from struct import Struct
from typing import Final

from kwire_protocol.headers import response_head
from kwire_protocol.wire import ApiMessage, Writer

from kwire.handlers.shapes import Shape

MARKS: Final = (0x6B77697265_01, 0x6B77697265_02, 0x6B77697265_03)
"""The values of three int64 fields that follow each other, by which they are found in the encoded response."""

MARKED: Final = Struct(">qqq").pack(*MARKS)


def encoded(shape: Shape, response: ApiMessage) -> bytes:
    """Returns the whole frame of a response to requests of that shape, with the correlation id 0."""
    writer = Writer()
    writer.begin_frame(response_head(shape.api.key, shape.version, 0))
    response.write(writer, shape.version)
    writer.end_frame()
    return writer.getvalue()


def encoded_body(shape: Shape, response: ApiMessage) -> bytes:
    """Returns a response without the frame's size and its header."""
    writer = Writer()
    response.write(writer, shape.version)
    return writer.getvalue()


def around_marks(frame: bytes) -> tuple[bytes, bytes]:
    """Returns the bytes of an encoded response from its correlation id to the marks, and from there to its end."""
    # The last ones: a client may have sent a topic name with the same bytes, which comes before them.
    before, after = frame[8:].rsplit(MARKED, 1)
    return before, after
