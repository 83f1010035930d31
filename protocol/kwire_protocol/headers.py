"""Request and response headers.

    request  v1: api_key int16, api_version int16, correlation_id int32, client_id nullable string (classic, always)
    request  v2: the same, then tagged fields; used by the flexible versions of an API
    response v0: correlation_id int32
    response v1: the same, then tagged fields; used by the flexible versions of an API, except ApiVersions,
                 whose client does not have the broker's versions yet (KIP-511)

The client id has the classic encoding in v2 too, so that a broker can read the header of an ApiVersions request in a
version that it does not support."""

from __future__ import annotations

import struct
from struct import Struct
from typing import NamedTuple

from kwire_protocol.messages import APIS
from kwire_protocol.wire import MAX_STRING_BYTES, ProtocolError, Reader, Writer

API_VERSIONS_KEY = 18

REQUEST_START = Struct(">hhi")
"""The start of every request header: API key, version, correlation id. `read_client_id` reads the rest."""

_LENGTH = Struct(">h")
_HEAD = Struct(">ii")
_HEAD_NO_TAGS = Struct(">iix")
_NEVER = MAX_STRING_BYTES + 1  # above every int16
_FLEXIBLE_SINCE = {key: _NEVER if api.flexible_since is None else api.flexible_since for key, api in APIS.items()}


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_client_id(r: Reader, api_key: int, api_version: int) -> str | None:
    """Reads the header after REQUEST_START, up to the start of the request's body.

    For an unknown API key, it reads the fields of header v1.
    """
    buf = r.buf
    pos = r.pos
    try:
        (length,) = _LENGTH.unpack_from(buf, pos)
    except struct.error:
        raise _too_short(r) from None
    stop: int = pos + 2
    client_id = None
    if length >= 0:
        stop += length
        if stop > r.end:
            raise ProtocolError(f"a client id claims {length} bytes")
        try:
            client_id = str(buf[pos + 2 : stop], "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a client id is not UTF-8") from None
    r.pos = stop
    if api_version >= _FLEXIBLE_SINCE.get(api_key, _NEVER):
        if stop < r.end and buf[stop] == 0:
            r.pos = stop + 1  # no tagged fields, as nearly always
        else:
            r.skip_tags()
    return client_id


def read_request_header(r: Reader) -> RequestHeader:
    """Reads the header, up to the start of the body. For an unknown API key, it reads the fields of header v1."""
    try:
        api_key, api_version, correlation_id = REQUEST_START.unpack_from(r.buf, r.pos)
    except struct.error:
        raise _too_short(r) from None
    r.pos += REQUEST_START.size
    return RequestHeader(api_key, api_version, correlation_id, read_client_id(r, api_key, api_version))


def _too_short(r: Reader) -> ProtocolError:
    return ProtocolError(f"a request has {r.end} bytes, less than its header")


def write_request_header(w: Writer, header: RequestHeader) -> None:
    w.int16(header.api_key)
    w.int16(header.api_version)
    w.int32(header.correlation_id)
    w.nullable_string(header.client_id)
    if header.api_version >= _FLEXIBLE_SINCE.get(header.api_key, _NEVER):
        w.no_tags()


def read_response_header(r: Reader, api_key: int, version: int) -> int:
    """Reads a response header and returns the correlation id."""
    correlation_id = r.int32()
    if version >= _FLEXIBLE_SINCE.get(api_key, _NEVER) and api_key != API_VERSIONS_KEY:
        r.skip_tags()
    return correlation_id


def response_head(api_key: int, version: int, correlation_id: int) -> bytes:
    """Returns room for the size of the frame, and the response's header, for `Writer.begin_frame`."""
    if version >= _FLEXIBLE_SINCE.get(api_key, _NEVER) and api_key != API_VERSIONS_KEY:
        return _HEAD_NO_TAGS.pack(0, correlation_id)
    return _HEAD.pack(0, correlation_id)
