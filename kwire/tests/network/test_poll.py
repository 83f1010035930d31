"""Both ways to ask which sockets are ready say the same."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterator

import pytest

from kwire.network.poll import READ, WRITE, Poll, SelectorPoll, new_poll


@pytest.fixture(params=[new_poll, lambda: SelectorPoll(selectors.DefaultSelector())], ids=["usual", "selectors"])
def poll(request: pytest.FixtureRequest) -> Iterator[Poll]:
    make: Callable[[], Poll] = request.param
    made = make()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    yield near, far
    near.close()
    far.close()


def test_a_socket_is_ready_for_what_it_is_watched_for(poll: Poll, pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    fd = near.fileno()
    poll.register(fd, READ)
    assert poll.poll(0, 9) == []
    far.send(b"x")
    assert poll.poll(0, 9) == [(fd, READ)]
    assert poll.poll(0, 9) == [(fd, READ)], "as long as nobody reads it"
    poll.modify(fd, WRITE)
    assert poll.poll(0, 9) == [(fd, WRITE)]
    poll.unregister(fd)
    assert poll.poll(0, 9) == []


def test_a_peer_that_hung_up_is_something_to_read(poll: Poll, pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    poll.register(near.fileno(), READ)
    far.close()
    ((fd, mask),) = poll.poll(0, 9)
    assert fd == near.fileno()
    assert mask & READ


def test_its_descriptor_can_be_read_while_a_socket_is_ready(
    poll: Poll, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    poll.register(near.fileno(), READ)
    outer = new_poll()
    outer.register(poll.fileno(), READ)
    assert outer.poll(0, 9) == []
    far.send(b"x")
    assert outer.poll(0, 9) == [(poll.fileno(), READ)]
    near.recv(1)
    assert outer.poll(0, 9) == []
    outer.close()
