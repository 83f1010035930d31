"""A producer's state: its id and epoch, the sequences of its batches, and the phase of its transaction.

Pure; `producing.py` sends the requests and reports the results here.

    UNINITIALIZED ---> READY <-----------------------------+--------------------+
                         | begin()                         | ended()            | ended()
                         v                                 |                    |
                   IN_TRANSACTION --- committing() ---> COMMITTING              |
                         |                                                      |
                         +--- failed(), aborting() ------------------------> MUST_ABORT

A producer without a transactional id is only ever UNINITIALIZED or READY. FENCED can follow any phase and is final:
another producer has the transactional id. A transaction in COMMITTING may already be committed, so the commit can only
be requested again.

**Sequences.** Each batch of a partition has the number of its first record in the producer's epoch (KIP-98). With it a
broker recognizes a batch that is sent twice, and one that is missing. So a batch keeps its sequence when it is sent
again. If it is unknown whether a batch was written, no later batch can follow it in that epoch.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import attrs
from kwire_protocol.kafka_error import quoted

from kwire.client.cluster import TopicPartition
from kwire.client.errors import ClientError

SEQUENCES: Final = 1 << 31
"""The number of sequences. The last one is followed by 0."""


class Phase(Enum):
    UNINITIALIZED = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING = auto()
    MUST_ABORT = auto()
    FENCED = auto()


class WrongPhase(ClientError):
    """The call is not possible in this phase, because of a mistake of the caller or an earlier failure."""


@attrs.define(eq=False)
class ProducerState:
    transactional_id: str | None
    producer_id: int = -1
    producer_epoch: int = -1
    phase: Phase = Phase.UNINITIALIZED
    is_known: bool = False
    """True if the brokers may have the transaction: a request was sent for it."""
    partitions: set[TopicPartition] = attrs.field(factory=set)
    """The partitions that were added at the coordinator, before transaction version 2."""
    groups: set[str] = attrs.field(factory=set)
    """The groups whose offsets were added at the coordinator, before transaction version 2."""
    _next_sequences: dict[TopicPartition, int] = attrs.field(factory=dict)

    @property
    def name(self) -> str:
        """The producer's name in messages."""
        return "the producer" if self.transactional_id is None else f"producer {quoted(self.transactional_id)}"

    def initialized(self, producer_id: int, producer_epoch: int) -> None:
        """Records that the brokers assigned id and epoch, and that no transaction is open."""
        self.phase = Phase.READY
        self._renew(producer_id, producer_epoch)
        self._end_transaction()

    def take_sequence(self, at: TopicPartition, record_count: int) -> int:
        """Returns the sequence of a new batch with this many records for a partition. Raises WrongPhase."""
        self.check_may_write()
        sequence = self._next_sequences.get(at, 0)
        self._next_sequences[at] = (sequence + record_count) % SEQUENCES
        self.is_known = True
        return sequence

    def begin(self) -> None:
        if self.transactional_id is None:
            raise WrongPhase("a producer without a transactional id has no transactions")
        self.check(Phase.READY, "begin a transaction")
        self.phase = Phase.IN_TRANSACTION

    def committing(self) -> None:
        """Call it before the commit is requested: after that, the transaction may be committed."""
        if self.phase is not Phase.COMMITTING:
            self.check(Phase.IN_TRANSACTION, "commit")
            self.phase = Phase.COMMITTING

    def aborting(self) -> None:
        """Call it before the abort is requested."""
        if self.phase is not Phase.MUST_ABORT:
            self.check(Phase.IN_TRANSACTION, "abort")
            self.phase = Phase.MUST_ABORT

    def ended(self, producer_id: int = -1, producer_epoch: int = -1) -> None:
        """Records the end of the transaction. With transaction version 2 the next one has a new epoch, or a new id."""
        assert self.phase in (Phase.COMMITTING, Phase.MUST_ABORT), self.phase
        self.phase = Phase.READY
        if producer_id >= 0:
            self._renew(producer_id, producer_epoch)
        self._end_transaction()

    def failed(self) -> None:
        """Records that the sent batches may or may not have been written: no other batch can follow in this epoch."""
        if self.phase is Phase.IN_TRANSACTION:
            self.phase = Phase.MUST_ABORT
        elif self.phase is Phase.READY:
            self.phase = Phase.UNINITIALIZED

    def fenced(self) -> None:
        self.phase = Phase.FENCED

    def check_may_write(self) -> None:
        """Raises WrongPhase unless batches may be written now."""
        self.check(Phase.READY if self.transactional_id is None else Phase.IN_TRANSACTION, "write")

    def check(self, wanted: Phase, what: str) -> None:
        """Raises WrongPhase unless it is in that phase."""
        if self.phase is not wanted:
            raise WrongPhase(f"{self.name} cannot {what}: {_REASONS[self.phase]}")

    def _renew(self, producer_id: int, producer_epoch: int) -> None:
        self._next_sequences.clear()
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def _end_transaction(self) -> None:
        self.is_known = False
        self.partitions.clear()
        self.groups.clear()


_REASONS: Final = {
    Phase.UNINITIALIZED: "it has no producer id yet",
    Phase.READY: "it is in no transaction",
    Phase.IN_TRANSACTION: "it is in a transaction",
    Phase.COMMITTING: "its transaction may be committed already; commit it again",
    Phase.MUST_ABORT: "its transaction failed, and can only be aborted",
    Phase.FENCED: "another producer has its transactional id, or its transaction took too long",
}
