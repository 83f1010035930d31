"""Request and response headers.

    request  v1: api_key int16, api_version int16, correlation_id int32, client_id nullable string (classic, always)
    request  v2: the same, then tagged fields; used by the flexible versions of an API
    response v0: correlation_id int32
    response v1: the same, then tagged fields; used by the flexible versions of an API, except ApiVersions,
                 whose client cannot know yet which versions the broker understands (KIP-511)

The client id is in the classic encoding in v2 as well, so that a broker can read the header of an ApiVersions
request of a version that it has never heard of."""

from __future__ import annotations

import struct
from struct import Struct
from typing import NamedTuple

from kwire_protocol.messages import APIS
from kwire_protocol.wire import MAX_STRING_BYTES, ProtocolError, Reader, Writer

API_VERSIONS_KEY = 18

_REQUEST = Struct(">hhih")
_HEAD = Struct(">ii")
_HEAD_NO_TAGS = Struct(">iix")
_NEVER = MAX_STRING_BYTES + 1  # above every int16
_FLEXIBLE_SINCE = {key: _NEVER if api.flexible_since is None else api.flexible_since for key, api in APIS.items()}
_new_tuple = tuple.__new__


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(r: Reader) -> RequestHeader:
    """Leaves `r` at the start of the request's body. Of an unknown API key, the fields of header v1 are read."""
    buf = r.buf
    pos = r.pos
    try:
        api_key, api_version, correlation_id, length = _REQUEST.unpack_from(buf, pos)
    except struct.error:
        raise ProtocolError(f"a request has {r.end - pos} bytes, less than its header") from None
    stop = pos + 10
    client_id = None
    if length >= 0:
        stop += length
        if stop > r.end:
            raise ProtocolError(f"a client id claims {length} bytes")
        try:
            client_id = str(buf[pos + 10 : stop], "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a client id is not UTF-8") from None
    r.pos = stop
    if api_version >= _FLEXIBLE_SINCE.get(api_key, _NEVER):
        if stop < r.end and buf[stop] == 0:
            r.pos = stop + 1  # no tagged fields, as nearly always
        else:
            r.skip_tags()
    return _new_tuple(RequestHeader, (api_key, api_version, correlation_id, client_id))


def write_request_header(w: Writer, header: RequestHeader) -> None:
    w.int16(header.api_key)
    w.int16(header.api_version)
    w.int32(header.correlation_id)
    w.nullable_string(header.client_id)
    if header.api_version >= _FLEXIBLE_SINCE.get(header.api_key, _NEVER):
        w.no_tags()


def read_response_header(r: Reader, api_key: int, version: int) -> int:
    """The correlation id."""
    correlation_id = r.int32()
    if version >= _FLEXIBLE_SINCE.get(api_key, _NEVER) and api_key != API_VERSIONS_KEY:
        r.skip_tags()
    return correlation_id


def response_head(api_key: int, version: int, correlation_id: int) -> bytes:
    """The size of the frame, to be filled in, and the response's header: for `Writer.begin_frame`."""
    if version >= _FLEXIBLE_SINCE.get(api_key, _NEVER) and api_key != API_VERSIONS_KEY:
        return _HEAD_NO_TAGS.pack(0, correlation_id)
    return _HEAD.pack(0, correlation_id)
