"""The processor's assumptions about the system's own poll."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kwire.runtime.poll import READ, WRITE, Poll, new_poll


@pytest.fixture
def poll() -> Iterator[Poll]:
    made = new_poll()
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
