from __future__ import annotations

import socket
import subprocess
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest

from devtools import ports


def test_a_port_that_is_taken_is_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind((ports.LOOPBACK, 0))
        listener.listen()
        taken = listener.getsockname()[1]
        free = ports.free_port()
        monkeypatch.setattr(ports, "_waiting", deque([taken, taken, free]))
        assert ports.free_port() == free


def test_threads_side_by_side_never_get_the_same_port() -> None:
    with ThreadPoolExecutor(4) as threads:
        given_out = list(threads.map(lambda _: ports.free_port(), range(3 * ports.BLOCK)))
    assert len(set(given_out)) == len(given_out)


ANOTHER = """
import random
import sys
random.seed(1)  # All try the same blocks in the same order.
from devtools.ports import free_port
print(*[free_port() for _ in range(120)], flush=True)
sys.stdin.read()
"""


def test_processes_side_by_side_never_get_the_same_port() -> None:
    command = [sys.executable, "-c", ANOTHER]
    others = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    given_out: list[int] = []
    for other in others:
        assert other.stdout is not None
        given_out += map(int, other.stdout.readline().split())
    for other in others:
        other.communicate()
    assert len(given_out) == 4 * 120
    assert len(set(given_out)) == len(given_out)


def test_a_machine_without_a_free_port_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_waiting", deque())
    monkeypatch.setattr(ports, "_held", set())
    monkeypatch.setattr(ports, "_bound", lambda port, *, shared, hold: False)
    with pytest.raises(OSError, match="no free port between 15000 and 32000"):
        ports.free_port()
