"""Request headers from clients that may be anything."""

from __future__ import annotations

import struct

import pytest
from kwire_protocol.headers import RequestHeader, read_request_header
from kwire_protocol.wire import ProtocolError, Reader


def header(api_key: int, api_version: int, client_id: bytes = b"c", length: int | None = None) -> bytes:
    return struct.pack(">hhih", api_key, api_version, 9, len(client_id) if length is None else length) + client_id


@pytest.mark.parametrize(
    ("api_key", "api_version", "tags"),
    [(0, 8, b""), (0, 9, b"\0"), (17, 99, b""), (18, 99, b"\x01\x05\x02ab"), (999, 7, b""), (-1, -1, b"")],
)
def test_the_reader_is_left_at_the_body(api_key: int, api_version: int, tags: bytes) -> None:
    r = Reader(header(api_key, api_version) + tags + b"body")
    assert read_request_header(r) == RequestHeader(api_key, api_version, 9, "c")
    assert bytes(r.buf[r.pos :]) == b"body"


def test_a_negative_length_is_no_client_id() -> None:
    assert read_request_header(Reader(header(0, 3, b"", -2))).client_id is None


@pytest.mark.parametrize(
    "data",
    [b"", header(0, 8)[:9], header(0, 8, b"abc")[:-1], header(0, 8, b"", 32767), header(0, 8, b"\xff"), header(0, 9)],
)
def test_a_broken_header_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_request_header(Reader(data))
