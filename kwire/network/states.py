"""The states of a connection, and what leads from one to the other.

A connection does one thing after the other: it receives, answers, sends. It is held up by a handler that waits for
something, by a peer that does not take its replies, by its own turn being over, or by two of these at once. While it is
held up it receives nothing; what is in its buffer waits there.

    state             listens to   what it is
    RECEIVING         input        Nothing holds it up.
    YIELDING          input        Its turn was over before its frames were. It goes on in the next.
    WAITING           input        A handler waits. Input may end that wait: see `Slot.ends_on_input`.
    MUTED             nothing      A handler waits, and the peer has said more or hung up. (Kafka mutes the channel of
                                   each request until it is answered.)
    BLOCKED           room         The peer does not take its replies.
    BLOCKED_YIELDING  room         The same, and its turn was over.
    BLOCKED_WAITING   room         The same, and a handler waits. When that goes on, it answers what is there already.
    ENDING            room         The peer has done wrong. What was asked before is still to be sent; then it closes.
    CLOSED            nothing      For good. `close` leads here from any state, and nothing leads away.

What is not in TRANSITIONS is a bug: it raises KeyError, and the connection is closed as after any other bug.

More states have room here. A handshake is one that listens to what its transport waits for, before RECEIVING; a client
that was told to slow down is one that listens to nothing, until a time; before authentication it is RECEIVING, with
another table of APIs.
"""

from __future__ import annotations

import attrs

from kwire.network.poll import NOTHING, READ, WRITE


@attrs.frozen(eq=False)
class State:
    name: str
    listens_to: int
    """READ, WRITE or NOTHING."""


@attrs.frozen(eq=False)
class Event:
    name: str


RECEIVING = State("RECEIVING", READ)
YIELDING = State("YIELDING", READ)
WAITING = State("WAITING", READ)
MUTED = State("MUTED", NOTHING)
BLOCKED = State("BLOCKED", WRITE)
BLOCKED_YIELDING = State("BLOCKED_YIELDING", WRITE)
BLOCKED_WAITING = State("BLOCKED_WAITING", WRITE)
ENDING = State("ENDING", WRITE)
CLOSED = State("CLOSED", NOTHING)

HANDLER_WAITS = Event("HANDLER_WAITS")
HANDLER_GOES_ON = Event("HANDLER_GOES_ON")
TURN_IS_OVER = Event("TURN_IS_OVER")
NEXT_TURN = Event("NEXT_TURN")
SOCKET_IS_FULL = Event("SOCKET_IS_FULL")
SOCKET_HAS_ROOM = Event("SOCKET_HAS_ROOM")
"""The socket has taken everything that was to be sent."""
MORE_INPUT = Event("MORE_INPUT")
"""While a handler waits that cannot be told of it."""
PEER_ERRED = Event("PEER_ERRED")

TRANSITIONS: dict[State, dict[Event, State]] = {
    RECEIVING: {HANDLER_WAITS: WAITING, TURN_IS_OVER: YIELDING, SOCKET_IS_FULL: BLOCKED},
    YIELDING: {NEXT_TURN: RECEIVING, SOCKET_IS_FULL: BLOCKED_YIELDING},
    WAITING: {HANDLER_GOES_ON: RECEIVING, MORE_INPUT: MUTED, SOCKET_IS_FULL: BLOCKED_WAITING},
    MUTED: {HANDLER_GOES_ON: RECEIVING},
    BLOCKED: {
        HANDLER_WAITS: BLOCKED_WAITING,
        TURN_IS_OVER: BLOCKED_YIELDING,
        SOCKET_HAS_ROOM: RECEIVING,
        PEER_ERRED: ENDING,
    },
    BLOCKED_YIELDING: {NEXT_TURN: BLOCKED, SOCKET_HAS_ROOM: YIELDING},
    BLOCKED_WAITING: {HANDLER_GOES_ON: BLOCKED, SOCKET_HAS_ROOM: WAITING},
    ENDING: {},
    CLOSED: {},
}
