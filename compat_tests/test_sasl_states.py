"""The order of requests while a client authenticates: all sequences of three, and of three more after that.

`expected` is Kafka's SaslServerAuthenticator as a table. A request that is neither of SASL nor ApiVersions is refused
in its own way by Apache Kafka, with what the API has for errors; kwire closes the connection at once. Both count as the
end here.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from enum import Enum, auto
from typing import Any, Final

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.metadata import MetadataRequest
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest

from testkit.raw.client import ConnectionClosed, RawClient, decoded_reply, framed, request_frame
from testkit.security.secured import PASSWORDS, PLAIN, Secured

E = ErrorCode
AT_ONCE: Final = 24
TOKEN: Final = b"\0alice\0" + PASSWORDS["alice"].encode()
NEWER: Final = 99

VERSIONS, NEWER_VERSIONS = "versions", "versions in a version that is not served"
HANDSHAKE, OLD_HANDSHAKE, UNKNOWN_MECHANISM = "handshake", "handshake v0", "handshake with an unknown mechanism"
RIGHT, WRONG, BARE = "authenticate", "authenticate with a wrong password", "the bare token"
METADATA = "metadata"
REQUESTS: Final[dict[str, tuple[Any, int]]] = {
    VERSIONS: (ApiVersionsRequest("raw", "1"), 3),
    NEWER_VERSIONS: (ApiVersionsRequest("raw", "1"), 3),
    HANDSHAKE: (SaslHandshakeRequest(PLAIN), 1),
    OLD_HANDSHAKE: (SaslHandshakeRequest(PLAIN), 0),
    UNKNOWN_MECHANISM: (SaslHandshakeRequest("THERE-IS-NONE"), 1),
    RIGHT: (SaslAuthenticateRequest(TOKEN), 2),
    WRONG: (SaslAuthenticateRequest(b"\0alice\0not-hers"), 2),
    METADATA: (MetadataRequest([]), 12),
}
ALL: Final = (*REQUESTS, BARE)
CLOSED: Final = "closed"
"""In place of the error code."""


class State(Enum):
    NEW = auto()
    HAS_VERSIONS = auto()
    EXCHANGING = auto()
    EXCHANGING_BARE = auto()
    KNOWN = auto()


Answer = tuple[ErrorCode | str, State | None]
"""An error code or CLOSED, and the state after it; None: the connection is over."""
OVER: Final[Answer] = (CLOSED, None)
_ENTERING: Final[dict[str, Answer]] = {
    HANDSHAKE: (E.NONE, State.EXCHANGING),
    OLD_HANDSHAKE: (E.NONE, State.EXCHANGING_BARE),
    UNKNOWN_MECHANISM: (E.UNSUPPORTED_SASL_MECHANISM, None),
}
_OUT_OF_TURN: Final = (VERSIONS, NEWER_VERSIONS, HANDSHAKE, OLD_HANDSHAKE, UNKNOWN_MECHANISM)
TABLE: Final[dict[State, dict[str, Answer]]] = {
    State.NEW: {
        VERSIONS: (E.NONE, State.HAS_VERSIONS),
        NEWER_VERSIONS: (E.UNSUPPORTED_VERSION, State.NEW),
        **_ENTERING,
    },
    State.HAS_VERSIONS: _ENTERING,
    State.EXCHANGING: {
        RIGHT: (E.NONE, State.KNOWN),
        WRONG: (E.SASL_AUTHENTICATION_FAILED, None),
        **dict.fromkeys(_OUT_OF_TURN, (E.ILLEGAL_SASL_STATE, None)),
    },
    State.EXCHANGING_BARE: {BARE: (E.NONE, State.KNOWN)},
    State.KNOWN: {
        VERSIONS: (E.NONE, State.KNOWN),
        NEWER_VERSIONS: (E.UNSUPPORTED_VERSION, State.KNOWN),
        METADATA: (E.NONE, State.KNOWN),
        **dict.fromkeys(
            (HANDSHAKE, OLD_HANDSHAKE, UNKNOWN_MECHANISM, RIGHT, WRONG), (E.ILLEGAL_SASL_STATE, State.KNOWN)
        ),
    },
}
"""What is not in it closes the connection without an answer."""
AGAIN: Final[dict[str, Answer]] = {**_ENTERING, UNKNOWN_MECHANISM: OVER}
"""Of a client that is known for some time only, for its first handshake since then (KIP-368)."""


def expected(sequence: tuple[str, ...], *, may_again: bool) -> list[ErrorCode | str]:
    state: State | None = State.NEW
    answers: list[ErrorCode | str] = []
    for step in sequence:
        answer, after = OVER if state is None else TABLE[state].get(step, OVER)
        if state is State.KNOWN and may_again and step in AGAIN:
            answer, after = AGAIN[step]
            may_again = False
        answers.append(answer)
        if answer == CLOSED:
            break
        state = after
    return answers


def answers_to(address: str, sequence: tuple[str, ...]) -> list[ErrorCode | str]:
    with RawClient(address) as client:
        answers: list[ErrorCode | str] = []
        for step in sequence:
            try:
                answers.append(call(client, step))
            except ConnectionClosed:
                answers.append(CLOSED)
            if answers[-1] == CLOSED:
                break
        return answers


def call(client: RawClient, step: str) -> ErrorCode | str:
    if step == BARE:
        client.send(framed(TOKEN))
        assert bytes(client.read_frame()) == b""
        return E.NONE
    request, version = REQUESTS[step]
    frame = bytearray(request_frame(request, version))
    if step == NEWER_VERSIONS:
        frame[6:8] = NEWER.to_bytes(2, "big")
        version = 0
    client.send(frame)
    _, answer = decoded_reply(client.read_frame(), request.api_key, version)
    if step == METADATA:
        return E.NONE if answer.brokers else CLOSED
    return E(answer.error_code)


@pytest.mark.parametrize(
    ("listener", "before", "may_again"),
    [
        ("SASL_PLAINTEXT", (), False),
        ("SASL_PLAINTEXT", (HANDSHAKE, RIGHT), False),
        ("BRIEF", (), True),
        ("BRIEF", (HANDSHAKE, RIGHT), True),
    ],
)
def test_a_request_that_comes_at_another_time_is_refused_as_kafka_refuses_it(
    secured: Secured, listener: str, before: tuple[str, ...], may_again: bool
) -> None:
    sequences = [(*before, *more) for more in itertools.product(ALL, repeat=3)]
    address = secured.address(listener)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answered = dict(zip(sequences, pool.map(lambda it: answers_to(address, it), sequences), strict=True))
    wanted = {sequence: expected(sequence, may_again=may_again) for sequence in sequences}
    differences = {sequence: (answered[sequence], wanted[sequence]) for sequence in sequences}
    assert {sequence: both for sequence, both in differences.items() if both[0] != both[1]} == {}
