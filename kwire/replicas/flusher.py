"""Runs the flushes that the partitions' gates request: fsync in worker threads, everything else in the loop.

While the broker runs, only the flusher flushes a partition's log. One flush of a log runs at a time. Records that are
appended meanwhile wait for the next one, so the number of fsyncs depends on the speed of the disk, not on the number of
requests. Flushes of several logs run concurrently: a file system commits pending fsyncs together.

A failed fsync is final. Linux reports it once and drops the pages, so the next fsync would succeed. The folder goes out
of service until the next start, when recovery reads what the disk really has.
"""

from __future__ import annotations

import heapq
import logging
import math
from itertools import count

import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_storage.errors import CorruptLogError, is_passing

from kwire.replicas.flush_gate import FlushGate
from kwire.runtime import workers
from kwire.runtime.service import Service
from kwire.runtime.workers import Worker

log = logging.getLogger(__name__)

FLUSH_THREADS = 32
"""The maximum number of threads that flush. They wait for the disk; more of them at once do not help."""

RETRY_MS = 1_000
"""The time after which a flush that failed before its fsync (no room for a checkpoint, say) is retried."""


class Flusher(Service):
    """The `FlushDriver` of a broker; see the module."""

    def __init__(self) -> None:
        # Each gate once, in the order of the requests.
        self._requested: dict[FlushGate, None] = {}
        self._running: dict[FlushGate, trio.Event] = {}
        """The event is set when the flush has ended."""
        self._delayed: list[tuple[int, FlushGate]] = []
        self._later: list[tuple[float, int, FlushGate]] = []
        self._due_s: dict[FlushGate, float] = {}
        """The time at which each gate is due; other entries in `_later` are out of date."""
        self._reported: set[FlushGate] = set()
        """The gates whose failure was logged, and whose flush is retried."""
        self._numbers = count()
        self._wake = trio.Event()
        self._slots = trio.CapacityLimiter(FLUSH_THREADS)
        self._threads = trio.CapacityLimiter(FLUSH_THREADS)

    def flush_soon(self, gate: FlushGate) -> None:
        """See `FlushDriver`."""
        self._requested[gate] = None
        if gate not in self._running:
            self._wake.set()

    def flush_within(self, gate: FlushGate, delay_ms: int) -> None:
        """See `FlushDriver`."""
        self._delayed.append((delay_ms, gate))
        self._wake.set()

    async def run(self) -> None:
        """Runs until cancelled, then waits for flushes that have begun."""
        async with trio.open_nursery() as nursery:
            while True:
                self._wake = trio.Event()
                self._take_due()
                for gate in [gate for gate in self._requested if gate not in self._running]:
                    self._running[gate] = trio.Event()
                    nursery.start_soon(self._flush_requested, gate)
                with trio.CancelScope(deadline=self._later[0][0] if self._later else math.inf):
                    await self._wake.wait()

    def _take_due(self) -> None:
        now = trio.current_time()
        delayed, self._delayed = self._delayed, []
        for delay_ms, gate in delayed:
            due = now + delay_ms / 1000
            if due < self._due_s.get(gate, math.inf):
                self._due_s[gate] = due
                heapq.heappush(self._later, (due, next(self._numbers), gate))
        while self._later and self._later[0][0] <= now:
            due, _, gate = heapq.heappop(self._later)
            if self._due_s.get(gate) == due:
                del self._due_s[gate]
                self._requested[gate] = None

    async def flush(self, gate: FlushGate) -> None:
        """Flushes everything appended so far, after the running flush, if there is one.

        Returns when the flush is done, has failed (which is handled as for any other flush) or the gate is closed. The
        log's `recovery_point` shows the result.
        """
        while (running := self._running.get(gate)) is not None:
            await running.wait()
        self._running[gate] = trio.Event()
        try:
            await self._flush_once(gate)
        finally:
            self._ended(gate)

    async def _flush_requested(self, gate: FlushGate) -> None:
        try:
            while gate in self._requested:
                del self._requested[gate]
                await self._flush_once(gate)
        finally:
            self._ended(gate)

    def _ended(self, gate: FlushGate) -> None:
        self._running.pop(gate).set()
        if gate in self._requested:
            self._wake.set()

    async def _flush_once(self, gate: FlushGate) -> None:
        # Call `begin` only now: a flush holds open files, and a thousand logs may be waiting.
        async with self._slots:
            if gate.closed:
                self._reported.discard(gate)
                return
            try:
                flush = gate.begin()
                try:
                    if flush.has_work:
                        await workers.run(Worker.FLUSH, flush.run, limiter=self._threads)
                except BaseException:
                    gate.give_up(flush)
                    raise
            except (OSError, CorruptLogError) as error:
                self._failed(gate, error)
            else:
                self._reported.discard(gate)
                gate.finish(flush)

    def _failed(self, gate: FlushGate, error: OSError | CorruptLogError) -> None:
        if gate.closed:
            # Its topic was deleted meanwhile, and its files disappeared during the flush.
            return
        # Fail the flush first: failing the log closes the gate, with a less specific error.
        gate.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot flush: {error}"))
        if isinstance(error, OSError) and not is_passing(error):
            gate.log.fail(error)
        else:
            if gate not in self._reported:
                self._reported.add(gate)
                log.error("cannot flush %s: %s; trying again every %d ms", gate.log.path, error, RETRY_MS)
            self.flush_within(gate, RETRY_MS)
