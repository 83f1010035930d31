"""The example at the top of protocol/README.md answers a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kwire_protocol.headers import RequestHeader, read_response_header, write_request_header
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire_protocol.wire import Reader, Writer

from devtools.markdown import fenced_blocks
from devtools.places import REPOSITORY

HEARTBEAT, VERSION, CORRELATION_ID = 12, 4, 7


def _answer() -> Callable[[memoryview], bytes]:
    names: dict[str, Any] = {}
    exec(fenced_blocks(REPOSITORY / "protocol" / "README.md")[0].text, names)
    answer: Callable[[memoryview], bytes] = names["answer"]
    return answer


def test_the_example_reads_a_request_and_writes_its_response(capsys: pytest.CaptureFixture[str]) -> None:
    w = Writer()
    write_request_header(w, RequestHeader(HEARTBEAT, VERSION, CORRELATION_ID, "a client"))
    HeartbeatRequest(group_id="g", generation_id=1, member_id="m").write(w, VERSION)

    frame = _answer()(memoryview(bytearray(w.getvalue())))

    assert capsys.readouterr().out.startswith("HeartbeatRequest(group_id='g', generation_id=1, member_id='m', ")
    r = Reader(memoryview(frame))
    assert r.int32() == len(frame) - 4
    assert read_response_header(r, HEARTBEAT, VERSION) == CORRELATION_ID
    assert HeartbeatResponse.read(r, VERSION) == HeartbeatResponse()
    assert r.remaining == 0
