"""The process that writes the segments of compactions, so that this work does not use the broker's interpreter.

    python -m kwire.logs.cleaner_process   its standard input is a socket, whose other end `segment_writing.py` has

It handles one job at a time, and ends when the broker closes the socket or dies in any way. Sealed segments do not
change, and new ones belong to this process until it has answered: it shares only files with the broker.

    {"most_bytes_per_s": 1e9}            log.cleaner.io.max.bytes.per.second, also while it works
    {"clean": a Plan}                    with the first byte comes a descriptor of the log's folder
    {"written": a Written}               the answer,
    {"failed": [kind, ...]}              or the error

**The folder** becomes the working directory, by its descriptor. So the process never writes into another folder, even
if the topic is deleted or replaced meanwhile.

**A restarted broker** must not run while this process still works for the one that died. So this process holds a lock
in the log dir while it works, and after taking the lock checks that its broker is alive. A new broker takes the log dir
after the old one has died, and waits until the lock is free (`LogDir.open`).
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections import deque
from typing import Any

import attrs
from kwire_protocol.records import InvalidBatch
from kwire_storage import names
from kwire_storage.compaction.writing import AbandonedError, Plan, Written, write
from kwire_storage.disk.files import RealDisk
from kwire_storage.errors import CorruptLogError

NICENESS = 10
"""The niceness of the process: it gets a tenth of a core that the broker needs, and progresses on busy cores."""

WORK_S = 0.002
"""The working time after which it checks for messages of the broker."""


class BrokerGone(Exception):
    """The broker has died, or has closed the socket."""


@attrs.define(eq=False)
class _Broker:
    """The connection to the broker."""

    _socket: socket.socket
    most_bytes_per_s: float = 1.0
    _received: bytearray = attrs.field(factory=bytearray)
    _plans: deque[Plan] = attrs.field(factory=deque)
    _folders: deque[int] = attrs.field(factory=deque)

    def next_job(self) -> tuple[Plan, int]:
        """Returns a plan, and the descriptor of its folder. Raises BrokerGone."""
        while not self._plans:
            self.listen(None)
        return self._plans.popleft(), self._folders.popleft()

    def listen(self, timeout_s: float | None) -> None:
        """Receives from the broker; waits up to this time for data. Raises BrokerGone."""
        readable, _, _ = select.select([self._socket], [], [], timeout_s)
        if not readable:
            return
        try:
            data, folders, _, _ = socket.recv_fds(self._socket, 1 << 16, 4)
        except ConnectionError:
            raise BrokerGone from None
        if not data:
            raise BrokerGone
        self._folders.extend(folders)
        self._received += data
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            message = json.loads(line)
            self.most_bytes_per_s = message.get("most_bytes_per_s", self.most_bytes_per_s)
            if "clean" in message:
                self._plans.append(Plan.from_fields(message["clean"]))

    def send(self, answer: dict[str, Any]) -> None:
        try:
            self._socket.sendall(json.dumps(answer, separators=(",", ":")).encode() + b"\n")
        except ConnectionError:
            raise BrokerGone from None


def main() -> None:
    os.nice(NICENESS)
    broker = _Broker(socket.socket(fileno=os.dup(0)))
    try:
        while True:
            broker.send(_do(broker, *broker.next_job()))
    except BrokerGone:
        pass


def _do(broker: _Broker, plan: Plan, folder: int) -> dict[str, Any]:
    """Carries out a job, and returns the answer."""
    try:
        os.fchdir(folder)
        os.close(folder)
        lock = RealDisk("..").lock(names.CLEANER_LOCK)
        try:
            return {"written": _write(broker, attrs.evolve(plan, folder=".")).to_fields()}
        finally:
            lock.release()
    except AbandonedError:
        return {"failed": ["abandoned"]}
    except CorruptLogError as error:
        return {"failed": ["corrupt", str(error)]}
    except InvalidBatch as error:
        return {"failed": ["invalid", int(error.code), error.message]}
    except OSError as error:
        return {"failed": ["refused", error.errno, error.strerror, os.path.basename(error.filename or "")]}  # noqa: PTH119
    finally:
        os.chdir("/")


def _write(broker: _Broker, plan: Plan) -> Written:
    steps = write(RealDisk("."), plan)
    began_s, size = time.monotonic(), 0
    broker.listen(0)
    while True:
        try:
            size += next(steps)
        except StopIteration as end:
            written: Written = end.value
            return written
        if max(time.monotonic() - began_s, size / broker.most_bytes_per_s) >= WORK_S:
            broker.listen(0)
            while (left_s := began_s + size / broker.most_bytes_per_s - time.monotonic()) > 0:
                broker.listen(left_s)
            began_s, size = time.monotonic(), 0


if __name__ == "__main__":
    main()
