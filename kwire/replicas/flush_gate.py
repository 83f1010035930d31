"""The flushes of one partition's log: when one is due, and which records wait for it. A state machine.

Three things request a flush: `flush.messages` (this many unflushed records), `flush.ms` (an unflushed record this old),
and a full segment. Appends wait only for the first. As in Kafka, whose append flushes before it returns, the append
that reaches `flush.messages` is neither acknowledged nor readable before it is durable. Here it does not block other
appends: they continue while one flush runs, and all of them share the next one (group commit).

`kwire.replicas.flusher` runs the flushes. Only `Flush.run` runs in a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs
from kwire_protocol.kafka_error import KafkaError
from kwire_storage.config import NEVER
from kwire_storage.errors import StorageError
from kwire_storage.log.durability import Flush

from kwire.replicas.partition_log import PartitionLog
from kwire.runtime.callbacks import ignore


class FlushDriver(Protocol):
    """Runs the flushes: calls `begin`, runs what it returns, and calls `finish`, or `give_up` and `fail`."""

    def flush_soon(self, gate: FlushGate) -> None:
        """Requests a flush. Another call before it begins changes nothing; one during a flush requests the next one."""

    def flush_within(self, gate: FlushGate, delay_ms: int) -> None:
        """Does the same as `flush_soon`, after this many ms."""


@attrs.define(eq=False)
class FlushGate:
    """`trigger_messages` is the number of unflushed records at which an append must call `reached`.

    `held_from` is the first offset that waits for a flush; NEVER if none does.
    """

    log: PartitionLog
    driver: FlushDriver
    on_released: Callable[[], None]
    """Called when fewer records are held than before."""
    on_failed: Callable[[KafkaError], None]
    """Called with the reason why held records stay held: it is unknown which of them a power cut would leave."""
    held_from: int = NEVER
    trigger_messages: int = attrs.field(init=False)
    closed: bool = False
    """True if the log is not flushed any more."""
    _is_timed: bool = False
    """True while flush.ms runs for the oldest record that no flush covers."""

    def __attrs_post_init__(self) -> None:
        self.log.on_roll = self._rolled
        self.set_trigger()

    def set_trigger(self) -> None:
        """Reads the settings again."""
        config = self.log.config
        starts_clock = config.flush_ms != NEVER and not self._is_timed
        self.trigger_messages = 1 if starts_clock else config.flush_messages

    def reached(self, base_offset: int) -> None:
        """Handles the append at `base_offset`, which brought the number of unflushed records to `trigger_messages`."""
        log = self.log
        if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            self.held_from = min(self.held_from, base_offset)
            self.driver.flush_soon(self)
        else:
            self._is_timed = True
            self.driver.flush_within(self, log.config.flush_ms)
        self.set_trigger()

    # Calls of the driver

    def begin(self) -> Flush:
        """Returns the flush to run now. Raises StorageError."""
        log = self.log
        if log.failed is not None:
            raise StorageError.of(log.failed, log.path)
        # Records appended from now on may not be part of it, so `flush.ms` starts again for them.
        self._is_timed = False
        self.set_trigger()
        return log.begin_flush()

    def finish(self, flush: Flush) -> None:
        """Releases the flushed records, which are durable, and requests another flush if more are waiting."""
        log = self.log
        log.finish_flush(flush)
        if log.log_end_offset - log.recovery_point < log.config.flush_messages:
            self.held_from = NEVER
        elif self.held_from != NEVER:
            self.held_from = max(self.held_from, log.recovery_point)
            self.driver.flush_soon(self)
        self.on_released()

    def give_up(self, flush: Flush) -> None:
        """Ends a flush that did not complete; another one may begin."""
        self.log.give_up_flush(flush)

    def fail(self, error: KafkaError) -> None:
        """Reports a flush that failed."""
        self.on_failed(error)

    def forget_from(self, end_offset: int) -> None:
        """Follows a cut of the log at that offset."""
        if self.held_from >= end_offset:
            self.held_from = NEVER
        self.set_trigger()

    def release(self) -> None:
        """Releases all records: they are durable in another log, which has replaced this one and has its own gate."""
        self.held_from = NEVER
        self.close()

    def close(self) -> None:
        """Closes the gate: the partition was deleted, or its disk has failed."""
        self.closed = True
        # Partition, gate and log refer to each other. A thousand of them must not wait for the garbage collector, which
        # would stop the broker while it scans all other partitions, too.
        self.on_released, self.on_failed, self.log.on_roll = ignore, ignore, ignore

    def _rolled(self) -> None:
        # As Kafka does after each roll: recovery then need not read full segments.
        self.driver.flush_soon(self)
