"""The states of a connection, and the events that lead from one to another.

A connection does one thing at a time: it receives, answers, sends. Three things can block it, also two at once: a
handler that waits, a peer that does not read its replies, and the end of its turn. While it is blocked it receives
nothing, and its input stays in its buffer. A fourth blocks it alone: there is no memory for the rest of a request.

    state             listens to   description
    SHAKING           input        The transport's handshake is not complete (TLS).
    SHAKING_BLOCKED   room         The same, and the peer does not read the bytes of the handshake.
    RECEIVING         input        Nothing blocks it.
    YIELDING          input        Its turn ended before its frames were done. It continues in the next turn.
    WAITING           input        A handler waits. Input may end that wait: see `Future.ends_on_input`.
    MUTED             nothing      A handler waits, and the peer has sent more or closed. (Kafka mutes the channel of
                                   each request until it is answered.)
    STARVED           nothing      Incomplete requests use all of queued.max.request.bytes. It continues
                                   when there is memory for it.
    BLOCKED           room         The peer does not read its replies.
    BLOCKED_YIELDING  room         The same, and its turn has ended.
    BLOCKED_WAITING   room         The same, and a handler waits. When it resumes, it answers the frames in the buffer.
    ENDING            room         The peer made an error, or was refused. Unsent replies are still sent; then the
                                   connection closes.
    CLOSED            nothing      Final. `close` leads here from any state.

An event that TRANSITIONS lacks is a bug: it raises KeyError, and the connection is closed as after any other bug.

A client that has exceeded a quota is answered, and then its handler waits on its behalf (`throttling.py`).

In addition, a connection has a login, which selects the table of APIs by which its requests are decoded:

    login              accepts
    AUTHENTICATED      everything: on a listener without SASL, or after a login that does not expire
    EXPIRING           everything until the session expires; after that, a SaslHandshake
    UNAUTHENTICATED    the requests of an authentication (`authentication.py`)
    REAUTHENTICATING   the same

While any client has a quota, AUTHENTICATED and EXPIRING decode by `throttling.py`.
"""

from __future__ import annotations

import attrs

from kwire.runtime.poll import NOTHING, READ, WRITE


@attrs.frozen(eq=False)
class State:
    name: str
    listens_to: int
    """The event that it waits for: READ, WRITE or NOTHING."""


@attrs.frozen(eq=False)
class Login:
    name: str
    accepts_all: bool
    """True if it accepts all requests, not only those of an authentication."""


@attrs.frozen(eq=False)
class Event:
    name: str


SHAKING = State("SHAKING", READ)
SHAKING_BLOCKED = State("SHAKING_BLOCKED", WRITE)
RECEIVING = State("RECEIVING", READ)
YIELDING = State("YIELDING", READ)
WAITING = State("WAITING", READ)
MUTED = State("MUTED", NOTHING)
STARVED = State("STARVED", NOTHING)
BLOCKED = State("BLOCKED", WRITE)
BLOCKED_YIELDING = State("BLOCKED_YIELDING", WRITE)
BLOCKED_WAITING = State("BLOCKED_WAITING", WRITE)
ENDING = State("ENDING", WRITE)
CLOSED = State("CLOSED", NOTHING)

SHAKE_NEEDS_ROOM = Event("SHAKE_NEEDS_ROOM")
SHAKE_NEEDS_INPUT = Event("SHAKE_NEEDS_INPUT")
SHAKEN = Event("SHAKEN")
"""The transport's handshake is complete."""
HANDLER_WAITS = Event("HANDLER_WAITS")
HANDLER_RESUMES = Event("HANDLER_RESUMES")
TURN_IS_OVER = Event("TURN_IS_OVER")
NEXT_TURN = Event("NEXT_TURN")
SOCKET_IS_FULL = Event("SOCKET_IS_FULL")
SOCKET_HAS_ROOM = Event("SOCKET_HAS_ROOM")
"""The socket has taken all replies."""
MORE_INPUT = Event("MORE_INPUT")
"""Input while a handler waits that input does not end."""
MEMORY_IS_FULL = Event("MEMORY_IS_FULL")
MEMORY_IS_FREE = Event("MEMORY_IS_FREE")
PEER_ERRED = Event("PEER_ERRED")

AUTHENTICATED = Login("AUTHENTICATED", accepts_all=True)
EXPIRING = Login("EXPIRING", accepts_all=True)
UNAUTHENTICATED = Login("UNAUTHENTICATED", accepts_all=False)
REAUTHENTICATING = Login("REAUTHENTICATING", accepts_all=False)

LOGGED_IN = Event("LOGGED_IN")
LOGGED_IN_FOR_A_TIME = Event("LOGGED_IN_FOR_A_TIME")
LOGS_IN_AGAIN = Event("LOGS_IN_AGAIN")
"""The peer, which is authenticated, begins another authentication (KIP-368)."""

TRANSITIONS: dict[State, dict[Event, State]] = {
    SHAKING: {SHAKE_NEEDS_ROOM: SHAKING_BLOCKED, SHAKE_NEEDS_INPUT: SHAKING, SHAKEN: RECEIVING},
    SHAKING_BLOCKED: {SHAKE_NEEDS_ROOM: SHAKING_BLOCKED, SHAKE_NEEDS_INPUT: SHAKING, SHAKEN: RECEIVING},
    RECEIVING: {
        HANDLER_WAITS: WAITING,
        TURN_IS_OVER: YIELDING,
        SOCKET_IS_FULL: BLOCKED,
        MEMORY_IS_FULL: STARVED,
    },
    STARVED: {MEMORY_IS_FREE: RECEIVING},
    YIELDING: {NEXT_TURN: RECEIVING, SOCKET_IS_FULL: BLOCKED_YIELDING},
    WAITING: {HANDLER_RESUMES: RECEIVING, MORE_INPUT: MUTED, SOCKET_IS_FULL: BLOCKED_WAITING},
    MUTED: {HANDLER_RESUMES: RECEIVING},
    BLOCKED: {
        HANDLER_WAITS: BLOCKED_WAITING,
        TURN_IS_OVER: BLOCKED_YIELDING,
        SOCKET_HAS_ROOM: RECEIVING,
        PEER_ERRED: ENDING,
    },
    BLOCKED_YIELDING: {NEXT_TURN: BLOCKED, SOCKET_HAS_ROOM: YIELDING},
    BLOCKED_WAITING: {HANDLER_RESUMES: BLOCKED, SOCKET_HAS_ROOM: WAITING},
    ENDING: {},
    CLOSED: {},
}

LOGINS: dict[Login, dict[Event, Login]] = {
    AUTHENTICATED: {LOGS_IN_AGAIN: REAUTHENTICATING},
    EXPIRING: {LOGS_IN_AGAIN: REAUTHENTICATING},
    UNAUTHENTICATED: {LOGGED_IN: AUTHENTICATED, LOGGED_IN_FOR_A_TIME: EXPIRING},
    REAUTHENTICATING: {LOGGED_IN: AUTHENTICATED, LOGGED_IN_FOR_A_TIME: EXPIRING},
}
