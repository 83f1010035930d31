"""The bare limits: what sockets and files alone allow on these cores, without a protocol and without a broker.

    sink-large   the frames of raw-produce: receive, CRC-32C over all of it, append to a file, answer
    sink-small   the frames of raw-small: the same
    sendfile     the frames of raw-fetch: each answered with 1 MiB of a file in the page cache, by sendfile

Frames, sizes of answers and load are those of the scenarios, so that a broker's cost can be given as a share: the
limit's CPU for a unit of work over the broker's. 100 % would be a broker that costs nothing beside the system calls.
The server is Python (bare_server.py); a broker in another language may pass it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bare_server import ANSWER_BYTES
from benchmarks.bench import LEAD_S, Figures, work
from benchmarks.brokers.single import Lab
from benchmarks.load.answers import check_nothing
from benchmarks.load.replay import Replayer, connect
from benchmarks.load.requests import fetch, numbered
from benchmarks.machine import Meter, pinned
from devtools.ports import free_port

LIMITS = ("sink-large", "sink-small", "sendfile")

_FILE_MIB = 512
_START_TIMEOUT_S = 30.0


def measure(limit: str, lab: Lab, *, run_s: float) -> Figures:
    """Starts the bare server on the broker's cores, measures it once, and ends it."""
    from benchmarks.scenarios.raw import TAPE, large_produce, small_produce

    connections, depth = (8, 8) if limit == "sink-small" else (4, 2)
    match limit:
        case "sink-large":
            requests = large_produce()
        case "sink-small":
            requests = small_produce()
        case _:
            requests = numbered([fetch("t", 0, 0)] * TAPE)
    with tempfile.TemporaryDirectory(prefix="kwire-bench-limit-", dir=lab.data_root) as folder:
        path = Path(folder, "file")
        if limit == "sendfile":
            path.write_bytes(os.urandom(ANSWER_BYTES["sendfile"]) * _FILE_MIB)
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.bare_server", limit, str(port), str(path)]
        with pinned(lab.broker_cores):
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=Path(__file__).parent.parent)
        sockets: list[socket.socket] = []
        try:
            sockets = _connect(server, port, connections)
            replayer = Replayer(sockets, requests, check_nothing, depth)
            try:
                played = replayer.measure(Meter([server.pid], lab.broker_cores), lead_s=min(LEAD_S, run_s), run_s=run_s)
            finally:
                replayer.close()
        finally:
            for sock in sockets:
                sock.close()
            server.terminate()
            server.wait()
    sizes = {"sink-large": played.requests * len(requests[0]), "sendfile": played.bytes_in}
    return work(played.usage, requests=played.requests, size_bytes=sizes.get(limit, 0))


def _connect(server: subprocess.Popen[bytes], port: int, count: int) -> list[socket.socket]:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            return connect(port, count)
        except ConnectionRefusedError:
            if server.poll() is not None or time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)
