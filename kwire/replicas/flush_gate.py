"""When the log of one partition must be flushed, and what that holds back: a machine.

Three things ask for a flush: `flush.messages` (so many records that no flush covers), `flush.ms` (one that is so old),
and a segment that is full. Only the first is worth waiting for. As in Kafka, whose append flushes before it returns,
the append that reaches `flush.messages` is neither acknowledged nor readable before it is durable. Here it does not
keep the others waiting: while one flush runs, appends go on, and all of them share the next (group commit).

`kwire.replicas.flusher` runs the flushes; what goes to a worker thread is `Flush.run` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs
from kwire_protocol.kafka_error import KafkaError
from kwire_storage.config import NEVER
from kwire_storage.errors import StorageError
from kwire_storage.log.durability import Flush
from kwire_storage.log.log import Log


class FlushDriver(Protocol):
    """Who has flushes run: calls `begin`, runs what it returns, and calls `finish`, or `give_up` and `fail`."""

    def flush_soon(self, gate: FlushGate) -> None:
        """Asking again before the flush begins changes nothing; asking while one runs means another after it."""

    def flush_within(self, gate: FlushGate, delay_ms: int) -> None:
        """As `flush_soon`, after so many ms."""


@attrs.define(eq=False)
class FlushGate:
    """`trigger_messages` are the unflushed records at which an append must call `reached`.

    `held_from` is the first offset that waits for a flush; NEVER when none does.
    """

    log: Log
    driver: FlushDriver
    on_released: Callable[[], None]
    """Less is held than before."""
    on_failed: Callable[[KafkaError], None]
    """What is held stays held, for that reason: nobody knows what a power cut would leave of it."""
    held_from: int = NEVER
    trigger_messages: int = attrs.field(init=False)
    closed: bool = False
    """Nothing of it is flushed any more."""
    _is_timed: bool = False
    """flush.ms runs for the oldest record that no flush covers."""

    def __attrs_post_init__(self) -> None:
        self.log.on_roll = self._rolled
        self.set_trigger()

    def set_trigger(self) -> None:
        """Looks at the settings anew."""
        config = self.log.config
        starts_clock = config.flush_ms != NEVER and not self._is_timed
        self.trigger_messages = 1 if starts_clock else config.flush_messages

    def reached(self, base_offset: int) -> None:
        """An append, which begins at `base_offset`, has brought the unflushed records to `trigger_messages`."""
        log = self.log
        if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            self.held_from = min(self.held_from, base_offset)
            self.driver.flush_soon(self)
        else:
            self._is_timed = True
            self.driver.flush_within(self, log.config.flush_ms)
        self.set_trigger()

    # What the driver calls

    def begin(self) -> Flush:
        """What is to be run now. Raises StorageError."""
        log = self.log
        if log.failed is not None:
            raise StorageError.of(log.failed, log.path)
        # Whatever is appended from now on may not be part of it, so its time runs anew.
        self._is_timed = False
        self.set_trigger()
        return log.begin_flush()

    def finish(self, flush: Flush) -> None:
        """The flushed records are durable: releases them, and asks for more where that was not all."""
        log = self.log
        log.finish_flush(flush)
        if log.log_end_offset - log.recovery_point < log.config.flush_messages:
            self.held_from = NEVER
        elif self.held_from != NEVER:
            self.held_from = max(self.held_from, log.recovery_point)
            self.driver.flush_soon(self)
        self.on_released()

    def give_up(self, flush: Flush) -> None:
        """The flush did not run to its end; another one may begin."""
        self.log.give_up_flush(flush)

    def fail(self, error: KafkaError) -> None:
        """It could not be flushed."""
        self.on_failed(error)

    def release(self) -> None:
        """All of it is durable in another log, which has taken the place of this one, and a gate of its own."""
        self.held_from = NEVER
        self.closed = True

    def close(self) -> None:
        """The partition is gone, or its disk."""
        self.closed = True

    def _rolled(self) -> None:
        # As Kafka does after each roll: recovery need not look into a segment that is full.
        self.driver.flush_soon(self)
