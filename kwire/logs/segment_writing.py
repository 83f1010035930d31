"""Writes the segments of a compaction, in a separate process or in a worker thread.

A separate process competes with the broker only for CPU. It is started for the first job and stopped when it has been
idle for a while (`CleanerProcess`). Another process cannot reach a disk in memory, so there a worker thread writes. Its
pauses are as long as its work, because producers need the interpreter, too.

Both take the plan and return `Written`, and touch no state of the event loop.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import attrs
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.records import InvalidBatch
from kwire_storage.compaction.writing import AbandonedError, Plan, Written, write
from kwire_storage.disk.files import Disk
from kwire_storage.errors import CorruptLogError

from kwire.runtime import workers
from kwire.runtime.workers import Worker

END_TIMEOUT_S = 10.0
"""The time after which a process that must end, but may be syncing, is killed."""

WORK_S = 0.002
"""The time that a thread works before a pause, which is as long."""

MOST_SLEEP_S = 0.1
"""The longest time until a thread that pauses detects that it must end."""

SWITCH_INTERVAL_S = 0.0001
"""The longest time that others wait for the interpreter while a thread works. Python's default of 5 ms would add to the
latency of every request."""

Rate = Callable[[], float]
"""Returns the current log.cleaner.io.max.bytes.per.second."""


class CleanerDiedError(Exception):
    """The process could not be started, or ended during its work; the message has the details."""


@attrs.define(eq=False)
class CleanerProcess:
    """The broker's end of `cleaner_process.py`. One job at a time."""

    _most_bytes_per_s: Rate
    _process: subprocess.Popen[bytes] | None = None
    _socket: trio.socket.SocketType | None = None
    _sent_rate: float | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    async def write(self, plan: Plan, folder: str) -> Written:
        """Carries out the plan in `folder`, the log's folder. If it is cancelled, the process is killed.

        The caller must have checked that the folder is the log's. Raises as `compaction_writing.write`, and
        CleanerDiedError.
        """
        # Before anything is awaited: the log may lose its folder, and another log may get the name.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        is_well = False
        try:
            if self._process is None:
                await self._start()
            await self._send(plan, descriptor)
            answer = await self._receive()
            is_well = True
        except ConnectionError as error:
            raise CleanerDiedError(await self._wait_for_exit()) from error
        finally:
            os.close(descriptor)
            if not is_well:
                await self._kill()
        if answer is None:
            raise CleanerDiedError(await self._wait_for_exit())
        if "written" in answer:
            return Written.from_fields(answer["written"])
        raise _failure(plan, *answer["failed"])

    def follow_rate(self) -> None:
        """Sends the rate to the process, if it has changed."""
        rate = self._most_bytes_per_s()
        if self._socket is not None and self._sent_rate not in (None, rate):
            # While it works it reads continually, so there is room for a line.
            with suppress(OSError):
                os.write(self._socket.fileno(), _line({"most_bytes_per_s": rate}))
            self._sent_rate = rate

    async def end(self) -> None:
        """Ends the process, and waits for it."""
        if self._process is not None:
            with trio.CancelScope(shield=True):
                await self._wait_for_exit()

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._process = await workers.run(Worker.CLEANER, partial(_spawn, theirs))
        except OSError as error:
            ours.close()
            raise CleanerDiedError(f"it could not be started: {error}") from error
        finally:
            theirs.close()
        self._socket = trio.socket.from_stdlib_socket(ours)

    async def _send(self, plan: Plan, descriptor: int) -> None:
        assert self._socket is not None
        self._sent_rate = None
        rate = self._most_bytes_per_s()
        job = _line({"most_bytes_per_s": rate}) + _line({"clean": plan.to_fields()})
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))
        sent = await self._socket.sendmsg([job], [rights])
        while sent < len(job):
            sent += await self._socket.send(job[sent:])
        self._sent_rate = rate
        self.follow_rate()

    async def _receive(self) -> dict[str, Any] | None:
        """Returns the answer; None if the process has ended."""
        assert self._socket is not None
        received = bytearray()
        while not received.endswith(b"\n"):
            data = await self._socket.recv(1 << 16)
            if not data:
                return None
            received += data
        answer: dict[str, Any] = json.loads(received)
        return answer

    async def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            with trio.CancelScope(shield=True):
                await self._wait_for_exit()

    async def _wait_for_exit(self) -> str:
        """Waits for the process to end, and returns its exit status and error output as text."""
        process, self._process = self._process, None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if process is None:
            return "it was ended"
        return await workers.run(Worker.CLEANER, _wait, process)


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    # The process finds the modules in the same places as this one.
    path = os.pathsep.join(it for it in sys.path if it)
    return subprocess.Popen(
        [sys.executable, "-m", "kwire.logs.cleaner_process"],
        stdin=theirs.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        # Ctrl-C is for the broker. A new session would do as well, but if the system shares the cores by sessions
        # (autogroup), the niceness of this process would have no effect on the broker.
        process_group=0,
    )


def _wait(process: subprocess.Popen[bytes]) -> str:
    try:
        _, stderr = process.communicate(timeout=END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        _, stderr = process.communicate()
    how = f"it ended with exit code {process.returncode}"
    if process.returncode < 0:
        how = f"it was killed by signal {-process.returncode}"
    return f"{how}: {stderr.decode(errors='replace').strip()}" if stderr else how


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _failure(plan: Plan, kind: str, *details: Any) -> Exception:
    match kind, details:
        case "abandoned", []:
            return AbandonedError()
        case "corrupt", [message]:
            return CorruptLogError(message)
        case "invalid", [code, message]:
            return InvalidBatch(ErrorCode(code), message)
        case "refused", [number, message, name]:
            return OSError(number, message, f"{plan.folder}/{name}")
    raise AssertionError((kind, details))


async def write_in_thread(disk: Disk, plan: Plan, most_bytes_per_s: Rate) -> Written:
    """Does the same as `CleanerProcess.write`, in a worker thread. A cancellation stops the thread and waits for it."""
    ending = _Ending()

    async def stop_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ending.has_come = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_when_cancelled)
        result = await workers.run(Worker.CLEANER, _write, disk, plan, most_bytes_per_s, ending)
        nursery.cancel_scope.cancel()
    if isinstance(result, Exception):
        raise result
    return result


@attrs.define
class _Ending:
    has_come: bool = False


def _write(disk: Disk, plan: Plan, most_bytes_per_s: Rate, ending: _Ending) -> Written | Exception:
    """Writes the segments. Returns an error, since one raised in a nursery becomes an exception group."""
    steps = write(disk, plan)
    began_s, size = time.monotonic(), 0
    try:
        with _short_switch_interval():
            while not ending.has_come:
                size += next(steps)
                worked_s = time.monotonic() - began_s
                least_s = size / most_bytes_per_s()
                if max(worked_s, least_s) >= WORK_S:
                    _sleep(ending, max(worked_s, least_s - worked_s))
                    began_s, size = time.monotonic(), 0
    except StopIteration as end:
        written: Written = end.value
        return written
    except (AbandonedError, CorruptLogError, InvalidBatch, OSError) as error:
        return error
    steps.close()
    return AbandonedError()


def _sleep(ending: _Ending, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not ending.has_come and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, MOST_SLEEP_S))


@contextmanager
def _short_switch_interval() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
