from __future__ import annotations

import random
import socket

import pytest

from devtools import ports


def test_a_port_that_is_taken_is_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind((ports.LOOPBACK, 0))
        listener.listen()
        taken = listener.getsockname()[1]
        free = ports.free_port()
        drawn = iter([taken, taken, free])
        monkeypatch.setattr(random, "randint", lambda first, last: next(drawn))
        assert ports.free_port() == free
