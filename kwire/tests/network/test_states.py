"""The table of a connection's states, as a whole; its behaviour in each is in the tests beside this."""

from __future__ import annotations

import pytest

from kwire.network.states import (
    CLOSED,
    ENDING,
    HANDLER_RESUMES,
    HANDLER_WAITS,
    MEMORY_IS_FREE,
    NEXT_TURN,
    RECEIVING,
    SHAKING,
    SHAKING_BLOCKED,
    SOCKET_HAS_ROOM,
    SOCKET_IS_FULL,
    TRANSITIONS,
    TURN_IS_OVER,
    Event,
    State,
)
from kwire.runtime.poll import NOTHING, READ, WRITE


def after(state: State, *events: Event) -> State:
    for event in events:
        state = TRANSITIONS[state][event]
    return state


def reachable(state: State) -> set[State]:
    found, new = set[State](), {state}
    while new:
        found |= new
        new = {after for it in new for after in TRANSITIONS[it].values()} - found
    return found


def test_every_state_but_the_last_is_reached_by_what_happens() -> None:
    assert reachable(SHAKING) == TRANSITIONS.keys() - {CLOSED}
    assert reachable(RECEIVING) == TRANSITIONS.keys() - {CLOSED, SHAKING, SHAKING_BLOCKED}


def test_whatever_holds_a_connection_up_it_comes_to_receive_again_unless_it_is_to_end() -> None:
    for state in TRANSITIONS.keys() - {ENDING, CLOSED}:
        assert RECEIVING in reachable(state)
    assert reachable(ENDING) == {ENDING}


def test_a_full_socket_is_left_to_where_it_was_met() -> None:
    full = [state for state, events in TRANSITIONS.items() if SOCKET_IS_FULL in events]
    assert len(full) == 3
    for state in full:
        assert state.listens_to == READ
        assert after(state, SOCKET_IS_FULL).listens_to == WRITE
        assert after(state, SOCKET_IS_FULL, SOCKET_HAS_ROOM) is state


@pytest.mark.parametrize(("begins", "ends"), [(HANDLER_WAITS, HANDLER_RESUMES), (TURN_IS_OVER, NEXT_TURN)])
def test_a_full_socket_and_another_delay_end_in_any_order(begins: Event, ends: Event) -> None:
    both = after(RECEIVING, begins, SOCKET_IS_FULL)
    assert both is after(RECEIVING, SOCKET_IS_FULL, begins)
    assert after(both, ends, SOCKET_HAS_ROOM) is after(both, SOCKET_HAS_ROOM, ends) is RECEIVING


def test_nothing_is_listened_to_only_while_a_handler_or_memory_is_waited_for() -> None:
    for state in TRANSITIONS.keys() - {CLOSED}:
        assert state.listens_to != NOTHING or TRANSITIONS[state].keys() & {HANDLER_RESUMES, MEMORY_IS_FREE}
